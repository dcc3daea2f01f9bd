// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// failing runs a whole cycle of a member that finds no room.
func (e *testEnv) failing(pod *v1.Pod) string {
	e.t.Helper()
	c := e.cycle(pod)
	if c.status.Code() != fwk.UnschedulableAndUnresolvable {
		e.t.Fatalf("pod %s: %v, want a refusal", pod.Name, c.status)
	}
	_, status := e.fw.RunPostFilterPlugins(e.t.Context(), c.state, pod, nil)
	if status.IsSuccess() {
		e.t.Fatalf("pod %s: PostFilter succeeds, want it to end the chain", pod.Name)
	}
	return status.Message()
}

// TestPreemption: which pods are evicted for a gang of three members of priority 10 that want whole nodes,
// in two racks of three nodes.
func TestPreemption(t *testing.T) {
	t.Parallel()
	type on struct {
		node     string
		priority int32
		labels   map[string]string
	}
	kept := map[string]string{"app": "kept"}
	tests := map[string]struct {
		pods     map[string]on
		required bool
		refuses  string   // the nodes that another plugin refuses begin so
		want     []string // the evicted pods
		wantWhy  string
	}{
		"one rack is emptied, and it is the one that matters less": {
			pods: map[string]on{
				"a": {"node-0-0", 5, nil}, "b": {"node-0-1", 0, nil}, "c": {"node-0-2", 0, nil},
				"d": {"node-1-0", 0, nil}, "e": {"node-1-1", 0, nil}, "f": {"node-1-2", 0, nil},
			},
			want: []string{"d", "e", "f"}, wantWhy: "waits for default/d, default/e, default/f to end, evicted for this gang",
		},
		"a pod that matters more is in each rack": {
			pods: map[string]on{
				"a": {"node-0-0", 20, nil}, "b": {"node-0-1", 0, nil}, "c": {"node-0-2", 0, nil},
				"d": {"node-1-0", 0, nil}, "e": {"node-1-1", 20, nil}, "f": {"node-1-2", 0, nil},
			},
			required: true, wantWhy: "not even with all pods of a lower priority gone: rack: 2 of 3",
		},
		"a pod that matters more is in each rack, and both will do": {
			pods: map[string]on{
				"a": {"node-0-0", 20, nil}, "b": {"node-0-1", 5, nil}, "c": {"node-0-2", 0, nil},
				"d": {"node-1-0", 0, nil}, "e": {"node-1-1", 20, nil}, "f": {"node-1-2", 0, nil},
			},
			want: []string{"c", "d", "f"}, wantWhy: "evicted for this gang",
		},
		"a budget keeps a rack": {
			pods: map[string]on{
				"a": {"node-0-0", 5, nil}, "b": {"node-0-1", 5, nil}, "c": {"node-0-2", 5, nil},
				"d": {"node-1-0", 0, nil}, "e": {"node-1-1", 0, kept}, "f": {"node-1-2", 0, nil},
			},
			want: []string{"a", "b", "c"}, wantWhy: "evicted for this gang",
		},
		"another plugin refuses a node of the rack that matters less": {
			pods: map[string]on{
				"a": {"node-0-0", 5, nil}, "b": {"node-0-1", 5, nil}, "c": {"node-0-2", 5, nil},
				"d": {"node-1-0", 0, nil}, "e": {"node-1-1", 0, nil}, "f": {"node-1-2", 0, nil},
			},
			refuses: "node-1-2", want: []string{"a", "b", "c"}, wantWhy: "evicted for this gang",
		},
		"another plugin refuses all nodes": {
			pods:    map[string]on{"a": {"node-0-0", 0, nil}, "b": {"node-0-1", 0, nil}, "d": {"node-1-0", 0, nil}, "e": {"node-1-1", 0, nil}},
			refuses: "node-", wantWhy: "in vain, other plugins refuse gang-",
		},
		"a rack that is half free": {
			pods: map[string]on{
				"a": {"node-0-0", 0, nil}, "b": {"node-0-1", 0, nil}, "c": {"node-0-2", 0, nil}, "d": {"node-1-0", 0, nil},
			},
			required: true, want: []string{"d"}, wantWhy: "waits for default/d to end, evicted for this gang",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestEnv(t, 3, 3)
			r.budget(kept)
			for _, name := range slices.Sorted(maps.Keys(tc.pods)) {
				p := tc.pods[name]
				r.place(r.create(gpuPod(name, 8).Node(p.node).Priority(p.priority).Labels(p.labels).Obj()))
			}
			gang := r.gangOf("gang", 3, 8, 10, func(pod *v1.Pod) {
				if tc.refuses != "" {
					pod.Labels = map[string]string{"test/refuses": tc.refuses}
				}
				if tc.required {
					pod.Annotations[gangrequest.RequiredKey] = "rack"
				}
			})
			r.known(gang[0])
			if why := r.failing(gang[0]); !strings.Contains(why, tc.wantWhy) {
				t.Errorf("%q, want %q", why, tc.wantWhy)
			}
			if len(tc.want) == 0 {
				if got := r.evicted(); len(got)+len(r.held()) > 0 {
					t.Errorf("evicted %v, held %v", got, r.held())
				}
				return
			}
			testkit.Soon(t, "the victims are evicted", func() bool { return len(r.evicted()) == len(tc.want) })
			if diff := cmp.Diff(tc.want, r.evicted()); diff != "" {
				t.Errorf("evicted (-want,+got)\n%s", diff)
			}
			r.goesOnAfter(gang)
		})
	}
}

