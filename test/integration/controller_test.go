// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const controllerLease = "nvtopo-controller"

// repaired waits until a pod's annotations give its container these GPUs, and checks the other
// annotations.
func (n *nodeUnderTest) repaired(t *testing.T, name string, gpus []string) *v1.Pod {
	t.Helper()
	want := slices.Sorted(slices.Values(gpus))
	var pod *v1.Pod
	testkit.Eventually(t, waitLimit, "the annotations of pod "+name+" are corrected", func(ctx context.Context) (bool, string) {
		var err error
		if pod, err = n.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		got := slices.Sorted(strings.SplitSeq(pod.Annotations[allocation.GPUIDsKey], ","))
		return slices.Equal(got, want), cmp.Diff(want, got)
	})
	choiceOf(t, pod, n.graph)
	return pod
}

// unchanged checks that pods' annotations do not change.
func (e *testEnv) unchanged(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	time.Sleep(2 * time.Second)
	for _, pod := range pods {
		if diff := cmp.Diff(pod.Annotations, e.get(t, pod.Name).Annotations); diff != "" {
			t.Errorf("pod %s was annotated (-before,+after):\n%s", pod.Name, diff)
		}
	}
}

func main1(ids []string) recordedPod { return recordedPod{"main": ids} }

// TestController lets the scheduler's controller, with the rights of the shipped accounts, correct
// annotations by a verifier's reports.
func TestController(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{AuditLog: true})
	l.install(t)
	n := l.nodeWithAgent(t, "n1", "dgx1-v100")
	l.startScheduler(t, profile{name: preBindProfile, write: "PreBind"}, profile{name: bindingProfile, write: "Binding"})
	for i, p := range bothWrites {
		t.Run("swapped pods "+p, func(t *testing.T) { n.testSwapped(t, p) })
		t.Run("reassigned pod "+p, func(t *testing.T) { n.testReassigned(t, p, i) })
	}
	t.Run("containers of one pod", n.testContainers)
	t.Run("CPUs", n.testCPUs)
	t.Run("a demand is lost", n.testRequirementLost)
	t.Run("half a record", n.testHalfRecorded)
	t.Run("a pod made anew", n.testSuccessor)
	t.Run("foreign pods and forged records", n.testForged)
	t.Run("an agent that is not heard of", n.testSilentAgent)
}

// two creates two pods of two GPUs each and returns them with their choices.
func (n *nodeUnderTest) two(t *testing.T, profile string) (a, b *v1.Pod) {
	t.Helper()
	names := []string{n.freshName("a"), n.freshName("b")}
	for _, name := range names {
		n.create(t, gpuPod(name, profile, 2).NodeSelector(host(n.name)).Obj())
	}
	return n.bound(t, names[0]), n.bound(t, names[1])
}

// clean removes pods, and kubelet's record of them.
func (n *nodeUnderTest) clean(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, p := range pods {
		n.gave(t, map[types.UID]recordedPod{p.UID: nil})
		n.remove(t, p.Name)
	}
	n.published(t)
}

func (n *nodeUnderTest) testSwapped(t *testing.T, profile string) {
	t.Helper()
	a, b := n.two(t, profile)
	wantA, wantB := n.chosen(t, a), n.chosen(t, b)
	start := time.Now()
	n.gave(t, map[types.UID]recordedPod{a.UID: main1(wantB), b.UID: main1(wantA)})
	n.repaired(t, a.Name, wantB)
	n.repaired(t, b.Name, wantA)
	t.Logf("repaired within %v of kubelet's record", time.Since(start))
	n.published(t, a.Name+" main confirmed", b.Name+" main confirmed")
	n.keepsPromises(t, 2, preBindProfile, bindingProfile)
	for _, p := range []*v1.Pod{a, b} {
		n.said(t, p, "GPUsSwapped")
		n.said(t, p, "AllocationCorrected")
		if note := n.said(t, p, "GPUsChosen"); !strings.Contains(note, " of node "+n.name) || !strings.Contains(note, "GB/s") {
			t.Errorf("the event does not say what was chosen: %s", note)
		}
	}
	n.clean(t, a, b)
}

