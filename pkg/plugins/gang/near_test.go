// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestNearPods has a gang on two of three nodes of the first rack, and no free GPUs on the second of them.
// The gang's own usage does not matter here.
func TestNearPods(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 3, 2)
	for i, node := range []string{"node-0-0", "node-0-1"} {
		r.create(member("g", 2, i, 8).Node(node).Obj())
	}
	full := r.gang("full", 2, 8, map[string]string{gangrequest.RequiredKey: "rack"})
	r.known(full[0])
	if c := r.cycle(full[0]); !c.status.IsWait() || !strings.HasPrefix(c.node, "node-1-") {
		t.Fatalf("%v on %q", c.status, c.node)
	}
	near := func(name string, gpus int) *schedtest.PodWrapper {
		return gpuPod(name, gpus).Annotation(gangrequest.NearKey, "g")
	}
	rack := []string{"node-0-0", "node-0-1", "node-0-2"}
	testkit.Soon(t, "the gang's nodes are known", func() bool {
		return slices.Equal(r.listed(near("warm", 1).Obj()), rack)
	})
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		want []string
	}{
		"a pod with one GPU":  {near("one", 1).Obj(), rack},
		"a pod without GPUs":  {near("none", 0).Obj(), rack},
		"a node of the rack":  {near("there", 8).NodeSelector(map[string]string{v1.LabelHostname: "node-0-2"}).Obj(), []string{"node-0-2"}},
		"no room in the rack": {near("far", 1).NodeSelector(map[string]string{rackLabel: "rack-1"}).Obj(), nil},
		"near to nobody":      {near("lost", 1).Annotation(gangrequest.NearKey, "h").Obj(), nil},
	} {
		if diff := cmp.Diff(tc.want, r.listed(tc.pod)); diff != "" {
			t.Errorf("%s: nodes (-want,+got)\n%s", name, diff)
		}
	}
	r.wantFarNext(near("refused", 1).Obj())
}

// lateRetries is a clock by which a pod whose list was refused is back in the queue only when back is
// closed. See requeueDelay of the package candidates.
type lateRetries struct {
	clock.RealClock
	back chan time.Time
}

func (c lateRetries) After(d time.Duration) <-chan time.Time {
	if d == 10*time.Millisecond {
		return c.back
	}
	return c.RealClock.After(d)
}

// TestRefusedPodBackoff: a pod that all nodes refuse waits for its backoff: it was activated again while
// its cycle on all nodes was under way, so it came again at once after that, and looped: near nodes, all
// nodes, near nodes.
func TestRefusedPodBackoff(t *testing.T) {
	t.Parallel()
	clk := lateRetries{back: make(chan time.Time)}
	r := newTestEnvAt(t, clk, `{}`, 1, 1)
	r.create(member("g", 1, 0, 8).Node("node-0-0").Obj())
	refuse := func(name string) *v1.Pod {
		pod := r.create(gpuPod(name, 1).Annotation(gangrequest.NearKey, "g").Obj())
		testkit.Soon(t, "pod "+pod.Name+" is known", func() bool {
			_, err := r.factory.Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
			return err == nil && r.listed(pod) != nil
		})
		r.refuseList(pod)
		return pod
	}
	first := refuse("first")
	if got := r.listed(first); got != nil {
		t.Fatalf("the next cycle is limited to %v, want all nodes", got)
	}
	second := refuse("second") // its cycle on all nodes is still to come
	close(clk.back)
	testkit.Soon(t, "the second pod is activated again", func() bool { return r.awake.times(second.Name) == 2 })
	if got := r.awake.times(first.Name); got != 1 {
		t.Errorf("the pod whose cycle on all nodes has begun was activated %d times, want once", got)
	}
}

// listed are the nodes that PreFilter lists for a pod near a gang; nil are all.
func (e *testEnv) listed(pod *v1.Pod) []string {
	e.t.Helper()
	list, status, _ := e.fw.RunPreFilterPlugins(e.t.Context(), framework.NewCycleState(), pod)
	if !status.IsSuccess() {
		e.t.Fatalf("pod %s: PreFilter: %v", pod.Name, status)
	}
	if list.AllNodes() {
		return nil
	}
	return sets.List(list.NodeNames)
}

// wantFarNext has other plugins refuse all near nodes: the next cycle tries all.
func (e *testEnv) wantFarNext(pod *v1.Pod) {
	e.t.Helper()
	e.refuseList(pod)
	if !e.awake.has(pod.Name) {
		e.t.Error("the pod is not tried again at once")
	}
	if got := e.listed(pod); got != nil {
		e.t.Errorf("the next cycle is limited to %v, want all nodes", got)
	}
}

// refuseList has other plugins refuse all nodes that a pod's cycle is limited to.
func (e *testEnv) refuseList(pod *v1.Pod) {
	e.t.Helper()
	state := framework.NewCycleState()
	if list, _, _ := e.fw.RunPreFilterPlugins(e.t.Context(), state, pod); list.AllNodes() {
		e.t.Fatal("no list")
	}
	_, status := e.fw.RunPostFilterPlugins(e.t.Context(), state, pod, framework.NewNodeToStatus(map[string]*fwk.Status{}, fwk.NewStatus(fwk.Unschedulable)))
	if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "all nodes are tried next") {
		e.t.Errorf("PostFilter: %v", status)
	}
}
