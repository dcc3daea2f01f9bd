// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// testEnv is a tenant's books in a fake API, with their reconciler.
type testEnv struct {
	client.WithWatch

	r        *reconciler
	clock    *clocktesting.FakePassiveClock
	events   *record.FakeRecorder
	registry *prometheus.Registry
	tallied  map[string]client.Object // objects reported to the tallies
}

func day(month time.Month, day int) time.Time {
	return time.Date(2026, month, day, 12, 0, 0, 0, time.UTC)
}

// newTestEnv returns an environment with the account of team-a, a price of 2.00 an hour, and the given
// objects; it is the 3rd of December.
func newTestEnv(t *testing.T, objects ...client.Object) *testEnv {
	t.Helper()
	s := runtime.NewScheme()
	s.AddKnownTypes(v1.SchemeGroupVersion, &v1.Pod{}, &v1.PodList{}) // the fake API looks at all kinds at each write
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	objects = append(objects, &v1alpha1.PriceBook{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultPriceBook}, Spec: v1alpha1.PriceBookSpec{
		Currency: "USD", Prices: []v1alpha1.Price{{Resource: "nvidia.com/gpu", PricePerHour: "2.0"}}, Mode: v1alpha1.AllUnits, DiscountScope: v1alpha1.ScopeSession,
	}})
	api := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.UsageRecord{}, &v1alpha1.TenantAccount{}, &v1alpha1.Invoice{}).
		WithIndex(&v1alpha1.UsageRecord{}, fieldTenant, tenantOf).WithIndex(&v1alpha1.Invoice{}, fieldTenant, tenantOf).
		WithIndex(&v1alpha1.UsageBatch{}, fieldTenant, tenantOf).Build()
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	e := &testEnv{
		WithWatch: api, clock: clocktesting.NewFakePassiveClock(day(12, 3)), events: record.NewFakeRecorder(1000), registry: registry, tallied: map[string]client.Object{},
	}
	e.r = &reconciler{
		client: api, reader: api, clock: e.clock, events: e.events, metrics: m, storage: newStorage(0), tallies: newTallies(),
		grace: 24 * time.Hour, keep: 90 * 24 * time.Hour,
	}
	return e
}

// intercept passes the reconciler's writes through funcs; nil restores the API itself.
func (e *testEnv) intercept(funcs *interceptor.Funcs) {
	e.r.client = e.WithWatch
	if funcs != nil {
		e.r.client = interceptor.NewClient(e.WithWatch, *funcs)
	}
}

