// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// asyncCluster is a cluster in which everything that is asynchronous in a real one happens in random
// order: the API server's state, the informer's store behind it, and two listeners behind the store, the
// scheduler's cache and the State.
type asyncCluster struct {
	t     *testing.T
	rng   *rand.Rand
	state *State
	clock *tickClock
	nodes []*v1.Node
	// preBind: the annotation comes in a PATCH before the Binding, not with it.
	preBind bool

	api     map[types.UID]*v1.Pod // the truth
	store   map[types.UID]*v1.Pod // the informer's store
	cache   map[types.UID]*v1.Pod // the scheduler's cache: confirmed and assumed
	assumed map[types.UID]bool
	chosen  map[types.UID]*allocation.Allocation // allocations that bound pods were bound with
	misled  map[types.UID]bool                   // pods bound with an annotation for another node, not corrected yet

	toStore, toCache, toUs []event
	binds                  []*bind
	serial, version        int
	placed, conflicts      int
	compared               int // remembered usages compared with recomputed ones
	retaken                int // allocations taken again

	gangs    [][]types.UID // gangs whose plans have not been ended by themselves
	slotter  *placement.SlotCounter
	planned  int // gangs
	followed int // cycles of pods that found their part in a plan
}

type event struct {
	pod  *v1.Pod
	gone bool
}

// bind is a binding cycle in progress.
type bind struct {
	pod   *v1.Pod
	node  string
	alloc *allocation.Allocation
	// late: the client gave up, but the API server may still carry it out.
	late    bool
	patched bool
	expires time.Time
}

func (c *asyncCluster) pod(_, _ string, uid types.UID) *v1.Pod { return c.store[uid] }

func (c *asyncCluster) write(pod *v1.Pod, gone bool) {
	if gone {
		delete(c.api, pod.UID)
	} else {
		c.version++
		pod.ResourceVersion = strconv.Itoa(c.version)
		c.api[pod.UID] = pod
	}
	c.toStore = append(c.toStore, event{pod, gone})
}

func (c *asyncCluster) step() {
	switch c.rng.IntN(15) {
	case 13:
		c.plan()
	case 14:
		if c.rng.IntN(4) == 0 {
			c.endPlan()
		}
	case 0, 1:
		c.serial++
		uid := types.UID(fmt.Sprintf("uid-%d", c.serial))
		c.write(schedtest.Pod(string(uid)).GPUs(1+c.rng.IntN(4)).Obj(), false)
	case 2:
		if pod := c.any(c.api); pod != nil {
			c.write(pod, true)
		}
	case 3, 4, 5:
		if len(c.toStore) > 0 {
			e := c.toStore[0]
			c.toStore = c.toStore[1:]
			if e.gone {
				delete(c.store, e.pod.UID)
			} else {
				c.store[e.pod.UID] = e.pod
			}
			c.toCache, c.toUs = append(c.toCache, e), append(c.toUs, e)
		}
	case 6:
		if len(c.toCache) > 0 {
			e := c.toCache[0]
			c.toCache = c.toCache[1:]
			c.deliverToCache(e)
		}
	case 7:
		if len(c.toUs) > 0 {
			e := c.toUs[0]
			c.toUs = c.toUs[1:]
			if e.gone {
				c.state.podDeleted(e.pod.UID)
			} else {
				c.state.handlers.podEvent(nil, e.pod)
			}
		}
	case 8, 9:
		c.schedule()
	case 10:
		c.advanceBind()
	case 11:
		c.clock.now = c.clock.now.Add(time.Duration(c.rng.IntN(20)) * time.Second)
		c.decideDoubts()
	case 12:
		// A tenant changes the requests of a waiting pod, so that it chooses again: preferably a pod with an
		// attempt in progress or late.
		pod := c.any(c.api)
		if len(c.binds) > 0 {
			pod = c.api[c.binds[c.rng.IntN(len(c.binds))].pod.UID]
		}
		if pod != nil && pod.Spec.NodeName == "" {
			changed := pod.DeepCopy()
			changed.Annotations = maps.Clone(pod.Annotations)
			if _, ok := changed.Annotations[podrequest.MinLinkKey]; ok {
				delete(changed.Annotations, podrequest.MinLinkKey)
			} else {
				metav1.SetMetaDataAnnotation(&changed.ObjectMeta, podrequest.MinLinkKey, "SYS")
			}
			c.write(changed, false)
		}
	}
}

