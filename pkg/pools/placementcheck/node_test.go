// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// TestSinglePods: a pod that is in no gang is told to start where the scheduler takes it, according to
// the graph of a node or to the number of its GPUs, and nowhere else.
func TestSinglePods(t *testing.T) {
	asks := func(gpus int, cpu string, annotations map[string]string) *kueue.Workload {
		w := job("train", 1, gpus, annotations)
		w.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(cpu)
		return w
	}
	aligned := map[string]string{podrequest.NUMAAffinityKey: "required"}
	for name, tc := range map[string]struct {
		job  *kueue.Workload
		want Verdict
	}{
		"GPUs, and the node that has them free has no graph": {job: asks(8, "1", nil), want: Retry},
		"the same, of a pod that wants no topology": {
			job: asks(8, "1", map[string]string{podrequest.TopologyPolicyKey: "none"}), want: Ready,
		},
		"more GPUs than there are by number": {
			job: asks(9, "1", map[string]string{podrequest.TopologyPolicyKey: "none"}), want: Retry,
		},
		"no GPUs":               {job: asks(0, "60", nil), want: Ready},
		"CPUs of one NUMA node": {job: asks(0, "4", aligned), want: Ready},
		"more CPUs than all NUMA nodes have free": {job: asks(0, "60", aligned), want: Retry},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t)
			e.node("full", "hgx-a100-4", nil)
			e.pod("other", "full", nil, 0, 1, 2, 3)
			e.node("plain", "dgx-a100", nil)
			e.Topologies = e.Topologies[:1]
			if d := Decide(NewSnapshot(&e.World, NewGraphs()), tc.job); d.Verdict != tc.want {
				t.Errorf("%s: %q, want %s", d.Verdict, d.Message, tc.want)
			}
		})
	}
}

// TestApartPodSets: pods that must be on different nodes are so, too, if they are of two PodSets of one
// job.
func TestApartPodSets(t *testing.T) {
	e := newTestEnv(t)
	e.node("n", "dgx-a100", nil)
	w := job("train", 1, 1, gangOf("g", 2))
	w.Spec.PodSets[0].Template.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
	second, assigned := w.Spec.PodSets[0], w.Status.Admission.PodSetAssignments[0]
	second.Name, assigned.Name = "second", "second"
	w.Spec.PodSets, w.Status.Admission.PodSetAssignments = append(w.Spec.PodSets, second), append(w.Status.Admission.PodSetAssignments, assigned)
	if d := Decide(NewSnapshot(&e.World, NewGraphs()), w); d.Verdict != Retry {
		t.Errorf("%s: %q, want %s: one node has the port once", d.Verdict, d.Message, Retry)
	}
	e.node("other", "dgx-a100", nil)
	if d := Decide(NewSnapshot(&e.World, NewGraphs()), w); d.Verdict != Ready {
		t.Errorf("%s: %q on two nodes, want %s", d.Verdict, d.Message, Ready)
	}
}
