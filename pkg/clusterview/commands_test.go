// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCommandsOfMoves: the nodes that pods leave are cordoned until the last replacement is placed.
func TestCommandsOfMoves(t *testing.T) {
	move := func(namespace, name, from, to string) Move {
		return Move{Namespace: namespace, Name: name, From: from, To: to}
	}
	tests := map[string]struct {
		moves []Move
		want  []string
	}{
		"no move": {},
		"pods of two nodes, one of which comes to the other node meanwhile": {
			moves: []Move{move("x", "a", "n1", "n3"), move("y", "b", "n1", "n3"), move("x", "c", "n1", "n2"), move("x", "d", "n2", "n3")},
			want: []string{
				"kubectl cordon n1", "kubectl cordon n2", "kubectl delete pod -n x a", "kubectl delete pod -n y b",
				"# wait until the replacements are on other nodes than n1: kubectl get pods -A -o wide",
				"kubectl uncordon n2", "kubectl delete pod -n x c",
				"# wait until the replacements are on other nodes than n1: kubectl get pods -n x -o wide",
				"kubectl cordon n2", "kubectl delete pod -n x d",
				"# wait until the replacements are on other nodes than n2: kubectl get pods -n x -o wide",
				"kubectl uncordon n1", "kubectl uncordon n2",
			},
		},
		"only a pod that gets other GPUs of its node": {
			moves: []Move{move("x", "a", "n1", "n1")},
			want:  []string{"kubectl delete pod -n x a", "# wait for the replacements, which may go to another node than n1: kubectl get pods -n x -o wide"},
		},
		"a pod that gets other GPUs of its node, and one that leaves it": {
			moves: []Move{move("x", "a", "n1", "n1"), move("x", "b", "n1", "n2")},
			want: []string{
				"kubectl delete pod -n x a", "# wait for the replacements, which may go to another node than n1: kubectl get pods -n x -o wide",
				"kubectl cordon n1", "kubectl delete pod -n x b",
				"# wait until the replacements are on other nodes than n1: kubectl get pods -n x -o wide", "kubectl uncordon n1",
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