func (c *asyncCluster) any(pods map[types.UID]*v1.Pod) *v1.Pod {
	keys := slices.Sorted(maps.Keys(pods))
	if len(keys) == 0 {
		return nil
	}
	return pods[keys[c.rng.IntN(len(keys))]]
}

func (c *asyncCluster) deliverToCache(e event) {
	switch {
	case e.gone:
		delete(c.cache, e.pod.UID)
		delete(c.assumed, e.pod.UID)
	case e.pod.Spec.NodeName != "":
		c.cache[e.pod.UID] = e.pod
		delete(c.assumed, e.pod.UID)
	}
}

// schedule runs one scheduling cycle for a pod the informer shows as waiting.
func (c *asyncCluster) schedule() {
	var pod *v1.Pod
	for _, uid := range slices.Sorted(maps.Keys(c.store)) {
		p := c.store[uid]
		_, planned := c.state.GangReserver.Planned(uid)
		if p.Spec.NodeName == "" && c.cache[uid] == nil && (pod == nil || c.rng.IntN(3) == 0 || planned) {
			pod = p
		}
	}
	if pod == nil {
		return
	}
	snapshot := schedcache.NewSnapshot(slices.Collect(maps.Values(c.cache)), c.nodes).NodeInfos()
	c.state.Allocations.Sweep(snapshot)
	d := demandOf(c.t, pod)
	if node, ok := c.state.GangReserver.Planned(pod.UID); ok {
		c.follow(pod, node)
		return
	}
	for _, i := range c.rng.Perm(len(c.nodes)) {
		info, err := snapshot.Get(c.nodes[i].Name)
		if err != nil {
			c.t.Fatal(err)
		}
		// Between Filter and Reserve anything but a new snapshot may happen.
		if v := c.state.Nodes.Judge(d, info, snapshot); v.Reason != placement.Fits {
			continue
		}
		for range c.rng.IntN(3) {
			c.background()
		}
		c.compared += checkMemos(c.t, c.state, snapshot)
		inDoubt := c.state.Nodes.reservedOn(info.Node().Name).InDoubt(pod.UID)
		a, reason := c.state.Allocations.Assume(d, pod, info, snapshot)
		if reason != placement.Fits {
			c.state.Allocations.Forget(pod.UID, info.Node().Name)
			return
		}
		if inDoubt != nil && inDoubt.Allocation == a {
			c.retaken++
		}
		c.assume(pod, a)
		return
	}
}

// assume begins a binding cycle.
func (c *asyncCluster) assume(pod *v1.Pod, a *allocation.Allocation) {
	copied := pod.DeepCopy()
	copied.Spec.NodeName = a.Node
	c.cache[pod.UID], c.assumed[pod.UID] = copied, true
	c.binds = append(c.binds, &bind{pod: pod, node: a.Node, alloc: a})
}

// follow runs the cycle of a pod that has its part in the plan of a gang.
func (c *asyncCluster) follow(pod *v1.Pod, node string) {
	for range c.rng.IntN(3) {
		c.background()
	}
	if c.rng.IntN(10) == 0 { // the Reserve of an earlier plugin fails
		c.state.Allocations.Forget(pod.UID, node)
		return
	}
	a, ended := c.state.GangReserver.ReservePlanned(pod.UID, node)
	if ended {
		c.state.Allocations.Forget(pod.UID, node)
		return
	}
	c.followed++
	c.assume(pod, a)
}