func (n *nodeUnderTest) testReassigned(t *testing.T, profile string, turn int) {
	t.Helper()
	a, b := n.two(t, profile)
	other := n.others(t, a, b)[2*turn : 2*turn+2]
	n.gave(t, map[types.UID]recordedPod{a.UID: main1(other), b.UID: main1(n.chosen(t, b))})
	n.repaired(t, a.Name, other)
	n.published(t, a.Name+" main confirmed", b.Name+" main confirmed")
	n.said(t, a, "GPUsReassigned")
	n.unchanged(t, b)
	// The scheduler uses the corrected annotation: the next pods get the six others.
	c := n.freshName("c")
	n.create(t, gpuPod(c, profile, 4).NodeSelector(host(n.name)).Obj())
	next := n.bound(t, c)
	for _, id := range n.chosen(t, next) {
		if slices.Contains(other, id) || slices.Contains(n.chosen(t, b), id) {
			t.Errorf("GPU %s was given to pod %s though another has it", id, c)
		}
	}
	n.remove(t, c)
	n.clean(t, a, b)
}

// others returns the GPUs that none of the pods has.
func (n *nodeUnderTest) others(t *testing.T, pods ...*v1.Pod) []string {
	t.Helper()
	var out []string
	for i := range n.graph.GPUs {
		id := n.graph.GPUs[i].UUID
		if !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return choiceOf(t, p, n.graph).set&(1<<i) != 0 }) {
			out = append(out, id)
		}
	}
	return out
}

func (n *nodeUnderTest) testContainers(t *testing.T) {
	pod := gpuPod(n.freshName("pod"), preBindProfile, 0).Containers(container("left", 2), container("right", 2)).NodeSelector(host(n.name)).Obj()
	pod.Spec.InitContainers = []v1.Container{sidecar("cache", 1), container("prepare", 2)}
	n.create(t, pod)
	pod = n.bound(t, pod.Name)
	was := choiceOf(t, pod, n.graph)
	gpus := map[string][]string{}
	for _, c := range was.Containers {
		gpus[c.Name] = c.GPUs
	}
	// kubelet passes on the init container's devices: here it had one of each.
	mixed := []string{gpus["left"][0], gpus["right"][0]}
	n.gave(t, map[types.UID]recordedPod{pod.UID: {
		"cache": gpus["cache"], "prepare": mixed, "left": mixed, "right": {gpus["left"][1], gpus["right"][1]},
	}})
	testkit.Eventually(t, waitLimit, "the annotations are corrected", func(context.Context) (bool, string) {
		got := n.get(t, pod.Name).Annotations[allocation.Key]
		return got != pod.Annotations[allocation.Key], got
	})
	is := choiceOf(t, n.get(t, pod.Name), n.graph)
	if is.set != was.set || is.containers["cache"] != was.containers["cache"] || is.containers["left"] == was.containers["left"] ||
		is.containers["left"]|is.containers["right"] != was.containers["left"]|was.containers["right"] {
		t.Errorf("containers %v became %v", was.containers, is.containers)
	}
	n.published(t, pod.Name+" cache confirmed", pod.Name+" prepare confirmed", pod.Name+" left confirmed", pod.Name+" right confirmed")
	n.clean(t, pod)
}

func (n *nodeUnderTest) testCPUs(t *testing.T) {
	a, b := n.two(t, preBindProfile)
	n.mu.Lock()
	n.cpus[a.UID] = "0-1,40-41"
	n.mu.Unlock()
	n.gave(t, map[types.UID]recordedPod{a.UID: main1(n.chosen(t, a)), b.UID: main1(n.chosen(t, b))})
	testkit.Eventually(t, waitLimit, "the cpuset is corrected", func(context.Context) (bool, string) {
		got := n.get(t, a.Name)
		var alloc allocation.Allocation
		if err := json.Unmarshal([]byte(got.Annotations[allocation.Key]), &alloc); err != nil {
			return false, err.Error()
		}
		return got.Annotations[allocation.CPUSetKey] == "0-1,40-41" && alloc.CPUSet == "0-1,40-41", got.Annotations[allocation.CPUSetKey]
	})
	if was, is := n.chosen(t, b), n.get(t, a.Name).Annotations[allocation.GPUIDsKey]; strings.Contains(is, was[0]) {
		t.Errorf("pod %s has %s", a.Name, is)
	}
	n.unchanged(t, b)
	n.clean(t, a, b)
}