// TestRefusalAfterEviction: devices freed by evictions for a gang are held for it until it has its places,
// also after one refusal by another plugin while it is planned.
func TestRefusalAfterEviction(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 4)
	for i := range 4 { // the last one matters most, and ends by itself
		r.place(r.create(gpuPod(fmt.Sprint("low-", i), 8).Node(fmt.Sprint("node-0-", i)).Priority(int32(i)).Obj()))
	}
	gang := r.gangOf("gang", 3, 8, 10)
	r.known(gang[0])
	r.failing(gang[0])
	testkit.Soon(t, "the victims are evicted", func() bool { return len(r.evicted()) == 3 })
	if err := r.client.CoreV1().Pods("default").Delete(t.Context(), "low-3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.leave()
	want := r.held()
	refused := gang[0].DeepCopy()
	refused.Labels = map[string]string{"test/refuses": "node-"}
	var c *cycle
	testkit.Soon(t, "the gang is planned", func() bool {
		c = r.cycle(refused)
		return c.node != ""
	})
	if c.status.IsSuccess() || c.status.IsWait() {
		t.Fatalf("%v, want that the other plugin refuses %s", c.status, c.node)
	}
	statuses := framework.NewNodeToStatus(map[string]*fwk.Status{c.node: c.status}, fwk.NewStatus(fwk.Unschedulable))
	r.fw.RunPostFilterPlugins(t.Context(), c.state, refused, statuses)
	if diff := cmp.Diff(want, r.held()); diff != "" || len(want) != 3 {
		t.Errorf("held before and after the refusal (-before,+after)\n%s", diff)
	}
	testkit.Soon(t, "the gang is placed when nobody refuses it", func() bool {
		return slices.ContainsFunc(gang, func(pod *v1.Pod) bool { return r.cycle(pod).status.IsWait() })
	})
	if got := len(r.held()); got != 3 {
		t.Errorf("held %v, want a place for each member once", r.held())
	}
}

// TestPreemptionOfBusyPod: a victim whose status others write all the time, so that the scheduler's own
// write of it gets conflicts, is evicted all the same.
func TestPreemptionOfBusyPod(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 1)
	r.client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "status" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(v1.Resource("pods"), "a", errors.New("the object has been modified"))
	})
	r.place(r.create(gpuPod("a", 8).Node("node-0-0").Obj()))
	gang := r.gangOf("gang", 1, 8, 10)
	r.known(gang[0])
	if why, want := r.failing(gang[0]), "waits for default/a to end"; !strings.Contains(why, want) {
		t.Errorf("%q, want %q", why, want)
	}
	testkit.Soon(t, "the victim is evicted", func() bool { return slices.Equal(r.evicted(), []string{"a"}) })
}