// reconcile reports all events to the tallies and reconciles the account once.
func (e *testEnv) reconcile(t *testing.T) (reconcile.Result, error) {
	t.Helper()
	var records v1alpha1.UsageRecordList
	var batches v1alpha1.UsageBatchList
	var invoices v1alpha1.InvoiceList
	there := map[string]client.Object{}
	for _, list := range []client.ObjectList{&records, &batches, &invoices} {
		if err := e.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			object, ok := o.(client.Object)
			if !ok {
				return fmt.Errorf("%T is no object", o)
			}
			there[fmt.Sprintf("%T %s", o, client.ObjectKeyFromObject(object))] = object
			e.r.tallies.set(object)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for key, object := range e.tallied {
		if there[key] == nil {
			e.r.tallies.remove(object)
		}
	}
	e.tallied = there
	return e.r.Reconcile(t.Context(), "team-a")
}

// look reconciles the account a number of times.
func (e *testEnv) look(t *testing.T, times int) {
	t.Helper()
	for range times {
		if _, err := e.reconcile(t); err != nil {
			t.Fatal(err)
		}
	}
}

// add makes records, with their status.
func (e *testEnv) add(t *testing.T, records []client.Object) {
	t.Helper()
	for _, o := range records {
		made, ok := o.DeepCopyObject().(client.Object)
		if !ok {
			t.Fatalf("%T is no object", o)
		}
		if err := e.Create(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		o.SetResourceVersion(made.GetResourceVersion())
		if err := e.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// told returns the events since the last call.
func (e *testEnv) told() []string {
	var out []string
	for len(e.events.Events) > 0 {
		out = append(out, <-e.events.Events)
	}
	return out
}

func (e *testEnv) account(t *testing.T) *v1alpha1.TenantAccount {
	t.Helper()
	a := &v1alpha1.TenantAccount{}
	if err := e.Get(t.Context(), client.ObjectKey{Name: "team-a"}, a); err != nil {
		t.Fatal(err)
	}
	return a
}

func (e *testEnv) records(t *testing.T) []v1alpha1.UsageRecord {
	t.Helper()
	var list v1alpha1.UsageRecordList
	if err := e.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func (e *testEnv) invoices(t *testing.T) []v1alpha1.Invoice {
	t.Helper()
	var list v1alpha1.InvoiceList
	if err := e.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// anAccount returns team-a's account, with credits of 1.00 at intervals of an hour from the 1st of
// October on.
func anAccount(credits int) *v1alpha1.TenantAccount {
	a := &v1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "uid-a"}}
	for i := range credits {
		a.Spec.Credits = append(a.Spec.Credits, v1alpha1.Credit{
			ID: fmt.Sprintf("c%d", i), Amount: "1.00", At: metav1.NewTime(day(10, 1).Add(time.Duration(i) * time.Hour)),
		})
	}
	return a
}

// hours returns the records of n sessions of an hour, each of a model of its own, from a number on.
func hours(from, n int, end time.Time) []client.Object {
	var out []client.Object
	for i := range n {
		name, at := fmt.Sprintf("s%04d", from+i), metav1.NewTime(end)
		out = append(out, &v1alpha1.UsageRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name},
			Spec: v1alpha1.UsageRecordSpec{
				Tenant: "team-a", Pool: "training", Pod: name, PodUID: types.UID(name), Node: "n1", Resource: "nvidia.com/gpu",
				Model: fmt.Sprintf("M%04d", from+i), Quantity: "1", Start: metav1.NewTime(end.Add(-time.Hour)),
			},
			Status: v1alpha1.UsageRecordStatus{End: &at},
		})
	}
	return out
}

// checkBilled compares invoices with records: each ended session is on the one page that it is marked
// with, and the pages add up to the cost of all sessions.
func (e *testEnv) checkBilled(t *testing.T) {
	t.Helper()
	var want, got billing.Amount
	on := map[string]int{}
	for _, r := range e.records(t) {
		cost, err := billing.ParseAmount(string(r.Status.Cost))
		if err != nil {
			t.Fatalf("record %s: %v", r.Name, err)
		}
		want = want.Plus(cost)
		on[r.Status.Invoice]++
	}
	for _, v := range e.invoices(t) {
		invoice, err := accounting.InvoiceOf(&v)
		if err != nil {
			t.Fatal(err)
		}
		sessions := 0
		for _, l := range invoice.Lines {
			sessions += l.Sessions
		}
		if !v.Spec.Finalized || sessions != on[v.Name] || len(invoice.Lines) > billing.MaxLines {
			t.Errorf("invoice %s (final: %t) has %d sessions in %d lines, and %d records are marked with it", v.Name, v.Spec.Finalized, sessions, len(invoice.Lines), on[v.Name])
		}
		got = got.Plus(invoice.Total)
	}
	if !got.Equal(want) {
		t.Errorf("all pages come to %s, and the sessions to %s", got, want)
	}
	if account := e.account(t); string(account.Status.Billed) != want.String() {
		t.Errorf("billed %s, want %s", account.Status.Billed, want)
	}
}

func (e *testEnv) prices(t *testing.T) *v1alpha1.PriceBook {
	t.Helper()
	b := &v1alpha1.PriceBook{}
	if err := e.Get(t.Context(), client.ObjectKey{Name: v1alpha1.DefaultPriceBook}, b); err != nil {
		t.Fatal(err)
	}
	return b
}