func (n *nodeUnderTest) testRequirementLost(t *testing.T) {
	name := n.freshName("linked")
	n.create(t, gpuPod(name, preBindProfile, 2).Annotation(podrequest.MinLinkKey, "NV2").NodeSelector(host(n.name)).Obj())
	pod := n.bound(t, name)
	// GPUs 0 and 7 of this machine have no NVLink between them.
	n.gave(t, map[types.UID]recordedPod{pod.UID: main1(n.ids(0, 7))})
	n.repaired(t, name, n.ids(0, 7))
	if note := n.said(t, pod, "RequirementLost"); !strings.Contains(note, "link class") {
		t.Errorf("the event does not name the demand: %s", note)
	}
	// The scheduler did not choose them, so the checker notes it.
	n.keepsPromises(t, 1, preBindProfile, bindingProfile)
	if notes := check.Examine(n.look(t, nil)).Notes; !slices.ContainsFunc(notes, func(v check.Violation) bool { return v.Invariant == check.DegradedSince }) {
		t.Errorf("notes %v, want %s", notes, check.DegradedSince)
	}
	n.clean(t, pod)
}

// testHalfRecorded checks a record that kubelet writes container by container.
func (n *nodeUnderTest) testHalfRecorded(t *testing.T) {
	pod := gpuPod(n.freshName("pod"), preBindProfile, 0).Containers(container("left", 1), container("right", 1)).NodeSelector(host(n.name)).Obj()
	n.create(t, pod)
	pod = n.bound(t, pod.Name)
	c := choiceOf(t, pod, n.graph)
	left, right := c.Containers[0].GPUs, c.Containers[1].GPUs
	n.gave(t, map[types.UID]recordedPod{pod.UID: {"left": right}})
	n.published(t, pod.Name+" left reassigned")
	n.unchanged(t, pod)
	n.gave(t, map[types.UID]recordedPod{pod.UID: {"left": right, "right": left}})
	n.published(t, pod.Name+" left confirmed", pod.Name+" right confirmed")
	n.clean(t, pod)
}

// testSuccessor checks that kubelet's record of a deleted pod does not affect the next pod of its name.
func (n *nodeUnderTest) testSuccessor(t *testing.T) {
	a, b := n.two(t, preBindProfile)
	other := n.others(t, a, b)[:2]
	n.gave(t, map[types.UID]recordedPod{b.UID: main1(n.chosen(t, b))})
	n.remove(t, a.Name)
	n.create(t, gpuPod(a.Name, preBindProfile, 2).NodeSelector(host(n.name)).Obj())
	again := n.bound(t, a.Name)
	// The old one's record comes only now.
	n.gave(t, map[types.UID]recordedPod{a.UID: main1(other)})
	n.unchanged(t, again, b)
	n.gave(t, map[types.UID]recordedPod{a.UID: nil})
	n.clean(t, again, b)
}