// goesOnAfter checks that the gang's places are held, no other pod is evicted while the victims leave, and
// then all members are placed.
func (e *testEnv) goesOnAfter(gang []*v1.Pod) {
	e.t.Helper()
	want := []string{"default/gang-0 awaiting", "default/gang-1 awaiting", "default/gang-2 awaiting"}
	if diff := cmp.Diff(want, e.held()); diff != "" {
		e.t.Errorf("held (-want,+got)\n%s", diff)
	}
	before := e.evicted()
	testkit.Soon(e.t, "the gang is tried again while its victims leave", func() bool {
		return strings.Contains(e.failing(gang[0]), "evicted for this gang")
	})
	if diff := cmp.Diff(before, e.evicted()); diff != "" {
		e.t.Errorf("evicted while victims leave (-before,+after)\n%s", diff)
	}
	e.leave()
	testkit.Soon(e.t, "the gang is placed", func() bool { return e.cycle(gang[0]).status.IsWait() })
	for _, pod := range gang[1:] {
		if c := e.cycle(pod); !c.status.IsWait() {
			e.t.Errorf("pod %s: %v, want to wait", pod.Name, c.status)
		}
	}
	for _, pod := range gang {
		if status := e.fw.WaitOnPermit(e.t.Context(), pod); !status.IsSuccess() {
			e.t.Errorf("pod %s is not let through: %v", pod.Name, status)
		}
	}
}

// evicted returns the pods whose deletion was requested.
func (e *testEnv) evicted() (names []string) {
	for _, action := range e.client.Actions() {
		if d, ok := action.(clienttesting.DeleteAction); ok && d.GetResource().Resource == "pods" {
			names = append(names, d.GetName())
		}
	}
	slices.Sort(names)
	return names
}

// budget protects the pods with these labels, and waits until that is known.
func (e *testEnv) budget(labels map[string]string) {
	e.t.Helper()
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "kept", Namespace: "default"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	if _, err := e.client.PolicyV1().PodDisruptionBudgets("default").Create(e.t.Context(), pdb, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	testkit.Soon(e.t, "the budget is known", func() bool {
		got, err := e.fw.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister().PodDisruptionBudgets("default").Get("kept")
		return err == nil && got != nil
	})
}

// TestWaitingGangYield: a waiting gang yields as a whole. Two of three members wait at Permit when a gang
// of a higher priority comes. No pod is evicted.
func TestWaitingGangYield(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 3)
	low := r.gang("low", 3, 8, nil)
	r.known(low[0])
	first, second := r.cycle(low[0]), r.cycle(low[1])
	if !first.status.IsWait() || !second.status.IsWait() {
		t.Fatalf("%v and %v, want both to wait", first.status, second.status)
	}
	high := r.gangOf("high", 2, 8, 10)
	r.known(high[0])
	if why, want := r.failing(high[0]), "takes the places that were held for gang default/low"; !strings.Contains(why, want) {
		t.Errorf("%q, want %q", why, want)
	}
	for i, c := range []*cycle{first, second} {
		if status := r.fw.WaitOnPermit(t.Context(), low[i]); status.IsSuccess() || !strings.Contains(status.Message(), "gang default/high, which has a higher priority") {
			t.Errorf("pod %s: %v, want to be told who took its place", low[i].Name, status)
		}
		r.fw.RunReservePluginsUnreserve(t.Context(), c.state, low[i], c.node)
	}
	if diff := cmp.Diff([]string{"default/high-0 awaiting", "default/high-1 awaiting"}, r.held()); diff != "" {
		t.Errorf("held (-want,+got)\n%s", diff)
	}
	testkit.Soon(t, "the gang of a higher priority is let through", func() bool {
		c := r.cycle(high[0])
		return c.status.IsWait()
	})
}

