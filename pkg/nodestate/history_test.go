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

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// world is a cluster in which everything that is asynchronous in a real one
// happens in random order: the API server's state, the informer's store behind
// it, and two listeners behind the store, the scheduler's cache and ours.
type world struct {
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
	chosen  map[types.UID]*allocation.Allocation // what bound pods were bound with
	misled  map[types.UID]bool                   // pods bound with an annotation for another node, not corrected yet

	toStore, toCache, toUs []event
	binds                  []*bind
	serial, version        int
	placed, conflicts      int
	compared               int // remembered usages with what they were remembered of
	retaken                int // choices taken again

	gangs    [][]types.UID // whose plans have not been ended by themselves
	slotter  *placement.SlotCounter
	planned  int // gangs
	followed int // cycles of pods that found their part in a plan
}

type event struct {
	pod  *v1.Pod
	gone bool
}

// bind is a binding cycle under way.
type bind struct {
	pod   *v1.Pod
	node  string
	alloc *allocation.Allocation
	// late: the client gave up, but the API server may still carry it out.
	late    bool
	patched bool
	expires time.Time
}

func (w *world) pod(_, _ string, uid types.UID) *v1.Pod { return w.store[uid] }

func (w *world) write(pod *v1.Pod, gone bool) {
	if gone {
		delete(w.api, pod.UID)
	} else {
		w.version++
		pod.ResourceVersion = strconv.Itoa(w.version)
		w.api[pod.UID] = pod
	}
	w.toStore = append(w.toStore, event{pod, gone})
}

func (w *world) step() {
	switch w.rng.IntN(15) {
	case 13:
		w.plan()
	case 14:
		if w.rng.IntN(4) == 0 {
			w.endPlan()
		}
	case 0, 1:
		w.serial++
		uid := types.UID(fmt.Sprintf("uid-%d", w.serial))
		w.write(gpuPod(string(uid), 1+w.rng.IntN(4)), false)
	case 2:
		if pod := w.any(w.api); pod != nil {
			w.write(pod, true)
		}
	case 3, 4, 5:
		if len(w.toStore) > 0 {
			e := w.toStore[0]
			w.toStore = w.toStore[1:]
			if e.gone {
				delete(w.store, e.pod.UID)
			} else {
				w.store[e.pod.UID] = e.pod
			}
			w.toCache, w.toUs = append(w.toCache, e), append(w.toUs, e)
		}
	case 6:
		if len(w.toCache) > 0 {
			e := w.toCache[0]
			w.toCache = w.toCache[1:]
			w.deliverToCache(e)
		}
	case 7:
		if len(w.toUs) > 0 {
			e := w.toUs[0]
			w.toUs = w.toUs[1:]
			if e.gone {
				w.state.podDeleted(e.pod.UID)
			} else {
				w.state.podEvent(nil, e.pod)
			}
		}
	case 8, 9:
		w.schedule()
	case 10:
		w.advanceBind()
	case 11:
		w.clock.now = w.clock.now.Add(time.Duration(w.rng.IntN(20)) * time.Second)
		w.decideDoubts()
	case 12:
		// A tenant changes what a waiting pod asks for, so that it chooses anew: best one
		// of which an attempt is under way or late.
		pod := w.any(w.api)
		if len(w.binds) > 0 {
			pod = w.api[w.binds[w.rng.IntN(len(w.binds))].pod.UID]
		}
		if pod != nil && pod.Spec.NodeName == "" {
			changed := pod.DeepCopy()
			changed.Annotations = maps.Clone(pod.Annotations)
			if _, ok := changed.Annotations[podrequest.MinLinkKey]; ok {
				delete(changed.Annotations, podrequest.MinLinkKey)
			} else {
				metav1.SetMetaDataAnnotation(&changed.ObjectMeta, podrequest.MinLinkKey, "SYS")
			}
			w.write(changed, false)
		}
	}
}

func (w *world) any(pods map[types.UID]*v1.Pod) *v1.Pod {
	keys := slices.Sorted(maps.Keys(pods))
	if len(keys) == 0 {
		return nil
	}
	return pods[keys[w.rng.IntN(len(keys))]]
}

func (w *world) deliverToCache(e event) {
	switch {
	case e.gone:
		delete(w.cache, e.pod.UID)
		delete(w.assumed, e.pod.UID)
	case e.pod.Spec.NodeName != "":
		w.cache[e.pod.UID] = e.pod
		delete(w.assumed, e.pod.UID)
	}
}

