// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// keep keeps four GPUs of node-0-1 for a gang of a priority that has waited for long.
func (e *testEnv) keep(priority int32) {
	gang := gangrequest.Key{Source: gangrequest.SourceAnnotation, Namespace: "default", Name: "waits"}
	e.state.PreSelector.Keep(map[string][]*candidates.Kept{"node-0-1": {
		candidates.NewKept(gang, candidates.Kept{Priority: priority, Made: time.Now(), Resource: gpuResource, Count: 4}, "which has waited for long"),
	}})
}

// TestKeptDevices: four GPUs of a node are kept for a gang. Others may use the four beside them.
func TestKeptDevices(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 2)
	for i := range 2 {
		r.place(r.create(member("runs", 2, i, 1).Node("node-0-0").Obj()))
	}
	r.keep(0)
	younger := func(name string, gpus int) *schedtest.PodWrapper {
		return gpuPod(name, gpus).Created(time.Now().Add(time.Hour))
	}

	both := []string{"node-0-0", "node-0-1"}
	r.wantNodes("a pod that fits beside it", younger("beside", 4).Obj(), both, "")
	r.wantNodes("one with more GPUs", younger("more", 5).Obj(), both[:1], "nvidia.com/gpu of the node is kept for gang default/waits")
	r.wantNodes("one of higher priority", younger("important", 5).Priority(1).Obj(), both, "")
	r.wantNodes("an older one", gpuPod("older", 5).Obj(), both, "")
	testkit.Soon(t, "the gang that runs is known", func() bool {
		return len(r.listed(younger("asks", 1).Annotation(gangrequest.NearKey, "runs").Obj())) > 0
	})
	r.wantNodes("one with more GPUs that wants to be near", younger("near", 5).Annotation(gangrequest.NearKey, "runs").Obj(), both[:1],
		"kept for gang default/waits")

	other := r.create(member("other", 1, 0, 8).Created(time.Now()).Obj())
	r.known(other)
	if c := r.cycle(other); c.node != "" {
		t.Errorf("another gang is planned on %s", c.node)
	}
	r.state.PreSelector.Keep(nil)
	testkit.Soon(t, "the other gang is planned there", func() bool { return r.cycle(other).node == "node-0-1" })
}

// keepsFour keeps four GPUs of node-0-1 for a gang of priority 5. A pod of priority 9 has node-0-0.
func keepsFour(t *testing.T) *testEnv {
	t.Helper()
	r := newTestEnv(t, 2)
	r.place(r.create(gpuPod("fills", 8).Priority(9).Node("node-0-0").Obj()))
	r.keep(5)
	return r
}

// TestReservedBesideKept: devices that a gang holds beside a kept place are not free for others, before
// the scheduler's snapshot shows them.
func TestReservedBesideKept(t *testing.T) {
	t.Parallel()
	r := keepsFour(t)
	later := time.Now().Add(time.Hour)
	first, second := r.gangIn("default", "first", 2, 2, later), r.gangIn("default", "second", 2, 2, later)
	r.known(first[0])
	r.known(second[0])
	if c := r.cycle(first[0]); !c.status.IsWait() {
		t.Fatalf("the first gang has no places beside the kept one: %v", c.status)
	}
	if c := r.cycle(second[0]); c.node != "" {
		t.Errorf("a second gang is planned on %s, where one has 4 GPUs and 4 are kept", c.node)
	}
	pod := gpuPod("important", 4).Priority(3).Created(later).Obj() // than the first gang, whose nominations do not bind it
	if got := r.keptOut(t, pod); got["node-0-1"] == "" {
		t.Errorf("a pod with 4 GPUs is let in, where a gang has 4 and 4 are kept: kept off %v", got)
	}
}

// TestHeldKeptPlaces: the devices kept for a gang and those that it holds on the node are the same. Others
// have the rest until the gang's attempt ends, and no more then.
func TestHeldKeptPlaces(t *testing.T) {
	t.Parallel()
	r := newTestEnvWith(t, `{"drainAfter": "1s"}`, 1)
	r.place(r.create(gpuPod("before", 8).Namespace("others").Node("node-0-0").Obj()))
	waits := r.gang("waits", 2, 2, nil)
	r.known(waits[0])
	count := func() (n int64) {
		for _, k := range r.state.PreSelector.Closed().Kept()["node-0-0"] {
			n += k.Count
		}
		return n
	}
	testkit.Soon(t, "places are kept for the gang", func() bool {
		r.cycle(waits[0])
		return count() == 4
	})
	if err := r.client.CoreV1().Pods("others").Delete(t.Context(), "before", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.leave()
	var c *cycle
	testkit.Soon(t, "the gang holds its places", func() bool {
		c = r.cycle(waits[0])
		return c.status.IsWait()
	})
	assumed := waits[0].DeepCopy()
	assumed.Spec.NodeName = "node-0-0"
	r.place(assumed)
	later := time.Now().Add(time.Hour)
	younger := r.gangIn("others", "younger", 2, 2, later)
	r.known(younger[0])
	if got := r.keptOut(t, gpuPod("beside", 4).Created(later).Obj()); len(got) > 0 {
		t.Errorf("a pod is kept off the GPUs beside those that the gang holds: %v", got)
	}
	if got := r.keptOut(t, gpuPod("more", 5).Created(later).Obj()); len(got) > 0 {
		t.Errorf("a pod is told that GPUs are kept which the gang holds: %v", got)
	}
	if c := r.cycle(younger[0]); !c.status.IsWait() {
		t.Errorf("a younger gang is kept off the GPUs beside those that the gang holds: %v", c.status)
	}
	r.fw.RejectWaitingPod(waits[0].UID)
	r.fw.WaitOnPermit(t.Context(), waits[0])
	r.fw.RunReservePluginsUnreserve(t.Context(), c.state, waits[0], c.node)
	if got := count(); got != 4 {
		t.Errorf("%d GPUs are kept once the gang holds none, want 4", got)
	}
}

// TestPreemptionBesideKept: a pod evicts others for devices of a node that are not kept, and none for
// those that are.
func TestPreemptionBesideKept(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		gpus int
		want []string
		code fwk.Code
	}{
		"there is room beside the kept place once others are gone": {4, []string{"low"}, fwk.Unschedulable},
		"there is none": {5, nil, fwk.UnschedulableAndUnresolvable},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := keepsFour(t)
			r.place(r.create(gpuPod("low", 4).Node("node-0-1").Obj()))
			pod := r.create(gpuPod("pod", tc.gpus).Priority(3).Created(time.Now().Add(time.Hour)).Obj())
			testkit.Soon(t, "the informer has the pod", func() bool {
				_, err := r.factory.Core().V1().Pods().Lister().Pods("default").Get(pod.Name)
				return err == nil
			})
			if statuses := r.refusedSingle(pod); statuses.Get("node-0-1").Code() != tc.code {
				t.Errorf("the node with a kept place says %v, want code %v", statuses.Get("node-0-1"), tc.code)
			}
			testkit.Soon(t, "the victims are evicted", func() bool { return len(r.evicted()) >= len(tc.want) })
			if diff := cmp.Diff(tc.want, r.evicted()); diff != "" {
				t.Errorf("evicted (-want,+got)\n%s", diff)
			}
		})
	}
}
