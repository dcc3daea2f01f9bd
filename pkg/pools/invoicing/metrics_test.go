// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// TestMetrics checks the metrics of an account that alerts use.
func TestMetrics(t *testing.T) {
	held := hours(5000, 2, day(11, 20))
	for _, o := range held {
		if r, ok := o.(*v1alpha1.UsageRecord); ok {
			r.Annotations = map[string]string{names.AnnotationRecorded: "2026-11-20T11:00:00Z"}
			r.CreationTimestamp, r.Status.End = metav1.NewTime(day(12, 1)), nil
		}
	}
	e := newTestEnv(t, slices.Concat(hours(0, 300, day(12, 2)), held, []client.Object{anAccount(3)})...)
	if _, err := e.reconcile(t); err != nil {
		t.Fatal(err)
	}
	gathered, err := e.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range gathered {
		got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
	}
	if got["tenant_usage_stored_bytes"] <= 0 { // how much: TestStoredBytesAreNearTheTruth
		t.Errorf("nothing is stored of %d records", len(e.records(t)))
	}
	delete(got, "tenant_usage_stored_bytes")
	want := map[string]float64{"tenant_balance": -597, "tenant_accrued": 0, "tenant_credits": 3, "tenant_invoice_lines": 300, "tenant_records_held": 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := e.Delete(t.Context(), e.account(t)); err != nil {
		t.Fatal(err)
	}
	for _, r := range e.records(t) {
		if err := e.Delete(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if gathered, err := e.registry.Gather(); err != nil || len(gathered) != 0 {
		t.Errorf("%d metrics of an account that is gone, %v", len(gathered), err)
	}
}

// TestMostLines: the lines of all pages of an invoice are added up.
func TestMostLines(t *testing.T) {
	spec := func(id string, lines int) v1alpha1.InvoiceSpec {
		return v1alpha1.InvoiceSpec{InvoiceID: id, LineItems: make([]v1alpha1.LineItem, lines)}
	}
	for name, tc := range map[string]struct {
		invoices []v1alpha1.InvoiceSpec
		want     int
	}{
		"none":           {},
		"two months":     {[]v1alpha1.InvoiceSpec{spec("a", 3), spec("b", 7), spec("c", 5)}, 7},
		"pages of one":   {[]v1alpha1.InvoiceSpec{spec("a", 256), spec(billing.PageID("a", 2), 10), spec("b", 200)}, 266},
		"without a line": {[]v1alpha1.InvoiceSpec{spec("a", 0)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mostLines(tc.invoices); got != tc.want {
				t.Errorf("%d lines, want %d", got, tc.want)
			}
		})
	}
}