// schedule runs one scheduling cycle for a pod the informer shows as waiting.
func (w *world) schedule() {
	var pod *v1.Pod
	for _, uid := range slices.Sorted(maps.Keys(w.store)) {
		p := w.store[uid]
		_, planned := w.state.Planned(uid)
		if p.Spec.NodeName == "" && w.cache[uid] == nil && (pod == nil || w.rng.IntN(3) == 0 || planned) {
			pod = p
		}
	}
	if pod == nil {
		return
	}
	snapshot := schedcache.NewSnapshot(slices.Collect(maps.Values(w.cache)), w.nodes).NodeInfos()
	w.state.Sweep(snapshot)
	d := demandOf(w.t, pod)
	if node, ok := w.state.Planned(pod.UID); ok {
		w.follow(pod, node)
		return
	}
	for _, i := range w.rng.Perm(len(w.nodes)) {
		info, err := snapshot.Get(w.nodes[i].Name)
		if err != nil {
			w.t.Fatal(err)
		}
		// Anything may happen between Filter and Reserve but a new snapshot.
		if v := w.state.Judge(d, info, snapshot); v.Reason != placement.Fits {
			continue
		}
		for range w.rng.IntN(3) {
			w.background()
		}
		w.compared += checkMemos(w.t, w.state, snapshot)
		inDoubt := w.state.reservedOn(info.Node().Name).InDoubt(pod.UID)
		a, reason := w.state.Reserve(d, pod, info, snapshot)
		if reason != placement.Fits {
			w.state.Unreserve(pod.UID, info.Node().Name)
			return
		}
		if inDoubt != nil && inDoubt.Allocation == a {
			w.retaken++
		}
		w.assume(pod, a)
		return
	}
}

// assume begins a binding cycle.
func (w *world) assume(pod *v1.Pod, a *allocation.Allocation) {
	copied := pod.DeepCopy()
	copied.Spec.NodeName = a.Node
	w.cache[pod.UID], w.assumed[pod.UID] = copied, true
	w.binds = append(w.binds, &bind{pod: pod, node: a.Node, alloc: a})
}

// follow is the cycle of a pod that has its part in the plan of a gang.
func (w *world) follow(pod *v1.Pod, node string) {
	for range w.rng.IntN(3) {
		w.background()
	}
	if w.rng.IntN(10) == 0 { // another plugin's Reserve fails before ours
		w.state.Unreserve(pod.UID, node)
		return
	}
	a, ended := w.state.ReservePlanned(pod.UID, node)
	if ended {
		w.state.Unreserve(pod.UID, node)
		return
	}
	w.followed++
	w.assume(pod, a)
}

// plan reserves for a gang of pods that wait, whatever else is known of them.
func (w *world) plan() {
	var gang []*v1.Pod
	for _, uid := range slices.Sorted(maps.Keys(w.store)) {
		_, planned := w.state.Planned(uid)
		if pod := w.store[uid]; pod.Spec.NodeName == "" && w.cache[uid] == nil && len(gang) < 3 && (!planned || w.rng.IntN(8) == 0) {
			gang = append(gang, pod)
		}
	}
	if len(gang) == 0 {
		return
	}
	snapshot := schedcache.NewSnapshot(slices.Collect(maps.Values(w.cache)), w.nodes).NodeInfos()
	w.state.Sweep(snapshot)
	var members []GangMember
	var uids []types.UID
	used := map[string]nvtopo.Mask{}
	for _, pod := range gang {
		d, node := demandOf(w.t, pod), w.nodes[w.rng.IntN(len(w.nodes))].Name
		info, err := snapshot.Get(node)
		if err != nil {
			w.t.Fatal(err)
		}
		supply := w.state.SupplyBeside(d, info, snapshot, w.slotter, used[node], nil)
		n := supply.Members()
		if n == 0 {
			break
		}
		set := supply.Slots.Sets(1 + w.rng.IntN(n))[0]
		members = append(members, GangMember{Pod: pod, Demand: d, Node: node, GPUs: set})
		uids = append(uids, pod.UID)
		if w.rng.IntN(4) > 0 { // else the next may be given the same
			used[node] |= set
		}
	}
	if len(members) == 0 {
		return
	}
	for range w.rng.IntN(3) {
		w.background()
	}
	before := w.state.phases()
	failed, _ := w.state.ReserveGang(members, snapshot)
	after := w.state.phases()
	for _, uid := range uids {
		want := before[string(uid)]
		if failed < 0 {
			want += "planned"
		}
		if after := after[string(uid)]; len(after) != len(want) || strings.Count(after, "planned") != strings.Count(want, "planned") {
			w.t.Fatalf("a gang of which pod %d failed: pod %s is %q, want %q", failed, uid, after, want)
		}
	}
	if failed >= 0 {
		return
	}
	w.planned++
	w.gangs = append(w.gangs, uids)
	if w.rng.IntN(2) == 0 {
		w.state.KeepPlanned(uids...)
	}
}