// TestEqualPriorityGang: a gang waits for another one of the same priority, which does not yield.
func TestEqualPriorityGang(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 3)
	low := r.gangOf("low", 3, 8, 10)
	r.known(low[0])
	if c := r.cycle(low[0]); !c.status.IsWait() {
		t.Fatalf("%v, want to wait", c.status)
	}
	other := r.gangOf("other", 2, 8, 10)
	r.known(other[0])
	if why, want := r.failing(other[0]), "no pod of a lower priority can go"; !strings.Contains(why, want) {
		t.Errorf("%q, want %q", why, want)
	}
	if got := len(r.held()); got != 3 {
		t.Errorf("held: %v", r.held())
	}
}

// TestNeverPreemptingGang: a gang whose pods must not preempt waits.
func TestNeverPreemptingGang(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 3)
	low := r.gang("low", 3, 8, nil)
	r.known(low[0])
	if c := r.cycle(low[0]); !c.status.IsWait() {
		t.Fatalf("%v, want to wait", c.status)
	}
	never := r.gangOf("never", 2, 8, 10, func(pod *v1.Pod) { pod.Spec.PreemptionPolicy = ptr.To(v1.PreemptNever) })
	r.known(never[0])
	if why, want := r.failing(never[0]), "preemptionPolicy=Never"; !strings.Contains(why, want) {
		t.Errorf("%q, want %q", why, want)
	}
	if got := len(r.held()); got != 3 {
		t.Errorf("held: %v", r.held())
	}
}

// TestSurplusYield: a gang gives up members above its minimum: of four members two are the minimum.
func TestSurplusYield(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 4)
	for i := range 4 {
		r.place(r.create(member("low", 2, i, 8).Node(fmt.Sprintf("node-0-%d", i)).Obj()))
	}
	high := r.gangOf("high", 1, 8, 10)
	r.known(high[0])
	if why, want := r.failing(high[0]), "waits for default/low-3 to end"; !strings.Contains(why, want) {
		t.Errorf("%q, want %q", why, want)
	}
	testkit.Soon(t, "the last one is evicted", func() bool { return len(r.evicted()) > 0 })
	r.leave()
	testkit.Soon(t, "the gang is placed", func() bool { return r.cycle(high[0]).status.IsWait() })
	if diff := cmp.Diff([]string{"low-3"}, r.evicted()); diff != "" {
		t.Errorf("evicted (-want,+got)\n%s", diff)
	}
}

// fails runs a whole cycle of a member that finds no room, and passes the result to the scheduling queue
// as upstream does.
func (e *testEnv) fails(pod *v1.Pod) {
	e.t.Helper()
	c := e.cycle(pod)
	result, status := e.fw.RunPostFilterPlugins(e.t.Context(), c.state, pod, nil)
	if status.IsSuccess() {
		e.t.Fatalf("pod %s: PostFilter succeeds, want it to end the chain", pod.Name)
	}
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		e.t.Fatal(err)
	}
	var nominating *fwk.NominatingInfo
	if result != nil {
		nominating = result.NominatingInfo
	}
	e.fw.AddNominatedPod(klog.Background(), info, nominating)
}

