// SPDX-License-Identifier: Apache-2.0

package pooldemo

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"text/tabwriter"
	"time"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// invoiced returns the condition that every ended session is on an invoice, according to the usage
// records.
func (r *run) invoiced() demo.Condition {
	return demo.Condition{What: "every session that has ended is on an invoice", Instead: func(ctx context.Context) (string, error) {
		var records poolv1alpha1.UsageRecordList
		var invoices poolv1alpha1.InvoiceList
		if err := errors.Join(r.List(ctx, &records), r.List(ctx, &invoices)); err != nil {
			return "", err
		}
		return compare(records.Items, invoices.Items), nil
	}}
}

// invoices shows each tenant's debt.
func (r *run) invoices(title string) func(context.Context, time.Time) error {
	return func(ctx context.Context, _ time.Time) error {
		var invoices poolv1alpha1.InvoiceList
		if err := r.List(ctx, &invoices); err != nil {
			return fmt.Errorf("list the invoices: %w", err)
		}
		b := &r.Text
		fmt.Fprintf(b, "%s, at %s USD an hour of a GPU\n", title, unitPrice)
		table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "     tenant\tsessions\tGPU hours\ttotal")
		for _, t := range tenants() {
			for i := range invoices.Items {
				spec := &invoices.Items[i].Spec
				if spec.Tenant != t.name {
					continue
				}
				for _, line := range spec.LineItems {
					fmt.Fprintf(table, "  %c  %s\t%d\t%s\t%s\n", t.letter, t.name, line.Sessions, line.Hours, line.Subtotal)
				}
			}
		}
		_ = table.Flush() // a Builder takes all
		b.WriteString("\n")
		return nil
	}
}

// compare returns the differences between invoices and records, or "". Costs are recomputed, and a
// session's cost is its GPU seconds in cents.
func compare(records []poolv1alpha1.UsageRecord, invoices []poolv1alpha1.Invoice) string {
	sessions, costs := map[string]int32{}, map[string]*big.Rat{}
	for i := range records {
		record := &records[i]
		if record.Status.End == nil {
			return fmt.Sprintf("the session of pod %s has not ended", record.Spec.Pod)
		}
		cost, ok := new(big.Rat).SetString(string(record.Status.Cost))
		quantity, known := new(big.Rat).SetString(string(record.Spec.Quantity))
		if !ok || !known {
			return fmt.Sprintf("the session of pod %s has no cost yet", record.Spec.Pod)
		}
		seconds := max(1, int64(record.Status.End.Sub(record.Spec.Start.Time).Seconds())) // minPeriodSeconds is 1
		if want := new(big.Rat).Mul(quantity, big.NewRat(seconds, 100)); cost.Cmp(want) != 0 {
			return fmt.Sprintf("the session of pod %s costs %s, want %s", record.Spec.Pod, cost.FloatString(2), want.FloatString(2))
		}
		if costs[record.Spec.Tenant] == nil {
			costs[record.Spec.Tenant] = new(big.Rat)
		}
		sessions[record.Spec.Tenant]++
		costs[record.Spec.Tenant].Add(costs[record.Spec.Tenant], cost)
	}
	billed := map[string]bool{}
	for i := range invoices {
		spec := &invoices[i].Spec
		billed[spec.Tenant] = true
		var n int32
		for _, line := range spec.LineItems {
			n += line.Sessions
		}
		total, ok := new(big.Rat).SetString(string(spec.Total))
		if want := costs[spec.Tenant]; !ok || want == nil || n != sessions[spec.Tenant] || total.Cmp(want) != 0 {
			return fmt.Sprintf("%s has %d sessions for %s on its invoice, and %d records for %v", spec.Tenant, n, spec.Total, sessions[spec.Tenant], want)
		}
	}
	for _, t := range tenants() {
		if !billed[t.name] {
			return t.name + " has no invoice"
		}
	}
	return ""
}
