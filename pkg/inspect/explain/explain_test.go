// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// TestWorkloadNamespace: only a Workload of the own namespace counts. Another namespace has a
// Workload of the same name, or one that claims the pod as its owner. It comes first in the list,
// and nothing of it may be said.
func TestWorkloadNamespace(t *testing.T) {
	for name, tc := range map[string]struct {
		foreign metav1.ObjectMeta
		own     bool
		want    string // in reason and evidence
	}{
		"one of the same name, and the own": {
			foreign: metav1.ObjectMeta{Namespace: "rival", Name: "pod-asks"}, own: true, want: "Workload team/pod-asks",
		},
		"one of the same name alone": {
			foreign: metav1.ObjectMeta{Namespace: "rival", Name: "pod-asks"}, want: "it has no label kueue.x-k8s.io/queue-name",
		},
		"one that names the pod as its owner": {
			foreign: metav1.ObjectMeta{Namespace: "rival", Name: "other", OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "asks", UID: "uid-asks"}}},
			want:    "it has no label kueue.x-k8s.io/queue-name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil)
			w.Workloads = append(w.Workloads, kueue.Workload{ObjectMeta: tc.foreign, Spec: kueue.WorkloadSpec{QueueName: "secret"}})
			if tc.own {
				w.quota(t)
			}
			p := pod("asks", 4).Annotation(kueue.AnnotationWorkload, "pod-asks").Obj()
			p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: kueue.GateAdmission}}
			w.waits(p)
			e, err := Pod(w.World, "team", "asks")
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Join(append([]string{e.Reason}, e.Evidence...), "; ")
			if !strings.Contains(said, tc.want) || strings.Contains(said, "rival") || strings.Contains(said, "secret") {
				t.Errorf("said is %q, want %q and nothing of the other namespace", said, tc.want)
			}
		})
	}
}

// TestNoNodeGPUTopologies: after nvtopo was taken out, a pod that waits is told so, and not only that each node
// lacks a graph.
func TestNoNodeGPUTopologies(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange              func(w *testEnv)
		want                 Cause
		wantEvidence, wantNo string
	}{
		"the definitions are gone": {
			func(w *testEnv) { w.Topologies, w.NoDefinition = nil, true },
			causeOf(placement.NoDefinition), "its definition is not installed", "nvtopo uninstall",
		},
		"the objects are gone": {
			func(w *testEnv) { w.Topologies = nil },
			causeOf(placement.NoGraph), "nvtopo was taken out by nvtopo uninstall", "definition",
		},
		"one node's is not there": {
			func(w *testEnv) { w.Topologies = w.Topologies[1:] },
			causeOf(placement.NoGraph), "node(s) published no GPU topology", "uninstall",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			w.node(t, "n0", cube, nil).node(t, "n1", quad, nil)
			tc.arrange(w)
			w.waits(pod("asks", 8).Obj())
			e, err := Pod(w.World, "team", "asks")
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Join(append([]string{e.Reason}, e.Evidence...), "; ")
			if e.Cause != tc.want || !strings.Contains(said, tc.wantEvidence) || strings.Contains(said, tc.wantNo) {
				t.Errorf("%s: %s; want %s with %q and without %q", e.Cause, said, tc.want, tc.wantEvidence, tc.wantNo)
			}
		})
	}
}