// TestPreemptorNomination: while its victims leave, every member is nominated, so that no other pod takes
// CPU, memory and ports of a held place: also the one that looked for victims, at each of its cycles. When
// the places are no longer held, the nomination is removed at the API server.
func TestPreemptorNomination(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 2)
	for i := range 2 {
		r.place(r.create(gpuPod(fmt.Sprint("low-", i), 8).Node(fmt.Sprint("node-0-", i)).Obj()))
	}
	gang := r.gangOf("gang", 2, 8, 10)
	r.known(gang[0])
	want := []string{"gang-0", "gang-1"}
	for _, when := range []string{"after the cycle that finds victims", "after one more while they leave"} {
		r.fails(gang[0])
		if diff := cmp.Diff(want, r.nominated()); diff != "" {
			t.Errorf("%s (-want,+got)\n%s", when, diff)
		}
		testkit.Soon(t, "the gang may be tried again", func() bool { return r.cycle(gang[0]).status.Code() == fwk.UnschedulableAndUnresolvable })
	}
	written := gang[0].DeepCopy() // as upstream writes it
	written.Status.NominatedNodeName = "node-0-0"
	if _, err := r.client.CoreV1().Pods("default").UpdateStatus(t.Context(), written, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.client.CoreV1().Pods("default").Delete(t.Context(), gang[1].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Soon(t, "nobody is nominated any more, here and at the API server", func() bool {
		pod, err := r.client.CoreV1().Pods("default").Get(t.Context(), gang[0].Name, metav1.GetOptions{})
		return err == nil && pod.Status.NominatedNodeName == "" && len(r.nominated()) == 0
	})
}

// claims returns a gang of two that waits for its victims, which have two nodes.
func claims(t *testing.T) (r *testEnv, gang []*v1.Pod) {
	t.Helper()
	r = newTestEnv(t, 2)
	for i := range 2 {
		r.place(r.create(gpuPod(fmt.Sprint("low-", i), 8).Node(fmt.Sprint("node-0-", i)).Obj()))
	}
	gang = r.gangOf("gang", 2, 8, 10)
	r.known(gang[0])
	r.fails(gang[0])
	if diff := cmp.Diff([]string{"gang-0", "gang-1"}, r.nominated()); diff != "" {
		t.Fatalf("nominated while victims leave (-want,+got)\n%s", diff)
	}
	return r, gang
}

// TestLateNomination: a nomination does not outlive its place, whenever the framework writes it.
func TestLateNomination(t *testing.T) {
	t.Parallel()
	write := func(r *testEnv, pod *v1.Pod) { // as upstream does, after the cycle
		written := pod.DeepCopy()
		written.Status.NominatedNodeName = "node-0-0"
		if _, err := r.client.CoreV1().Pods("default").UpdateStatus(r.t.Context(), written, metav1.UpdateOptions{}); err != nil {
			r.t.Fatal(err)
		}
	}
	end := func(r *testEnv, gang []*v1.Pod) {
		if err := r.client.CoreV1().Pods("default").Delete(r.t.Context(), gang[1].Name, metav1.DeleteOptions{}); err != nil {
			r.t.Fatal(err)
		}
		testkit.Soon(r.t, "nothing is held", func() bool {
			r.state.Allocations.Sweep(r.snapshot.NodeInfos()) // as each cycle does: of a pod that is gone it stays until then
			return len(r.held()) == 0
		})
	}
	tests := map[string]func(r *testEnv, gang []*v1.Pod){
		"it is written after the place has ended": func(r *testEnv, gang []*v1.Pod) {
			end(r, gang)
			time.Sleep(100 * time.Millisecond) // so that a removal only at the end is over
			write(r, gang[0])
		},
		"the gang is planned, and its places are not held": func(r *testEnv, gang []*v1.Pod) {
			write(r, gang[0])
			testkit.Soon(r.t, "the victims are evicted", func() bool { return len(r.evicted()) == 2 })
			r.leave()
			state := framework.NewCycleState()
			testkit.Soon(r.t, "the gang is planned", func() bool {
				_, status, _ := r.fw.RunPreFilterPlugins(r.t.Context(), state, gang[0])
				return status.IsSuccess()
			})
		},
	}
	for name, do := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, gang := claims(t)
			do(r, gang)
			testkit.Soon(t, "the API server has no nomination", func() bool {
				pod, err := r.client.CoreV1().Pods("default").Get(t.Context(), gang[0].Name, metav1.GetOptions{})
				return err == nil && pod.Status.NominatedNodeName == ""
			})
		})
	}
}

