// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// metrics are the gauges of all accounts, for alerts. Bills are made of the exact amounts.
type metrics struct {
	balance, accrued, credits, lines, held *prometheus.GaugeVec
	stored                                 *prometheus.GaugeVec // bytes of records and batches
	limit                                  *prometheus.GaugeVec // without labels: the most that all may take
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		balance: gauge("tenant_balance", "Credits of a tenant less what its sessions cost that have ended, in the currency of its price book.", "tenant"),
		accrued: gauge("tenant_accrued", "What the sessions of a tenant would cost that go on, if they ended now, in the currency of its price book.", "tenant"),
		credits: gauge("tenant_credits", "Entries of spec.credits of a TenantAccount, which takes 1024.", "tenant"),
		lines:   gauge("tenant_invoice_lines", "Lines of that open invoice of a tenant which has most; a page takes 256.", "tenant"),
		held:    gauge("tenant_records_held", "Records of a tenant that are not billed, since they were restored from a backup without their status.", "tenant"),
		stored:  gauge("tenant_usage_stored_bytes", "What the UsageRecords and UsageBatches of a tenant take in etcd, about.", "tenant"),
		limit:   gauge("usage_storage_limit_bytes", "What the UsageRecords and UsageBatches of all tenants may take in etcd; 0 is no limit."),
	}
	for _, g := range append(m.all(), &m.limit) {
		err := registry.Register(*g)
		var there prometheus.AlreadyRegisteredError
		if errors.As(err, &there) { // registered by another manager of this process
			if known, ok := there.ExistingCollector.(*prometheus.GaugeVec); ok {
				*g, err = known, nil
			}
		}
		if err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) all() []**prometheus.GaugeVec {
	return []**prometheus.GaugeVec{&m.balance, &m.accrued, &m.credits, &m.lines, &m.held, &m.stored}
}

func (m *metrics) set(account *v1alpha1.TenantAccount, s *accounting.Statement) {
	m.balance.WithLabelValues(account.Name).Set(float(s.Balance))
	m.accrued.WithLabelValues(account.Name).Set(float(s.Accrued))
	m.credits.WithLabelValues(account.Name).Set(float64(len(account.Spec.Credits)))
	m.lines.WithLabelValues(account.Name).Set(float64(mostLines(s.Invoices)))
	m.held.WithLabelValues(account.Name).Set(float64(len(s.Held)))
}

// mostLines returns the lines of the invoice that has most, on all of its pages.
func mostLines(invoices []v1alpha1.InvoiceSpec) int {
	lines, most := map[string]int{}, 0
	for i := range invoices {
		id, _ := billing.PageOf(invoices[i].InvoiceID)
		lines[id] += len(invoices[i].LineItems)
		most = max(most, lines[id])
	}
	return most
}

// forget deletes the gauges of a tenant whose account is gone.
func (m *metrics) forget(tenant string) {
	for _, g := range m.all() {
		(*g).DeleteLabelValues(tenant)
	}
}

func float(a billing.Amount) float64 {
	f, _ := strconv.ParseFloat(a.String(), 64) // it is a number
	return f
}
