// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

var (
	errKilled = errors.New("killed")
	errCut    = errors.New("the answer was cut")
)

// faults kill a controller at any of its writes, before or after it, and drop responses.
type faults struct {
	mu     sync.Mutex
	random *rand.Rand // guarded by mu
	dead   bool       // guarded by mu
	rate   int        // guarded by mu; one write in so many fails; 0: none
}

func (f *faults) write(do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return errKilled
	}
	if f.rate == 0 || f.random.IntN(f.rate) > 0 {
		return do()
	}
	switch f.random.IntN(3) {
	case 0:
		f.dead = true
		return errKilled
	case 1:
		f.dead = true
	}
	if err := do(); err != nil {
		return err
	}
	return errCut
}

// testAPI is an API server, on which controllers with faults work and whose clock the test moves.
type testAPI struct {
	client.Client

	random *rand.Rand
	now    time.Time
	made   int
	// ended is the cost in cents of each session that has ended, by the name of its record.
	ended map[string]int64
	open  map[string]time.Time // when those began that go on
	alive map[string]bool      // sessions whose pod exists
}

func apiBuilder(t *testing.T) *fake.ClientBuilder {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(s).
		WithStatusSubresource(&v1alpha1.UsageRecord{}, &v1alpha1.TenantAccount{}, &v1alpha1.Invoice{}).
		WithIndex(&v1alpha1.UsageRecord{}, fieldTenant, tenantOf).WithIndex(&v1alpha1.UsageBatch{}, fieldTenant, tenantOf).
		WithIndex(&v1alpha1.Invoice{}, fieldTenant, tenantOf)
}

func newTestAPI(t *testing.T, seed uint64) *testAPI {
	t.Helper()
	least := int64(60)
	api := &testAPI{
		random: rand.New(rand.NewPCG(seed, 33)), //nolint:gosec // tests want the same numbers again
		now:    time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC),
		ended:  map[string]int64{}, open: map[string]time.Time{}, alive: map[string]bool{},
	}
	uids := 0
	var mu sync.Mutex
	api.Client = apiBuilder(t).WithObjects(
		&v1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-a"}},
		&v1alpha1.PriceBook{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultPriceBook}, Spec: v1alpha1.PriceBookSpec{
			Currency: "USD", MinPeriodSeconds: &least, Prices: []v1alpha1.Price{{Resource: "nvidia.com/gpu", PricePerHour: "2"}},
			Mode: v1alpha1.AllUnits, DiscountScope: v1alpha1.ScopeSession,
		}},
	).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			mu.Lock()
			uids++
			if o.GetUID() == "" {
				o.SetUID(types.UID("object-" + strconv.Itoa(uids)))
			}
			mu.Unlock()
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	return api
}

// lateClient writes to the API, with faults, and reads an older state.
type lateClient struct {
	client.Client

	cache  client.Client
	faults *faults
}

func (c *lateClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch list.(type) {
	case *v1alpha1.UsageRecordList, *v1alpha1.UsageBatchList, *v1alpha1.InvoiceList:
		return c.cache.List(ctx, list, opts...)
	}
	return c.Client.List(ctx, list, opts...)
}

func (c *lateClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.faults.write(func() error { return c.Client.Create(ctx, o, opts...) })
}

func (c *lateClient) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return c.faults.write(func() error { return c.Client.Patch(ctx, o, p, opts...) })
}

func (c *lateClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return c.faults.write(func() error { return c.Client.Delete(ctx, o, opts...) })
}

func (c *lateClient) Status() client.SubResourceWriter {
	return lateStatus{c.Client.Status(), c.faults}
}

type lateStatus struct {
	client.SubResourceWriter

	faults *faults
}

func (c lateStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	return c.faults.write(func() error { return c.SubResourceWriter.Patch(ctx, o, p, opts...) })
}

// snapshot returns a cache of the API's present objects.
func (a *testAPI) snapshot(t *testing.T) client.Client {
	t.Helper()
	b := apiBuilder(t)
	var records v1alpha1.UsageRecordList
	var batches v1alpha1.UsageBatchList
	var invoices v1alpha1.InvoiceList
	if err := errors.Join(a.List(t.Context(), &records), a.List(t.Context(), &batches), a.List(t.Context(), &invoices)); err != nil {
		t.Fatal(err)
	}
	for i := range records.Items {
		b.WithObjects(&records.Items[i])
	}
	for i := range batches.Items {
		b.WithObjects(&batches.Items[i])
	}
	for i := range invoices.Items {
		b.WithObjects(&invoices.Items[i])
	}
	return b.Build()
}

// controller returns a controller with a cache and faults of its own.
func (a *testAPI) controller(t *testing.T, cache client.Client, rate int) *reconciler {
	t.Helper()
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	f := &faults{random: rand.New(rand.NewPCG(a.random.Uint64(), 1)), rate: rate} //nolint:gosec // tests want the same numbers again
	return &reconciler{
		client: &lateClient{a.Client, cache, f}, reader: a.Client, clock: clocktesting.NewFakePassiveClock(a.now), events: &record.FakeRecorder{},
		metrics: m, grace: 24 * time.Hour, keep: 90 * 24 * time.Hour, batchAfter: time.Hour, storage: newStorage(0), tallies: newTallies(),
	}
}