// TestNominationsHeldOn: another plugin refuses the plan of a gang for which pods were evicted. Its places are held
// until it has another plan, and all members are nominated for them.
func TestNominationsHeldOn(t *testing.T) {
	t.Parallel()
	r, gang := claims(t)
	testkit.Soon(t, "the victims are evicted", func() bool { return len(r.evicted()) == 2 })
	r.leave()
	refuses := gang[0].DeepCopy()
	refuses.Labels = map[string]string{refusesLabel: "node-0-"}
	var c *cycle
	testkit.Soon(t, "the gang is planned", func() bool {
		c = r.cycle(refuses)
		return c.node != ""
	})
	result, _ := r.fw.RunPostFilterPlugins(t.Context(), c.state, refuses, framework.NewNodeToStatus(map[string]*fwk.Status{c.node: c.status}, nil))
	if result == nil || result.NominatedNodeName != c.node {
		t.Errorf("the member whose node is refused is nominated for %+v, want %s", result, c.node)
	}
	if got := r.nominated(); !slices.Contains(got, "gang-1") {
		t.Errorf("nominated while places are held: %v, want gang-1 as well", got)
	}
}

// TestSinglePodAndGang: for a pod that wants a node of a gang the whole gang is evicted, unless one member
// has a priority that is not lower.
func TestSinglePodAndGang(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		priorities []int32 // of the gang's members, each on a node
		surplus    int
		gpus       int
		cpu        string
		want       []string
	}{
		"the gang goes whole":                                  {priorities: []int32{0, 0, 0}, gpus: 8, want: []string{"low-0", "low-1", "low-2"}},
		"for a pod without GPUs, too":                          {priorities: []int32{0, 0, 0}, cpu: "79", want: []string{"low-0", "low-1", "low-2"}},
		"a gang with a member that matters more stays":         {priorities: []int32{0, 0, 20}, gpus: 8},
		"the same for a pod without GPUs":                      {priorities: []int32{0, 0, 20}, cpu: "79"},
		"of one above its minimum the last member goes, alone": {priorities: []int32{0, 0, 0}, surplus: 1, gpus: 8, want: []string{"low-2"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestEnv(t, len(tc.priorities))
			for i, priority := range tc.priorities {
				pod := member("low", len(tc.priorities)-tc.surplus, i, 8).Priority(priority).Node(fmt.Sprintf("node-0-%d", i)).CPU("40").Obj()
				r.place(r.create(pod))
			}
			single := gpuPod("single", tc.gpus).Priority(10)
			if tc.cpu != "" {
				single.CPU(tc.cpu)
			}
			pod := r.create(single.Obj())
			testkit.Soon(t, "the informer has the pod", func() bool {
				_, err := r.factory.Core().V1().Pods().Lister().Pods("default").Get(pod.Name)
				return err == nil
			})
			testkit.Soon(t, "the gang is known", func() bool {
				gangs := r.state.Diagnosis.Diagnose("").Gangs
				return len(gangs) == 1 && gangs[0].Pods == len(tc.priorities)
			})
			r.refusedSingle(pod)
			testkit.Soon(t, "the victims are evicted", func() bool { return len(r.evicted()) >= len(tc.want) })
			if diff := cmp.Diff(tc.want, r.evicted()); diff != "" {
				t.Errorf("evicted (-want,+got)\n%s", diff)
			}
		})
	}
}

// refusedSingle runs a whole cycle of a pod in no gang for which no node has room, and returns the nodes'
// statuses.
func (e *testEnv) refusedSingle(pod *v1.Pod) fwk.NodeToStatusReader {
	e.t.Helper()
	state := framework.NewCycleState()
	if _, status, _ := e.fw.RunPreFilterPlugins(e.t.Context(), state, pod); !status.IsSuccess() {
		e.t.Fatalf("pod %s: PreFilter: %v", pod.Name, status)
	}
	statuses := framework.NewDefaultNodeToStatus()
	for _, node := range e.nodes {
		info, err := e.snapshot.Get(node.Name)
		if err != nil {
			e.t.Fatal(err)
		}
		status := e.fw.RunFilterPlugins(e.t.Context(), state, pod, info)
		if status.IsSuccess() {
			e.t.Fatalf("pod %s fits node %s", pod.Name, node.Name)
		}
		statuses.Set(node.Name, status)
	}
	e.fw.RunPostFilterPlugins(e.t.Context(), state, pod, statuses)
	return statuses
}
