// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
)

// TestCommandsOfMoves: the nodes that pods leave are cordoned until the last replacement is placed.
func TestCommandsOfMoves(t *testing.T) {
	move := func(namespace, name, from, to string) Move {
		return Move{Namespace: namespace, Name: name, From: from, To: to, Replacement: "pod -l pod-template-hash=h"}
	}
	const inX, inY = "kubectl wait -n x --for=condition=PodScheduled pod -l pod-template-hash=h --timeout=5m", "kubectl wait -n y --for=condition=PodScheduled pod -l pod-template-hash=h --timeout=5m"
	tests := map[string]struct {
		moves []Move
		want  []string
	}{
		"no move": {},
		"pods of two nodes, one of which comes to the other node meanwhile": {
			moves: []Move{move("x", "a", "n1", "n3"), move("y", "b", "n1", "n3"), move("x", "c", "n1", "n2"), move("x", "d", "n2", "n3")},
			want: []string{
				"kubectl cordon n1", "kubectl cordon n2", "kubectl delete pod -n x a", "kubectl delete pod -n y b",
				inX, inY,
				"kubectl uncordon n2", "kubectl delete pod -n x c",
				inX,
				"kubectl cordon n2", "kubectl delete pod -n x d",
				inX,
				"kubectl uncordon n1", "kubectl uncordon n2",
			},
		},
		"only a pod that gets other GPUs of its node": {
			moves: []Move{move("x", "a", "n1", "n1")},
			want:  []string{"kubectl delete pod -n x a", inX},
		},
		"a pod that gets other GPUs of its node, and one that leaves it": {
			moves: []Move{move("x", "a", "n1", "n1"), move("x", "b", "n1", "n2")},
			want: []string{
				"kubectl delete pod -n x a", inX,
				"kubectl cordon n1", "kubectl delete pod -n x b",
				inX, "kubectl uncordon n1",
			},
		},
		"two pods of one controller, which are waited for once": {
			moves: []Move{move("x", "a", "n1", "n2"), move("x", "b", "n1", "n3")},
			want:  []string{"kubectl cordon n1", "kubectl delete pod -n x a", "kubectl delete pod -n x b", inX, "kubectl uncordon n1"},
		},
		"a pod of a StatefulSet, which has its name again": {
			moves: []Move{{Namespace: "x", Name: "a-0", From: "n1", To: "n2", Replacement: "pod/a-0"}},
			want: []string{
				"kubectl cordon n1", "kubectl delete pod -n x a-0", "kubectl wait -n x --for=create pod/a-0 --timeout=5m",
				"kubectl wait -n x --for=condition=PodScheduled pod/a-0 --timeout=5m", "kubectl uncordon n1",
			},
		},
		"a name that a shell would read as more": {moves: []Move{move("x", "a", "n1", "n2"), move("x", "b; reboot", "n1", "n2")}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, commandsOf(tc.moves)); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}

// TestReplacement: kubectl finds the replacement of a pod by what its controller gives to all its pods.
func TestReplacement(t *testing.T) {
	tests := map[string]struct {
		kind   string
		labels map[string]string
		want   string
	}{
		"of a Deployment":                         {"ReplicaSet", map[string]string{"app": "a", "pod-template-hash": "5d4f"}, "pod -l pod-template-hash=5d4f"},
		"of a Job":                                {"Job", map[string]string{"batch.kubernetes.io/job-name": "train"}, "pod -l batch.kubernetes.io/job-name=train"},
		"of a StatefulSet":                        {"StatefulSet", map[string]string{"app": "a"}, "pod/p"},
		"of a ReplicaSet alone":                   {"ReplicaSet", map[string]string{"app": "a"}, "pod --all"},
		"of a controller of others":               {"TrainJob", nil, "pod --all"},
		"a label that a shell would read as more": {"ReplicaSet", map[string]string{"pod-template-hash": "h; reboot"}, "pod --all"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := testobj.Pod("p").Obj()
			pod.Labels, pod.OwnerReferences = tc.labels, []metav1.OwnerReference{{Kind: tc.kind, Name: "o", Controller: new(true)}}
			if got := replacementOf(pod); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