// plan reserves for a gang of waiting pods, in any state.
func (c *asyncCluster) plan() {
	var gang []*v1.Pod
	for _, uid := range slices.Sorted(maps.Keys(c.store)) {
		_, planned := c.state.GangReserver.Planned(uid)
		if pod := c.store[uid]; pod.Spec.NodeName == "" && c.cache[uid] == nil && len(gang) < 3 && (!planned || c.rng.IntN(8) == 0) {
			gang = append(gang, pod)
		}
	}
	if len(gang) == 0 {
		return
	}
	snapshot := schedcache.NewSnapshot(slices.Collect(maps.Values(c.cache)), c.nodes).NodeInfos()
	c.state.Allocations.Sweep(snapshot)
	var members []GangMember
	var uids []types.UID
	used := map[string]nvtopo.Mask{}
	for _, pod := range gang {
		d, node := demandOf(c.t, pod), c.nodes[c.rng.IntN(len(c.nodes))].Name
		info, err := snapshot.Get(node)
		if err != nil {
			c.t.Fatal(err)
		}
		supply := c.state.Nodes.SupplyAfter(d, info, snapshot, c.slotter, used[node], nil, nil)
		n := supply.Members()
		if n == 0 {
			break
		}
		set := supply.Slots.Sets(1 + c.rng.IntN(n))[0]
		members = append(members, GangMember{Pod: pod, Demand: d, Node: node, GPUs: set})
		uids = append(uids, pod.UID)
		if c.rng.IntN(4) > 0 { // otherwise the next one may get the same
			used[node] |= set
		}
	}
	if len(members) == 0 {
		return
	}
	for range c.rng.IntN(3) {
		c.background()
	}
	before := c.state.phases()
	failed, _ := c.state.GangReserver.ReserveGang(members, snapshot, nil, nil)
	after := c.state.phases()
	for _, uid := range uids {
		want := before[string(uid)]
		if failed < 0 {
			want += "planned"
		}
		if after := after[string(uid)]; len(after) != len(want) || strings.Count(after, "planned") != strings.Count(want, "planned") {
			c.t.Fatalf("a gang of which pod %d failed: pod %s is %q, want %q", failed, uid, after, want)
		}
	}
	if failed >= 0 {
		return
	}
	c.planned++
	c.gangs = append(c.gangs, uids)
	if c.rng.IntN(2) == 0 {
		c.state.GangReserver.KeepPlanned(uids...)
	}
}

// endPlan ends a plan, in any state of its pods.
func (c *asyncCluster) endPlan() {
	if len(c.gangs) > 0 {
		i := c.rng.IntN(len(c.gangs))
		c.state.GangReserver.EndPlanned(c.gangs[i]...)
		c.gangs = slices.Delete(c.gangs, i, i+1)
	}
}

// background runs events that may happen during a scheduling cycle.
func (c *asyncCluster) background() {
	switch c.rng.IntN(3) {
	case 0:
		if len(c.toUs) > 0 {
			e := c.toUs[0]
			c.toUs = c.toUs[1:]
			if e.gone {
				c.state.podDeleted(e.pod.UID)
			} else {
				c.state.handlers.podEvent(nil, e.pod)
			}
		}
	case 1:
		c.advanceBind()
	case 2:
		c.decideDoubts()
	}
}

// advanceBind lets one binding cycle succeed, be refused, or time out; after a time-out the API server
// carries the write out later, or never.
func (c *asyncCluster) advanceBind() {
	if len(c.binds) == 0 {
		return
	}
	i := c.rng.IntN(len(c.binds))
	b := c.binds[i]
	done := func() { c.binds = slices.Delete(c.binds, i, i+1) }
	if b.late {
		switch {
		case c.clock.now.After(b.expires):
			done()
		case c.rng.IntN(2) == 0:
			c.carryOut(b)
			done()
		}
		return
	}
	fail := func() {
		c.state.Allocations.Forget(b.pod.UID, b.node)
		if c.assumed[b.pod.UID] {
			delete(c.cache, b.pod.UID)
			delete(c.assumed, b.pod.UID)
		}
	}
	if b.patched && c.rng.IntN(4) == 0 { // another plugin's PreBind fails
		fail()
		done()
		return
	}
	c.state.Binder.Attempt(b.pod.UID, b.node).BindingBegan()
	switch c.rng.IntN(4) {
	case 0:
		b.late, b.expires = true, c.clock.now.Add(requestTimeout)
		fail()
	case 1:
		a := answers()[c.rng.IntN(len(answers()))]
		if a.after && c.rng.IntN(2) == 0 {
			c.carryOut(b)
		}
		if ProvesNoWrite(a.err) && !b.patched { // after the PATCH, only DefaultBinder gets a refusal
			c.state.Binder.Attempt(b.pod.UID, b.node).BindingRefused()
		}
		fail()
		done()
	default:
		ok := c.carryOut(b)
		if c.preBind && !b.patched {
			b.patched = ok
			if ok {
				c.state.Binder.Attempt(b.pod.UID, b.node).Written()
				if c.rng.IntN(3) == 0 { // it was sent before, without an answer
					again := *b
					again.patched, again.late, again.expires = false, true, c.clock.now.Add(requestTimeout)
					c.binds = append(c.binds, &again)
				} else {
					c.state.Binder.Attempt(b.pod.UID, b.node).WriteEnded()
				}
				return
			}
			c.state.Binder.Attempt(b.pod.UID, b.node).BindingRefused()
		}
		if !ok {
			c.conflicts++
			fail()
		}
		done()
	}
}

