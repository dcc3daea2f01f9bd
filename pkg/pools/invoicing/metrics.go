// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// metrics are the amounts of all accounts, for alerts. Bills are made of the exact ones.
type metrics struct {
	balance, accrued *prometheus.GaugeVec
	stored           *prometheus.GaugeVec // bytes of records and batches
	limit            *prometheus.GaugeVec // without labels: what they may have
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		balance: gauge("tenant_balance", "Credits of a tenant less what its sessions cost that have ended, in the currency of its price book.", "tenant"),
		accrued: gauge("tenant_accrued", "What the sessions of a tenant would cost that go on, if they ended now, in the currency of its price book.", "tenant"),
		stored:  gauge("tenant_usage_stored_bytes", "What the UsageRecords and UsageBatches of a tenant take in etcd, about.", "tenant"),
		limit:   gauge("usage_storage_limit_bytes", "What the UsageRecords and UsageBatches of all tenants may take in etcd; 0 is no limit."),
	}
	for _, g := range []**prometheus.GaugeVec{&m.balance, &m.accrued, &m.stored, &m.limit} {
		err := registry.Register(*g)
		var there prometheus.AlreadyRegisteredError
		if errors.As(err, &there) { // by another manager of this process
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

func (m *metrics) set(tenant string, s *accounting.Statement) {
	m.balance.WithLabelValues(tenant).Set(float(s.Balance))
	m.accrued.WithLabelValues(tenant).Set(float(s.Accrued))
}

// forget is for a tenant whose account is gone.
func (m *metrics) forget(tenant string) {
	m.balance.DeleteLabelValues(tenant)
	m.accrued.DeleteLabelValues(tenant)
	m.stored.DeleteLabelValues(tenant)
}

func float(a billing.Amount) float64 {
	f, _ := strconv.ParseFloat(a.String(), 64) // it is a number
	return f
}
