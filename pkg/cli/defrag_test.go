// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// twoNodes returns two nodes with pods of which one can make room for a whole machine.
func twoNodes(t *testing.T) *viewtest.Cluster {
	t.Helper()
	c := viewtest.New()
	for _, node := range []string{"n1", "n2"} {
		if err := c.AddNode(node, "hgx-a100-8"); err != nil {
			t.Fatal(err)
		}
	}
	c.AddPod("large", "n1", 4, 0, 1, 2, 3)
	c.AddPod("small", "n2", 2, 0, 1)
	return c
}

// TestDefragSaysTheWholeWay: a pod that is deleted as advised does not come back to its node. Its
// replacement is placed while it still holds its GPUs, so the node has to be cordoned meanwhile.
func TestDefragSaysTheWholeWay(t *testing.T) {
	tests := map[string]struct {
		change func(c *viewtest.Cluster)
		want   string
	}{
		"a move": {want: `Groups of 8 by any link: 0 free, 1 after 1 move, on n1 (proven)
   POD            FROM  GPUS     TO  GPUS     GAIN
1  default/large  n1    0,1,2,3  n2  4,5,6,7  1

   kubectl cordon n1
   kubectl delete pod -n default large
   kubectl wait -n default --for=condition=PodScheduled pod --all --timeout=5m
   kubectl uncordon n1

`},
		"midway: the node is cordoned, and the pod is on the other one": {
			change: func(c *viewtest.Cluster) {
				c.Nodes[0].Spec.Unschedulable = true
				c.Pods = c.Pods[1:]
				c.AddPod("large-2", "n2", 4, 4, 5, 6, 7)
			},
			want: `Groups of 8 by any link: 0 free, and so many free GPUs cannot be more; 1 more once uncordoned: n1
Cordoned  n1  nothing of it counts and its pods stay, until: kubectl uncordon n1; then 8 GPUs more are free
`,
		},
		"a node that is cordoned and not ready": {
			change: func(c *viewtest.Cluster) {
				c.Nodes[0].Spec.Unschedulable = true
				c.Nodes[0].Status.Conditions[0].Status = "False"
			},
			want: "Groups of 8 by any link: 0 free, and so many free GPUs cannot be more\n",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := twoNodes(t)
			if tc.change != nil {
				tc.change(c)
			}
			if diff := cmp.Diff(tc.want, mustRun(t, "", "defrag", "-n", "8", "--from", savedCluster(t, c))); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}

// TestDefragNamesWhoStays: pods that must stay are named with their nodes under the reason, the first four of
// each.
func TestDefragNamesWhoStays(t *testing.T) {
	c := twoNodes(t)
	for i := range 6 {
		c.AddPod("kept-"+strconv.Itoa(i), "n2", 1, 2+i).Annotations[podrequest.MovableKey] = "false"
	}
	c.Pods[0].OwnerReferences = nil
	const want = `Groups of 8 by any link: 0 free, and so many free GPUs cannot be more
Must stay  6 pods  annotation nvtopo.dev/movable is false: default/kept-0 on n2, default/kept-1 on n2, default/kept-2 on n2, default/kept-3 on n2 and 2 more
Must stay  1 pod   no controller would make it again: default/large on n1
`
	if diff := cmp.Diff(want, mustRun(t, "", "defrag", "-n", "8", "--from", savedCluster(t, c))); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
}
