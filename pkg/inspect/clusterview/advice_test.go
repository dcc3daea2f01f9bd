// SPDX-License-Identifier: Apache-2.0

package clusterview_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestAdviceConstraints has a pod of two GPUs on node a, which would be whole without it, and
// room for the pod on node b, where another one must stay.
func TestAdviceConstraints(t *testing.T) {
	const move = "mover a 0,3 -> b 0,3 +1"
	tests := map[string]struct {
		machines [2]string
		taken    []int // of node b
		change   func(c *viewtest.Cluster, mover *v1.Pod)
		want     string
	}{
		"nothing in the way": {want: move},
		"a pod that must not be moved": {
			change: func(_ *viewtest.Cluster, p *v1.Pod) { p.Annotations["nvtopo.dev/movable"] = "false" },
		},
		"a member of a gang": {change: func(_ *viewtest.Cluster, p *v1.Pod) { p.Annotations[gangrequest.GangKey] = "g" }},
		"a disruption budget that allows nothing": {
			change: func(c *viewtest.Cluster, _ *v1.Pod) { c.AddBudget("mover", 0) },
		},
		"a disruption budget that allows one": {
			change: func(c *viewtest.Cluster, _ *v1.Pod) { c.AddBudget("mover", 1) }, want: move,
		},
		"a slower ring there":   {taken: []int{2, 3, 4, 5, 6, 7}}, // 0 and 1 are joined by one NVLink, 0 and 3 by two
		"GPUs of another model": {machines: [2]string{"dgx1-v100", "dgx1-p100"}},
		"a node that is closed": {change: func(c *viewtest.Cluster, _ *v1.Pod) { c.Nodes[1].Spec.Unschedulable = true }},
		"a taint": {change: func(c *viewtest.Cluster, _ *v1.Pod) {
			c.Nodes[1].Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
		}},
		"a taint it tolerates": {change: tolerated, want: move},
		"another node's label": {change: func(_ *viewtest.Cluster, p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"on": "a"} }},
		"too few CPUs there": {change: func(c *viewtest.Cluster, _ *v1.Pod) {
			c.Nodes[1].Status.Allocatable = few(c.Nodes[1].Status.Allocatable)
		}},
		"a stale graph there":  {change: func(c *viewtest.Cluster, _ *v1.Pod) { c.Leases = c.Leases[:1] }},
		"pods by number there": {change: func(c *viewtest.Cluster, _ *v1.Pod) { c.AddPod("foreign", "b", 1) }},
		"a demand nobody there meets": {
			change: func(_ *viewtest.Cluster, p *v1.Pod) { p.Annotations["nvtopo.dev/min-bandwidth"] = "60" },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := viewtest.New()
			for i, node := range []string{"a", "b"} {
				machine := tc.machines[i]
				if machine == "" {
					machine = "dgx1-v100"
				}
				if err := c.AddNode(node, machine); err != nil {
					t.Fatal(err)
				}
			}
			taken := tc.taken
			if taken == nil {
				taken = []int{1, 2, 4, 5, 6, 7}
			}
			c.AddPod("stays", "b", len(taken), taken...).Annotations["nvtopo.dev/movable"] = "false"
			mover := c.AddPod("mover", "a", 2, 0, 3)
			if tc.change != nil {
				tc.change(c, mover)
			}
			a := clusterview.Of(&c.Objects, clusterview.Options{}).Advise(clusterview.AdviceOptions{GPUs: 8})
			var got []string
			for _, m := range a.Moves {
				got = append(got, fmt.Sprintf("%s %s %s -> %s %s +%d", m.Name, m.From, list(m.FromGPUs), m.To, list(m.ToGPUs), m.Gain))
			}
			if strings.Join(got, "; ") != tc.want || !a.Proven {
				t.Errorf("moves %q, proven %t; want %q", got, a.Proven, tc.want)
			}
		})
	}
}

func tolerated(c *viewtest.Cluster, p *v1.Pod) {
	c.Nodes[1].Spec.Taints = []v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}
	p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
}

// few is a node's amounts with the CPUs that one pod has.
func few(amounts v1.ResourceList) v1.ResourceList {
	out := amounts.DeepCopy()
	out[v1.ResourceCPU] = resource.MustParse("1")
	return out
}

func list(numbers []int) string {
	var out []string
	for _, n := range numbers {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, ",")
}

// TestLargeClusterAdvice: a large cluster is searched node by node: where not all sequences can be
// tried, the moves are still those that gain the most, within the bounds, and it is not said that
// they are the best.
func TestLargeClusterAdvice(t *testing.T) {
	c := viewtest.New()
	for i := range 40 {
		node := "n" + strconv.Itoa(i)
		if err := c.AddNode(node, "hgx-a100-8"); err != nil {
			t.Fatal(err)
		}
		gpus := 1 + i%2*6 // one GPU or seven
		for g := range gpus {
			c.AddPod(fmt.Sprintf("%s-%d", node, g), node, 1, g)
		}
	}
	v := clusterview.Of(&c.Objects, clusterview.Options{})
	for _, steps := range []int{0, 1000} {
		a := v.Advise(clusterview.AdviceOptions{GPUs: 8, Steps: steps, MaxMoves: 12})
		if a.Before != 0 || a.After != 12 || len(a.Moves) != 12 || a.Proven {
			t.Errorf("%d steps: %d groups free after %d moves, proven %t; want 12 by 12 that are not proven", steps, a.After, len(a.Moves), a.Proven)
		}
		for _, m := range a.Moves {
			if m.Gain != 1 || v.Node(m.From).Supply.UsedGPUs != 1 || v.Node(m.To).Supply.UsedGPUs != 7 {
				t.Errorf("%d steps: %s goes from %s to %s and gains %d", steps, m.Name, m.From, m.To, m.Gain)
			}
		}
	}
	if a := v.Advise(clusterview.AdviceOptions{GPUs: 8, Steps: 3}); len(a.Moves) > 3 || a.After != len(a.Moves) {
		t.Errorf("with 3 steps %d groups by %d moves", a.After, len(a.Moves))
	}
}
