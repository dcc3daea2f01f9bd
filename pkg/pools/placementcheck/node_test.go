// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestApartPodSets: pods that keep apart do so too if they are of two PodSets of one job.
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
