// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestPlacedPods: of a pod that was just placed it is said how many nodes would have taken it, which come
// next and why, and why the others take no part; the pods that were placed after it hold nothing.
func TestPlacedPods(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for name, tc := range map[string]struct {
		cluster      func(t *testing.T, e *testEnv)
		placed       []string
		of           string
		wantCompared int
		wantBehind   []string
		wantNoPart   map[Cause]int
	}{
		"one node takes the pod, the others are full": {
			cluster: func(t *testing.T, e *testEnv) {
				t.Helper()
				e.node(t, "n0", cube, nil).node(t, "n1", cube, nil).node(t, "n2", cube, nil)
				e.holds(t, "other-1", "n1", all...)
				e.holds(t, "other-2", "n2", all...)
				e.holds(t, "p", "n0", 0, 3)
			},
			placed: []string{"p"}, of: "p", wantCompared: 1, wantNoPart: map[Cause]int{FewGPUs: 2},
		},
		"nodes with slower links come after it": {
			cluster: func(t *testing.T, e *testEnv) {
				t.Helper()
				e.node(t, "n0", "hgx-a100-8", nil).node(t, "n1", cube, nil)
				e.holds(t, "p", "n0", 0, 1)
			},
			placed: []string{"p"}, of: "p", wantCompared: 2,
			wantBehind: []string{"n1: GPUs 0,3, NV2, 50 GB/s of 50; an all-reduce takes 20 ms there, not 3.34 ms"},
		},
		"a scored node has so many points less": {
			cluster: func(t *testing.T, e *testEnv) {
				t.Helper()
				e.node(t, "n0", cube, nil).node(t, "n1", cube, nil)
				e.holds(t, "other", "n0", 1, 2)
				e.holds(t, "p", "n0", 0, 3)
			},
			placed: []string{"p"}, of: "p", wantCompared: 2,
			wantBehind: []string{"n1: GPUs 0,3, NV2, 50 GB/s of 50; score 70.00, 21.64 less"},
		},
		"between equal nodes the scheduler draws lots": {
			cluster: func(t *testing.T, e *testEnv) {
				t.Helper()
				e.node(t, "n0", cube, nil).node(t, "n1", cube, nil)
				e.holds(t, "p", "n1", 0, 3)
			},
			placed: []string{"p"}, of: "p", wantCompared: 2,
			wantBehind: []string{"n0: GPUs 0,3, NV2, 50 GB/s of 50; as good: the scheduler draws lots"},
		},
		"machines are left to larger pods": {
			cluster: func(t *testing.T, e *testEnv) {
				t.Helper()
				for i := range 4 {
					e.node(t, fmt.Sprint("fast-", i), "hgx-a100-8", nil)
				}
				e.node(t, "slow", "h200-nvl-8", nil)
				for i := range 3 {
					e.holds(t, fmt.Sprint("eight-", i), fmt.Sprint("fast-", i), all...)
				}
				e.holds(t, "p", "slow", 0, 1, 2, 3)
			},
			placed: []string{"p"}, of: "p", wantCompared: 2, wantNoPart: map[Cause]int{FewGPUs: 3},
			wantBehind: []string{"fast-3: GPUs 0,1,2,3, NV12, 300 GB/s of 300; left to larger pods"},
		},
		"one GPU leaves fast links to others": {
			cluster: func(t *testing.T, e *testEnv) {
				t.Helper()
				e.node(t, "n0", "hgx-a100-8", nil).node(t, "n1", cube, nil)
				e.holds(t, "p", "n1", 0)
			},
			placed: []string{"p"}, of: "p", wantCompared: 2,
			wantBehind: []string{"n0: GPU 0; its GPUs have faster links, which are left to pods of several GPUs"},
		},
		"a pod that was placed later is not in the way": {
			cluster: func(t *testing.T, e *testEnv) {
				t.Helper()
				e.node(t, "n0", cube, nil).node(t, "n1", cube, nil)
				e.holds(t, "p", "n0", all...)
				e.holds(t, "later", "n1", all...)
			},
			placed: []string{"p", "later"}, of: "p", wantCompared: 2,
			wantBehind: []string{"n1: GPUs 0,3,2,1,5,6,7,4, NV2, 50 GB/s of 50; as good: the scheduler draws lots"},
		},
		"a pod that was placed before is": {
			cluster: func(t *testing.T, e *testEnv) {
				t.Helper()
				e.node(t, "n0", cube, nil).node(t, "n1", cube, nil)
				e.holds(t, "before", "n0", all...)
				e.holds(t, "p", "n1", all...)
			},
			placed: []string{"before", "p"}, of: "p", wantCompared: 1, wantNoPart: map[Cause]int{FewGPUs: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv()
			tc.cluster(t, e)
			var uids []types.UID
			for _, name := range tc.placed {
				uids = append(uids, e.pod(name).UID)
			}
			got := PlacedPods(e.World, uids)[e.pod(tc.of).UID]
			if got == nil || got.Choice.Best == nil || got.Choice.BestNode != e.pod(tc.of).Spec.NodeName {
				t.Fatalf("%+v", got)
			}
			var behind []string
			for _, b := range got.Behind {
				behind = append(behind, b.Node+": "+b.Set.String()+"; "+b.Why)
			}
			if diff := cmp.Diff(tc.wantBehind, behind); diff != "" {
				t.Errorf("behind (-want +got):\n%s", diff)
			}
			var noPart map[Cause]int
			for _, r := range got.Choice.NotCompared {
				if noPart == nil {
					noPart = map[Cause]int{}
				}
				noPart[r.Cause] = r.Nodes
			}
			if diff := cmp.Diff(tc.wantNoPart, noPart); diff != "" || got.Choice.Compared != tc.wantCompared {
				t.Errorf("compared %d nodes, want %d; no part (-want +got):\n%s", got.Choice.Compared, tc.wantCompared, diff)
			}
		})
	}
}

// TestManyPlacedPods: of many pods only the first are explained.
func TestManyPlacedPods(t *testing.T) {
	e := newTestEnv()
	var uids []types.UID
	for i := range 3 {
		node := fmt.Sprint("n", i)
		e.node(t, node, cube, nil)
		for gpu := range 8 {
			name := fmt.Sprintf("p-%d-%d", i, gpu)
			e.holds(t, name, node, gpu)
			uids = append(uids, e.pod(name).UID)
		}
	}
	e.waits(pod("waits", 1).Phase(v1.PodPending).Obj())
	if got := PlacedPods(e.World, append(uids, e.pod("waits").UID)); len(got) != maxExplained {
		t.Errorf("%d pods are explained, want %d", len(got), maxExplained)
	}
}