// endPlan ends a plan, wherever its pods are.
func (w *world) endPlan() {
	if len(w.gangs) > 0 {
		i := w.rng.IntN(len(w.gangs))
		w.state.EndPlanned(w.gangs[i]...)
		w.gangs = slices.Delete(w.gangs, i, i+1)
	}
}

// background is what may run while a scheduling cycle does.
func (w *world) background() {
	switch w.rng.IntN(3) {
	case 0:
		if len(w.toUs) > 0 {
			e := w.toUs[0]
			w.toUs = w.toUs[1:]
			if e.gone {
				w.state.podDeleted(e.pod.UID)
			} else {
				w.state.podEvent(nil, e.pod)
			}
		}
	case 1:
		w.advanceBind()
	case 2:
		w.decideDoubts()
	}
}

// advanceBind lets one binding cycle succeed, be refused, or time out; after a
// time-out the API server carries the write out later, or never.
func (w *world) advanceBind() {
	if len(w.binds) == 0 {
		return
	}
	i := w.rng.IntN(len(w.binds))
	b := w.binds[i]
	done := func() { w.binds = slices.Delete(w.binds, i, i+1) }
	if b.late {
		switch {
		case w.clock.now.After(b.expires):
			done()
		case w.rng.IntN(2) == 0:
			w.carryOut(b)
			done()
		}
		return
	}
	fail := func() {
		w.state.Unreserve(b.pod.UID, b.node)
		if w.assumed[b.pod.UID] {
			delete(w.cache, b.pod.UID)
			delete(w.assumed, b.pod.UID)
		}
	}
	if b.patched && w.rng.IntN(4) == 0 { // another plugin's PreBind fails
		fail()
		done()
		return
	}
	w.state.Attempt(b.pod.UID, b.node).BindingBegan()
	switch w.rng.IntN(4) {
	case 0:
		b.late, b.expires = true, w.clock.now.Add(requestTimeout)
		fail()
	case 1:
		a := answers()[w.rng.IntN(len(answers()))]
		if a.after && w.rng.IntN(2) == 0 {
			w.carryOut(b)
		}
		if ProvesNoWrite(a.err) && !b.patched { // it is DefaultBinder that hears of a refusal after the PATCH
			w.state.Attempt(b.pod.UID, b.node).BindingRefused()
		}
		fail()
		done()
	default:
		ok := w.carryOut(b)
		if w.preBind && !b.patched {
			b.patched = ok
			if ok {
				w.state.Attempt(b.pod.UID, b.node).Written()
				if w.rng.IntN(3) == 0 { // it was sent before, without an answer
					again := *b
					again.patched, again.late, again.expires = false, true, w.clock.now.Add(requestTimeout)
					w.binds = append(w.binds, &again)
				} else {
					w.state.Attempt(b.pod.UID, b.node).WriteEnded()
				}
				return
			}
			w.state.Attempt(b.pod.UID, b.node).BindingRefused()
		}
		if !ok {
			w.conflicts++
			fail()
		}
		done()
	}
}

// answer is what the API server says to a write that it did not carry out, or, with
// after, to one that it may have.
type answer struct {
	err   error
	after bool
}

// answers are all that say that a write failed.
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

// carryOut is the API server's part in a binding cycle's next write.
func (w *world) carryOut(b *bind) bool {
	if w.preBind && !b.patched {
		return w.patch(b)
	}
	return w.apply(b)
}

// patch is the API server's answer to PreBind's PATCH: only on a pod not bound.
func (w *world) patch(b *bind) bool {
	now := w.api[b.pod.UID]
	if now == nil || now.Spec.NodeName != "" {
		return false
	}
	pod := now.DeepCopy()
	w.annotate(pod, b.alloc)
	w.write(pod, false)
	return true
}

func (w *world) annotate(pod *v1.Pod, a *allocation.Allocation) {
	text, err := a.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, allocation.Key, text)
}