// answer is the API server's answer to a write that it did not carry out, or, with after, to one that it
// may have.
type answer struct {
	err   error
	after bool
}

// answers returns all answers of a failed write.
func answers() []answer {
	what, kind := schema.GroupResource{Resource: "pods"}, schema.GroupKind{Kind: "Pod"}
	because := errors.New("etcdserver: request timed out")
	return []answer{
		{apierrors.NewBadRequest("x"), false},
		{apierrors.NewForbidden(what, "p", because), false},
		{apierrors.NewNotFound(what, "p"), false},
		{apierrors.NewInvalid(kind, "p", nil), false},
		{apierrors.NewTooManyRequestsError("x"), false},
		{apierrors.NewConflict(what, "p", because), true},
		{apierrors.NewInternalError(because), true},
		{apierrors.NewServiceUnavailable("x"), true},
		{apierrors.NewTimeoutError("x", 0), true},
	}
}

// carryOut carries out a binding cycle's next write.
func (c *asyncCluster) carryOut(b *bind) bool {
	if c.preBind && !b.patched {
		return c.patch(b)
	}
	return c.apply(b)
}

// patch carries out PreBind's PATCH: only on a pod not bound.
func (c *asyncCluster) patch(b *bind) bool {
	now := c.api[b.pod.UID]
	if now == nil || now.Spec.NodeName != "" {
		return false
	}
	pod := now.DeepCopy()
	c.annotate(pod, b.alloc)
	c.write(pod, false)
	return true
}

func (c *asyncCluster) annotate(pod *v1.Pod, a *allocation.Allocation) {
	text, err := a.Encode()
	if err != nil {
		c.t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, allocation.Key, text)
}

// apply carries out a bind: once per pod, with the annotation.
func (c *asyncCluster) apply(b *bind) bool {
	now := c.api[b.pod.UID]
	if now == nil || now.Spec.NodeName != "" {
		return false
	}
	bound := now.DeepCopy()
	bound.Spec.NodeName = b.node
	if !c.preBind {
		c.annotate(bound, b.alloc)
	}
	c.write(bound, false)
	// If a later attempt wrote an annotation for another node, this attempt's allocation has to be kept for
	// the pod until the annotation has it.
	if c.chosen[bound.UID] = noted(bound); c.chosen[bound.UID] == nil {
		c.chosen[bound.UID], c.misled[bound.UID] = b.alloc, true
	}
	c.placed++
	return true
}

// noted returns the allocation in a bound pod's annotation, nil if that is for another node.
func noted(pod *v1.Pod) *allocation.Allocation {
	a, err := allocation.Parse(pod.Annotations[allocation.Key])
	if err != nil || a.Node != pod.Spec.NodeName || a.PodUID != pod.UID {
		return nil
	}
	return a
}

// decideDoubts decides unknown outcomes by live reads, with the correction of annotations.
func (c *asyncCluster) decideDoubts() {
	for _, doubt := range c.state.doubts() {
		pod := c.api[doubt.UID]
		c.state.doubtReader.decide(doubt, pod)
		if pod == nil {
			continue
		}
		if a := c.state.doubtReader.misplaced(doubt, pod); a != nil {
			corrected := pod.DeepCopy()
			c.annotate(corrected, a)
			c.write(corrected, false)
			delete(c.misled, pod.UID)
		}
	}
}