func (n *nodeUnderTest) testForged(t *testing.T) {
	a, b := n.two(t, preBindProfile)
	foreign := n.freshName("foreign")
	n.create(t, gpuPod(foreign, "other", 1).Obj())
	f := n.bindTo(t, n.name, foreign)
	elsewhere := n.nodeWithAgent(t, n.freshName("node"), "dgx1-v100")
	e := n.freshName("elsewhere")
	n.create(t, gpuPod(e, preBindProfile, 2).NodeSelector(host(elsewhere.name)).Obj())
	pod := n.bound(t, e)
	n.stop() // or it would restore its record
	defer n.start(t)
	entry := func(uid types.UID, name string, gpus []string) v1alpha1.Allocation {
		return v1alpha1.Allocation{
			PodUID: uid, Namespace: metav1.NamespaceDefault, Pod: name, Container: "main", Resource: string(gpuResource),
			GPUs: gpus, State: v1alpha1.StateReassigned,
		}
	}
	n.forge(t, []v1alpha1.Allocation{
		entry("nobody", "nobody", n.ids(0)), entry("not-"+a.UID, a.Name, n.ids(6, 7)), // other pods
		entry(pod.UID, pod.Name, n.ids(4, 5)),   // on another node
		entry(f.UID, f.Name, n.ids(7)),          // without a choice
		entry(b.UID, b.Name, []string{"GPU-x"}), // that the node does not have
	})
	n.unchanged(t, a, b, f, pod)
	// Valid entries beside them are still used.
	other := n.others(t, a, b)[:2]
	n.forge(t, []v1alpha1.Allocation{entry("nobody", "nobody", n.ids(0)), entry(a.UID, a.Name, other), entry(b.UID, b.Name, []string{"GPU-x"})})
	n.repaired(t, a.Name, other)
	n.remove(t, a.Name, b.Name, foreign, e)
	for _, p := range []*v1.Pod{a, b, f, pod} {
		n.gave(t, map[types.UID]recordedPod{p.UID: nil})
	}
}

// forge writes status.allocations in place of the agent.
func (n *nodeUnderTest) forge(t *testing.T, list []v1alpha1.Allocation) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"status": map[string]any{"allocations": list}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = dynamic.NewForConfigOrDie(n.RESTConfig()).Resource(v1alpha1.GroupVersionResource).
		Patch(t.Context(), n.name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

func (n *nodeUnderTest) testSilentAgent(t *testing.T) {
	a, b := n.two(t, preBindProfile)
	wantA, wantB := n.chosen(t, a), n.chosen(t, b)
	n.stop()
	leases := n.client.CoordinationV1().Leases(systemNamespace)
	lease, err := leases.Get(t.Context(), "agent-"+n.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set := func(seconds int32) {
		if lease, err = leases.Get(t.Context(), lease.Name, metav1.GetOptions{}); err == nil {
			lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = new(metav1.NowMicro()), &seconds
			_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	set(1)
	time.Sleep(time.Second + settleTime)
	n.forge(t, []v1alpha1.Allocation{
		{PodUID: a.UID, Namespace: a.Namespace, Pod: a.Name, Container: "main", Resource: string(gpuResource), GPUs: wantB, State: v1alpha1.StateSwapped},
		{PodUID: b.UID, Namespace: b.Namespace, Pod: b.Name, Container: "main", Resource: string(gpuResource), GPUs: wantA, State: v1alpha1.StateSwapped},
	})
	n.unchanged(t, a, b)
	set(120)
	n.repaired(t, a.Name, wantB)
	n.repaired(t, b.Name, wantA)
}

// TestControllerFailover kills the process with the leading controller: the other's controller has to
// repair later differences.
func TestControllerFailover(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	n := l.nodeWithAgent(t, "n1", "dgx1-v100")
	holder := func() string {
		var lease *coordinationv1.Lease
		testkit.Eventually(t, waitLimit, "a controller leads", func(ctx context.Context) (bool, string) {
			var err error
			lease, err = l.client.CoordinationV1().Leases(systemNamespace).Get(ctx, controllerLease, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			return lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "", fmt.Sprintf("%+v", lease.Spec)
		})
		return *lease.Spec.HolderIdentity
	}
	first := l.startScheduler(t, profile{name: preBindProfile, write: "PreBind"})
	leader := holder()
	a, b := n.two(t, preBindProfile)
	wantA, wantB := n.chosen(t, a), n.chosen(t, b)
	l.startScheduler(t, profile{name: preBindProfile + "-2", write: "PreBind"})
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	n.gave(t, map[types.UID]recordedPod{a.UID: main1(wantB), b.UID: main1(wantA)})
	n.published(t, a.Name+" main swapped", b.Name+" main swapped")
	testkit.Eventually(t, waitLimit, "another controller leads", func(context.Context) (bool, string) {
		h := holder()
		return h != leader, h
	})
	n.repaired(t, a.Name, wantB)
	n.repaired(t, b.Name, wantA)
	n.published(t, a.Name+" main confirmed", b.Name+" main confirmed")
}
