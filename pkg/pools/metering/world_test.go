// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// testEnv is the API server's objects, a clock, and a controller that writes one object at a time and
// can be killed between any two writes.
type testEnv struct {
	random   *rand.Rand
	now      time.Time
	pods     map[types.UID]*v1.Pod
	records  map[string]*v1alpha1.UsageRecord
	invoices map[string]*v1alpha1.Invoice
	accounts []*v1alpha1.TenantAccount
	prices   *v1alpha1.PriceBook
	beat     time.Time // of the Lease

	// The controller's own, lost with it.
	up     bool
	memory *memory
	before time.Time // the Lease's time when the controller began
	writes int       // until it is killed; below 0: it is not

	// want is the truth about each session, by the name of its record.
	want   map[string]*truth
	kills  int
	failed []error // of bills, and of ends that were taken for wrong
}

// truth is a session as the environment knows it.
type truth struct {
	tenant     string
	thousandth int64 // devices
	start, end time.Time
	estimated  bool
}

func newTestEnv(seed uint64, tenants int) *testEnv {
	w := &testEnv{
		random: rand.New(rand.NewPCG(seed, 17)), now: time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC), //nolint:gosec // tests want the same numbers again
		pods: map[types.UID]*v1.Pod{}, records: map[string]*v1alpha1.UsageRecord{}, invoices: map[string]*v1alpha1.Invoice{},
		prices: thePrices(), want: map[string]*truth{},
	}
	for i := range tenants {
		name := "t" + strconv.Itoa(i)
		w.accounts = append(w.accounts, &v1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}})
	}
	w.begin()
	return w
}

// begin starts the controller again. Invoicing has seen a random part of metering's writes.
func (e *testEnv) begin() {
	e.up, e.memory, e.before, e.writes = true, newMemory(), e.beat, -1
	uids := map[types.UID]bool{}
	for uid := range e.pods {
		uids[uid] = true
	}
	for _, r := range e.records {
		uids[r.Spec.PodUID] = true
	}
	order := slices.Sorted(maps.Keys(uids))
	e.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for i, uid := range order {
		if i == len(order)/2 {
			e.billAll()
		}
		e.reconcile(uid)
	}
	e.renew()
}

// die ends the controller. Ends that only it knew become the Lease's time.
func (e *testEnv) die() {
	e.up, e.kills = false, e.kills+1
	for name, want := range e.want {
		if r := e.records[name]; r != nil && r.Status.End == nil && e.pods[r.Spec.PodUID] == nil {
			want.end, want.estimated = later(later(e.beat, r.CreationTimestamp.Time), want.start), true
		}
		if e.records[name] == nil && e.pods[types.UID(name)] == nil {
			delete(e.want, name) // it disappeared unrecorded and had no finalizer
		}
	}
}

// write does a write of the controller, unless it is killed before. It reports whether the controller
// is alive.
func (e *testEnv) write(do func()) bool {
	if e.writes == 0 {
		if e.up {
			e.die()
		}
		return false
	}
	e.writes--
	do()
	return true
}

// reconcile does the reconciler's work over this API, whose cache is never late.
func (e *testEnv) reconcile(uid types.UID) {
	if !e.up {
		return
	}
	v := view{now: e.now, seenUntil: e.before, pod: e.pods[uid]}
	if v.pod == nil {
		if l, ok := e.memory.of(uid); ok {
			v.pod, v.gone = l.pod, l.end
		}
	}
	if r := e.records[string(uid)]; r != nil {
		v.records = []v1alpha1.UsageRecord{*r}
	}
	if v.pod != nil {
		v.place = place{tenant: v.pod.Namespace, pool: aPool()}
	}
	s := decide(v)
	for i := range s.create {
		made := s.create[i]
		if names.IsRestRecord(made.Name) {
			e.failed = append(e.failed, fmt.Errorf("record %s: no end was too early", made.Name))
		}
		made.CreationTimestamp = metav1.NewTime(e.now)
		if !e.write(func() { e.records[made.Name] = &made }) {
			return
		}
	}
	if s.end != nil {
		if r := e.records[string(uid)]; r.Status.End == nil && !e.write(func() { r.Status = ending(r, *s.end) }) {
			return
		}
	}
	if s.release && !e.write(func() { e.pods[uid].Finalizers = nil; e.collect(uid) }) {
		return
	}
	if s.end == nil && !hasOpen(v.records) {
		e.memory.forget(uid)
	}
}

func (e *testEnv) renew() {
	for _, r := range e.records {
		if r.Status.End == nil && e.pods[r.Spec.PodUID] == nil {
			return
		}
	}
	if e.up && e.writes != 0 {
		e.write(func() { e.beat = e.now })
	}
}

// pass lets time pass, in which only the heartbeat happens.
func (e *testEnv) pass(d time.Duration) {
	rest := d % beat
	e.now = e.now.Add(d - rest)
	if d > rest {
		e.renew()
	}
	e.now = e.now.Add(rest)
}