// check checks the invariant: no GPU is in two live pods, neither by the allocation they were bound with
// nor by their annotations.
func (c *asyncCluster) check(step int) {
	c.t.Helper()
	holder := map[string]string{}
	for uid, pod := range c.api {
		if pod.Spec.NodeName == "" {
			continue
		}
		ids := c.chosen[uid].GPUs(testResource)
		if a := noted(pod); a != nil {
			ids = append(ids, a.GPUs(testResource)...)
		}
		for _, id := range ids {
			key := pod.Spec.NodeName + "/" + id
			if other, ok := holder[key]; ok && other != pod.Name {
				c.t.Fatalf("step %d: GPU %s is in pods %s and %s\nin flight: %+v", step, key, other, pod.Name, c.state.Allocations.Dump())
			}
			holder[key] = pod.Name
		}
	}
	var writing int64
	for _, r := range c.state.Allocations.reservations.List() {
		if r.Writing {
			writing++
		}
	}
	if got := c.state.Allocations.reservations.Writing(); got != writing {
		c.t.Fatalf("step %d: %d choices are said to be written, %d are", step, got, writing)
	}
}

// TestRandomHistories: no GPU is in two pods over random histories.
func TestRandomHistories(t *testing.T) {
	t.Parallel()
	histories := 100 // three of four with the PATCH of PreBind
	retaken, compared, planned, followed := 0, 0, 0, 0
	for seed := range histories {
		clk := &tickClock{now: time.Unix(1_700_000_000, 0)}
		s := New(testConfig(), clk)
		w := &asyncCluster{
			t: t, rng: rand.New(rand.NewPCG(uint64(seed), 7)), state: s, clock: clk,
			api: map[types.UID]*v1.Pod{}, store: map[types.UID]*v1.Pod{}, cache: map[types.UID]*v1.Pod{}, assumed: map[types.UID]bool{},
			chosen: map[types.UID]*allocation.Allocation{}, misled: map[types.UID]bool{}, preBind: seed%4 != 0,
			slotter: placement.NewSlotCounter(),
		}
		s.listers.pods = w
		for i := range 1 + 2*(seed%2) { // on one node attempts meet more often
			w.nodes = append(w.nodes, addNode(t, s, fmt.Sprintf("node-%d", i), "dgx1-v100"))
		}
		for step := range 1500 {
			w.step()
			w.check(step)
		}
		if w.placed == 0 {
			t.Fatalf("seed %d placed no pod", seed)
		}
		retaken += w.retaken
		compared += w.compared
		planned += w.planned
		followed += w.followed
		w.quiesce()
		if n := w.state.Allocations.reservations.Writing(); n != 0 {
			t.Errorf("seed %d: %d choices are said to be written after everything settled", seed, n)
		}
		for _, left := range w.state.Allocations.Dump() {
			// A reservation stays beside such a pod until its annotation is repaired.
			if !w.misled[left.UID] {
				t.Errorf("seed %d: in flight after everything settled: %+v", seed, left)
			}
		}
	}
	if retaken < histories {
		t.Errorf("%d choices were taken again in %d histories", retaken, histories)
	}
	if planned < 5*histories || followed < 2*histories {
		t.Errorf("%d gangs were planned, and %d pods followed their plans, in %d histories", planned, followed, histories)
	}
	if compared < 50*histories {
		t.Errorf("%d remembered usages were computed again in %d histories", compared, histories)
	}
}

// quiesce delivers every event and decides every unknown outcome.
func (c *asyncCluster) quiesce() {
	for len(c.gangs) > 0 {
		c.endPlan()
	}
	for range 100 {
		for len(c.binds) > 0 {
			c.clock.now = c.clock.now.Add(time.Second)
			c.advanceBind()
		}
		for _, e := range c.toStore {
			if e.gone {
				delete(c.store, e.pod.UID)
			} else {
				c.store[e.pod.UID] = e.pod
			}
			c.toCache, c.toUs = append(c.toCache, e), append(c.toUs, e)
		}
		for _, e := range c.toCache {
			c.deliverToCache(e)
		}
		for _, e := range c.toUs {
			if e.gone {
				c.state.podDeleted(e.pod.UID)
			} else {
				c.state.handlers.podEvent(nil, e.pod)
			}
		}
		c.toStore, c.toCache, c.toUs = nil, nil, nil
		c.clock.now = c.clock.now.Add(2 * requestTimeout)
		c.decideDoubts()
		c.state.Allocations.Sweep(schedcache.NewSnapshot(slices.Collect(maps.Values(c.cache)), c.nodes).NodeInfos())
	}
}