// begin makes a pod start to hold devices, in one of two namespaces.
func (a *testAPI) begin(t *testing.T) {
	t.Helper()
	a.made++
	name, namespace := "pod-"+strconv.Itoa(a.made), "team-"+strconv.Itoa(a.made%2)
	quantity := int64(1 + a.made%8)
	err := errors.Join(
		a.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, UID: types.UID(name)}}),
		a.Create(t.Context(), &v1alpha1.UsageRecord{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: namespace, Finalizers: []string{names.FinalizerBilling}, CreationTimestamp: metav1.NewTime(a.now),
				Annotations: map[string]string{names.AnnotationRecorded: a.now.Format(time.RFC3339)},
			},
			Spec: v1alpha1.UsageRecordSpec{
				Tenant: "a", Namespace: namespace, Pool: "training", Pod: name, PodUID: types.UID(name), Node: "n1", Resource: "nvidia.com/gpu",
				Quantity: v1alpha1.Decimal(strconv.FormatInt(quantity, 10)), Start: metav1.NewTime(a.now),
			},
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	a.open[name], a.alive[name] = a.now, true
}

// end ends a session now or some hours ago, and usually deletes its pod.
func (a *testAPI) end(t *testing.T, name string) {
	t.Helper()
	var r v1alpha1.UsageRecord
	key := client.ObjectKey{Namespace: "team-" + strconv.Itoa(numberOf(name)%2), Name: name}
	if err := a.Get(t.Context(), key, &r); err != nil {
		t.Fatal(err)
	}
	at := a.now.Add(-time.Duration(a.random.IntN(40)) * time.Hour)
	if at.Before(a.open[name]) {
		at = a.open[name]
	}
	before := r.DeepCopy()
	when := metav1.NewTime(at)
	r.Status.End, r.Status.Estimated = &when, a.random.IntN(9) == 0
	if err := a.Client.Status().Patch(t.Context(), &r, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	seconds := max(at.Unix()-a.open[name].Unix(), 60)
	a.ended[name] = (2*int64(1+numberOf(name)%8)*seconds*200 + 3600) / 7200 // rounded half up
	delete(a.open, name)
	if a.random.IntN(8) > 0 {
		a.remove(t, name)
	}
}

func (a *testAPI) remove(t *testing.T, name string) {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team-" + strconv.Itoa(numberOf(name)%2)}}
	if err := a.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	delete(a.alive, name)
}

func numberOf(name string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(name, "pod-"))
	return n
}

// restore brings a deleted record back, as from a backup that has no status.
func (a *testAPI) restore(t *testing.T, name string) {
	t.Helper()
	var batches v1alpha1.UsageBatchList
	if err := a.List(t.Context(), &batches); err != nil {
		t.Fatal(err)
	}
	for _, r := range accounting.InBatches(batches.Items) {
		if r.Name != name {
			continue
		}
		r.ResourceVersion, r.Status, r.Finalizers = "", v1alpha1.UsageRecordStatus{}, []string{names.FinalizerBilling}
		r.Annotations = map[string]string{names.AnnotationRecorded: r.Spec.Start.Format(time.RFC3339)}
		r.CreationTimestamp = metav1.NewTime(a.now)
		if err := a.Create(t.Context(), &r); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("restore record %s: %v", name, err)
		}
		return
	}
}

// check compares the bill computed from the API's objects with the cost of the sessions themselves.
func (a *testAPI) check(t *testing.T, when string) {
	t.Helper()
	var account v1alpha1.TenantAccount
	if err := a.Get(t.Context(), client.ObjectKey{Name: "a"}, &account); err != nil {
		t.Fatal(err)
	}
	books, s, err := a.controller(t, a.Client, 0).compute(t.Context(), &account, 0)
	if err != nil {
		t.Fatal(err)
	}
	var want int64
	for _, cents := range a.ended {
		want += cents
	}
	sessions := len(s.Sessions)
	for i := range books.Invoices {
		for _, line := range books.Invoices[i].Spec.LineItems {
			if books.Invoices[i].Spec.Finalized {
				sessions += int(line.Sessions)
			}
		}
	}
	if got := s.Billed.String(); got != fmt.Sprintf("%d.%02d", want/100, want%100) || sessions != len(a.ended) || len(s.Open) != len(a.open) {
		t.Fatalf("%s: billed %s for %d sessions, and %d go on; want %d cents for %d, and %d", when, got, sessions, len(s.Open), want, len(a.ended), len(a.open))
	}
	if len(s.Wrong)+len(s.Held) > 0 {
		t.Fatalf("%s: wrong %v, held %v", when, s.Wrong, s.Held)
	}
}

// passes makes one controller, or two at once, keep the books with older caches. It returns how
// many were killed.
func (a *testAPI) passes(t *testing.T, cache client.Client, rate int) (killed int) {
	t.Helper()
	controllers := []*reconciler{a.controller(t, cache, rate)}
	if rate > 0 && a.random.IntN(3) == 0 {
		controllers = append(controllers, a.controller(t, a.snapshot(t), rate))
	}
	errs := make([]error, len(controllers))
	var all sync.WaitGroup
	for i, r := range controllers {
		all.Go(func() { _, errs[i] = r.Reconcile(t.Context(), "a") })
	}
	all.Wait()
	for _, err := range errs {
		if errors.Is(err, errKilled) || errors.Is(err, errCut) {
			killed++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return killed
}