// bind makes a pod start to hold devices.
func (e *testEnv) bind(n int) {
	tenant := e.accounts[e.random.IntN(len(e.accounts))].Name
	uid := types.UID("pod-" + strconv.Itoa(n))
	name, count, milli := v1.ResourceName("nvidia.com/gpu"), 1+e.random.Int64N(8), int64(1000)
	if e.random.IntN(4) == 0 {
		name, milli = "nvidia.com/mig-3g.40gb", 428
	}
	pod := aPod(free, func(p *v1.Pod) {
		p.UID, p.Name, p.Namespace, p.CreationTimestamp = uid, string(uid), tenant, metav1.NewTime(e.now.Add(-time.Hour))
		p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(e.now)
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{name: *resource.NewQuantity(count, resource.DecimalSI)}
	})
	if e.random.IntN(3) > 0 {
		pod.Finalizers = []string{names.FinalizerMetering}
	}
	e.pods[uid] = pod
	e.want[string(uid)] = &truth{tenant: tenant, thousandth: count * milli, start: e.now}
	e.reconcile(uid)
}

// finish makes the last container of a pod end, by the clock of its node, and the pod deleted now or
// never.
func (e *testEnv) finish(pod *v1.Pod) {
	at, ran := e.now, e.want[string(pod.UID)]
	switch e.random.IntN(20) {
	case 0: // a clock that is ahead; the end is the time at which this is read
		at = e.now.Add(time.Hour)
	case 1: // one that is behind
		at = ran.start.Add(-time.Hour)
	}
	pod.Status.Phase = v1.PodSucceeded
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}}}}
	switch {
	case at.Before(ran.start):
		ran.end = ran.start
	default:
		ran.end = at // or when this is read, if that is before
	}
	e.reconcile(pod.UID)
	if r := e.records[string(pod.UID)]; r != nil && r.Status.End != nil {
		ran.end = earlier(ran.end, e.now) // it was read now
	}
	if e.random.IntN(2) == 0 {
		e.delete(pod)
	}
}

// delete deletes a pod without grace.
func (e *testEnv) delete(pod *v1.Pod) {
	if pod.DeletionTimestamp == nil {
		at, grace := metav1.NewTime(e.now), int64(0)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
		if ran := e.want[string(pod.UID)]; ran.end.IsZero() {
			ran.end = e.now
		}
	}
	e.collect(pod.UID)
	e.reconcile(pod.UID)
}

// collect removes a deleted pod without finalizers.
func (e *testEnv) collect(uid types.UID) {
	pod := e.pods[uid]
	if pod == nil || pod.DeletionTimestamp == nil || len(pod.Finalizers) > 0 {
		return
	}
	delete(e.pods, uid)
	if e.up {
		e.memory.keep(pod, goneAt(pod, false, e.beat, e.now))
		return
	}
	name, ran := string(uid), e.want[string(uid)]
	switch r := e.records[name]; {
	case r == nil:
		delete(e.want, name) // it was never seen
	case r.Status.End == nil:
		ran.end, ran.estimated = later(later(e.beat, r.CreationTimestamp.Time), ran.start), true
	}
}

// bill does invoicing's work for a tenant, in its order.
func (e *testEnv) bill(account *v1alpha1.TenantAccount) (*accounting.Statement, error) {
	books := &accounting.Books{Account: account, Prices: e.prices, Now: e.now, Grace: 24 * time.Hour}
	for _, r := range e.records {
		if r.Spec.Tenant == account.Name {
			books.Records = append(books.Records, *r)
		}
	}
	for _, v := range e.invoices {
		books.Invoices = append(books.Invoices, *v)
	}
	statement, err := books.Compute()
	if err != nil {
		return nil, err
	}
	if len(statement.Wrong) > 0 {
		return nil, fmt.Errorf("records that cannot be billed: %w", statement.Wrong[0])
	}
	closing := map[string]bool{}
	for _, spec := range statement.Invoices {
		closing[spec.InvoiceID], spec.Finalized = spec.Finalized, false
		if !e.write(func() {
			e.invoices[spec.InvoiceID] = &v1alpha1.Invoice{ObjectMeta: metav1.ObjectMeta{Name: spec.InvoiceID}, Spec: spec}
		}) {
			return statement, nil
		}
	}
	for _, s := range statement.Sessions {
		r := e.records[s.Record.Name]
		if !e.write(func() {
			accounting.Fix(&r.Status, &s.Charge)
			if s.Late || closing[s.Invoice] {
				r.Status.Invoice = s.Invoice
			}
		}) {
			return statement, nil
		}
	}
	for _, spec := range statement.Invoices {
		if spec.Finalized && !e.write(func() { e.invoices[spec.InvoiceID].Spec.Finalized = true }) {
			return statement, nil
		}
	}
	return statement, nil
}

// billAll bills all tenants.
func (e *testEnv) billAll() {
	for _, account := range e.accounts {
		if _, err := e.bill(account); err != nil {
			e.failed = append(e.failed, err)
		}
	}
}

// running returns the pods whose end is not decided yet.
func (e *testEnv) running() (out []*v1.Pod) {
	for _, pod := range e.pods {
		if pod.Status.Phase == v1.PodRunning && pod.DeletionTimestamp == nil {
			out = append(out, pod)
		}
	}
	slices.SortFunc(out, func(a, b *v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return out
}