// apply is the API server's bind: once per pod, with the annotation.
func (w *world) apply(b *bind) bool {
	now := w.api[b.pod.UID]
	if now == nil || now.Spec.NodeName != "" {
		return false
	}
	bound := now.DeepCopy()
	bound.Spec.NodeName = b.node
	if !w.preBind {
		w.annotate(bound, b.alloc)
	}
	w.write(bound, false)
	// Where a later attempt wrote an annotation for another node, what this attempt
	// chose has to be kept for the pod until the annotation says so.
	if w.chosen[bound.UID] = noted(bound); w.chosen[bound.UID] == nil {
		w.chosen[bound.UID], w.misled[bound.UID] = b.alloc, true
	}
	w.placed++
	return true
}

// noted is the choice that a bound pod's annotation says, nil if that is for another node.
func noted(pod *v1.Pod) *allocation.Allocation {
	a, err := allocation.Parse(pod.Annotations[allocation.Key])
	if err != nil || a.Node != pod.Spec.NodeName || a.PodUID != pod.UID {
		return nil
	}
	return a
}

// decideDoubts is resolveDoubts' decision, by a live read, and its correction.
func (w *world) decideDoubts() {
	for _, c := range w.state.doubts() {
		pod := w.api[c.UID]
		w.state.decide(c, pod)
		if pod == nil {
			continue
		}
		if a := w.state.misplaced(c, pod); a != nil {
			corrected := pod.DeepCopy()
			w.annotate(corrected, a)
			w.write(corrected, false)
			delete(w.misled, pod.UID)
		}
	}
}

// check is the invariant: no GPU in two live pods of the truth, neither by what they
// were bound with nor by what their annotations say.
func (w *world) check(step int) {
	w.t.Helper()
	holder := map[string]string{}
	for uid, pod := range w.api {
		if pod.Spec.NodeName == "" {
			continue
		}
		ids := w.chosen[uid].GPUs(testResource)
		if a := noted(pod); a != nil {
			ids = append(ids, a.GPUs(testResource)...)
		}
		for _, id := range ids {
			key := pod.Spec.NodeName + "/" + id
			if other, ok := holder[key]; ok && other != pod.Name {
				w.t.Fatalf("step %d: GPU %s is in pods %s and %s\nin flight: %+v", step, key, other, pod.Name, w.state.Dump())
			}
			holder[key] = pod.Name
		}
	}
	var writing int64
	for _, r := range w.state.reservations.List() {
		if r.Writing {
			writing++
		}
	}
	if got := w.state.reservations.Writing(); got != writing {
		w.t.Fatalf("step %d: %d choices are said to be written, %d are", step, got, writing)
	}
}

func TestNoGPUInTwoPodsOverRandomHistories(t *testing.T) {
	t.Parallel()
	histories := 100 // three of four with the PATCH of PreBind
	retaken, compared, planned, followed := 0, 0, 0, 0
	for seed := range histories {
		clk := &tickClock{now: time.Unix(1_700_000_000, 0)}
		s := New(testConfig(), clk)
		w := &world{
			t: t, rng: rand.New(rand.NewPCG(uint64(seed), 7)), state: s, clock: clk,
			api: map[types.UID]*v1.Pod{}, store: map[types.UID]*v1.Pod{}, cache: map[types.UID]*v1.Pod{}, assumed: map[types.UID]bool{},
			chosen: map[types.UID]*allocation.Allocation{}, misled: map[types.UID]bool{}, preBind: seed%4 != 0,
			slotter: placement.NewSlotCounter(),
		}
		s.pods = w
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
		if n := w.state.reservations.Writing(); n != 0 {
			t.Errorf("seed %d: %d choices are said to be written after everything settled", seed, n)
		}
		for _, left := range w.state.Dump() {
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

// quiesce lets every event arrive and every doubt be decided.
func (w *world) quiesce() {
	for len(w.gangs) > 0 {
		w.endPlan()
	}
	for range 100 {
		for len(w.binds) > 0 {
			w.clock.now = w.clock.now.Add(time.Second)
			w.advanceBind()
		}
		for _, e := range w.toStore {
			if e.gone {
				delete(w.store, e.pod.UID)
			} else {
				w.store[e.pod.UID] = e.pod
			}
			w.toCache, w.toUs = append(w.toCache, e), append(w.toUs, e)
		}
		for _, e := range w.toCache {
			w.deliverToCache(e)
		}
		for _, e := range w.toUs {
			if e.gone {
				w.state.podDeleted(e.pod.UID)
			} else {
				w.state.podEvent(nil, e.pod)
			}
		}
		w.toStore, w.toCache, w.toUs = nil, nil, nil
		w.clock.now = w.clock.now.Add(2 * requestTimeout)
		w.decideDoubts()
		w.state.Sweep(schedcache.NewSnapshot(slices.Collect(maps.Values(w.cache)), w.nodes).NodeInfos())
	}
}
