// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

// at is a moment of the history, in seconds.
func at(s int) time.Time { return time.Unix(1_700_000_000+int64(s), 0) }

func graph(t *testing.T, machine string) *nvtopo.Graph {
	t.Helper()
	spec := devcluster.NodeSpec{Name: "n", Machine: machine}
	g, err := spec.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestCheckFaults: the check finds wrong placements.
func TestCheckFaults(t *testing.T) {
	g := graph(t, "a100-pcie-4-bridged") // GPUs 0-1 and 2-3 are bridged, the rest is PCIe
	all := g.Healthy()
	bridged, _ := oracle.Best(g, all, all, 2, nvtopo.Constraint{})
	other := all &^ bridged
	crossed := all &^ nvtopo.MaskOf(bridged.First(), other.First())
	accepts := func(set nvtopo.Mask) func(*nvtopo.Graph) nvtopo.Mask {
		return func(*nvtopo.Graph) nvtopo.Mask { return set }
	}
	place := func(pod string, when int, set nvtopo.Mask) placement {
		return placement{pod: pod, node: "n", set: set, count: set.Len(), allowed: accepts(all), assumed: at(when)}
	}
	ending := func(p placement, from, by int) placement {
		p.releaseFrom, p.releaseBy = at(from), at(by)
		return p
	}
	tests := map[string]struct {
		pods []placement
		want []string // a part of each pod's problem; empty means none
	}{
		"two pods on the two bridged pairs": {
			pods: []placement{place("a", 1, bridged), place("b", 2, other)},
			want: []string{"", ""},
		},
		"the order of the list does not matter, the stamps do": {
			pods: []placement{place("b", 2, other), place("a", 1, bridged)},
			want: []string{"", ""},
		},
		"a pair across the bridges while a bridged one was free": {
			pods: []placement{place("a", 1, crossed)},
			want: []string{"were better than"},
		},
		"a pair across the bridges when nothing else was free": {
			pods: []placement{place("a", 1, nvtopo.MaskOf((bridged &^ crossed).First())), place("b", 2, nvtopo.MaskOf((other &^ crossed).First())), place("c", 3, crossed)},
			want: []string{"", "were better than", ""}, // b breaks the second pair needlessly
		},
		"a GPU with two owners": {
			pods: []placement{place("a", 1, bridged), place("b", 2, bridged)},
			want: []string{"", "belonged to pod a at the same time"},
		},
		"two owners stamped alike": {
			pods: []placement{place("b", 1, bridged), place("a", 1, bridged)},
			want: []string{"belonged to pod a at the same time", ""},
		},
		"a GPU used again after its pod ended": {
			pods: []placement{ending(place("a", 1, bridged), 2, 3), place("b", 4, bridged)},
			want: []string{"", ""},
		},
		"after the end the freed pair has to be used": {
			pods: []placement{ending(place("a", 1, bridged), 2, 3), place("b", 4, other)},
			want: []string{"", "were better than"},
		},
		"while a pod is ending either is right": {
			pods: []placement{ending(place("a", 1, bridged), 2, 5), place("b", 3, other)},
			want: []string{"", ""},
		},
		"while a pod is ending its GPUs may be used again": {
			pods: []placement{ending(place("a", 1, bridged), 2, 5), place("b", 3, bridged)},
			want: []string{"", ""},
		},
		"before the end is announced its GPUs are its own": {
			pods: []placement{ending(place("a", 1, bridged), 4, 5), place("b", 3, bridged)},
			want: []string{"", "belonged to pod a at the same time"},
		},
		"fewer GPUs than asked": {
			pods: []placement{{pod: "a", node: "n", set: nvtopo.MaskOf(0), count: 2, allowed: accepts(all), assumed: at(1)}},
			want: []string{"got 1 GPUs and asked for 2"},
		},
		"a GPU of a model it does not accept": {
			pods: []placement{{pod: "a", node: "n", set: bridged, count: 2, allowed: accepts(other), assumed: at(1)}},
			want: []string{"not one it accepts"},
		},
		"a set slower than the pod accepts": {
			pods: []placement{
				{pod: "a", node: "n", set: crossed, count: 2, allowed: accepts(crossed), assumed: at(1), constraint: nvtopo.Constraint{MinLink: nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 1}}},
			},
			want: []string{"do not satisfy its constraints"},
		},
		"a node that nobody knows": {
			pods: []placement{{pod: "a", node: "m", set: bridged, count: 2, allowed: accepts(all), assumed: at(1)}},
			want: []string{"which has no graph"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for i, v := range check(map[string]*nvtopo.Graph{"n": g}, tc.pods) {
				if tc.want[i] == "" && v.problem != "" || !strings.Contains(v.problem, tc.want[i]) {
					t.Errorf("pod %s: problem %q, want %q", tc.pods[i].pod, v.problem, tc.want[i])
				}
				if v.problem == "" && (!v.possible || v.best != tc.pods[i].set) {
					t.Errorf("pod %s: best set %v, want its own %v", tc.pods[i].pod, v.best.Positions(), tc.pods[i].set.Positions())
				}
			}
		})
	}
}

// TestCheckNodes: the check finds pods on nodes that the order does not allow.
func TestCheckNodes(t *testing.T) {
	graphs := map[string]*nvtopo.Graph{}
	for node, machine := range map[string]string{
		"fast-0": "hgx-h200", "fast-1": "hgx-h200", "slow-0": "l40s-8", "slow-1": "l40s-8", "small": "hgx-a100-4",
	} {
		graphs[node] = graph(t, machine)
	}
	// place has a pod on a node that runs nothing else from the GPU first on.
	place := func(pod, node string, when, gpus, first int) placement {
		g := graphs[node]
		set, _ := oracle.Best(g, g.Healthy()&^nvtopo.FullMask(first), g.Healthy(), gpus, nvtopo.Constraint{})
		return placement{pod: pod, node: node, set: set, count: gpus, allowed: (*nvtopo.Graph).Healthy, assumed: at(when)}
	}
	only := func(p placement, machine string) placement {
		p.allowed = (&request{model: machine}).allowed
		return p
	}
	ending := func(p placement, from, by int) placement {
		p.releaseFrom, p.releaseBy = at(from), at(by)
		return p
	}
	tests := map[string]struct {
		pods      []placement
		want      string   // a part of the last pod's problem; empty means none
		wantNodes []string // what is allowed for it
	}{
		"a pair on fast links":                                   {pods: []placement{place("a", "fast-1", 1, 2, 0)}, wantNodes: []string{"fast-0", "fast-1"}},
		"a pair on slow links":                                   {pods: []placement{place("a", "slow-0", 1, 2, 0)}, want: "node slow-0 has slower links; the order allows fast-0, fast-1", wantNodes: []string{"fast-0", "fast-1"}},
		"a pair that wants a model":                              {pods: []placement{only(place("a", "slow-0", 1, 2, 0), "L40S")}, wantNodes: []string{"slow-0", "slow-1"}},
		"a single GPU on slow links":                             {pods: []placement{place("a", "slow-0", 1, 1, 0)}, wantNodes: []string{"slow-0", "slow-1"}},
		"a single GPU on fast links":                             {pods: []placement{place("a", "fast-0", 1, 1, 0)}, want: "node fast-0 has links that others can use; the order allows slow-0, slow-1", wantNodes: []string{"slow-0", "slow-1"}},
		"a single GPU begins a second machine":                   {pods: []placement{place("a", "slow-0", 1, 1, 0), place("b", "slow-1", 2, 1, 0)}, want: "points and", wantNodes: []string{"slow-0"}},
		"the first of them was ending":                           {pods: []placement{ending(place("a", "slow-0", 1, 1, 0), 2, 4), place("b", "slow-1", 3, 1, 0)}, wantNodes: []string{"slow-0", "slow-1"}},
		"a pair on a machine that pods of eight need":            {pods: []placement{place("a", "fast-0", 1, 8, 0), place("b", "slow-0", 2, 8, 0), place("c", "slow-1", 3, 8, 0), place("d", "fast-1", 4, 2, 0)}, want: "node fast-1 is left to larger pods; the order allows small", wantNodes: []string{"small"}},
		"a pair on the smaller machine that pods of eight leave": {pods: []placement{place("a", "fast-0", 1, 8, 0), place("b", "slow-0", 2, 8, 0), place("c", "slow-1", 3, 8, 0), place("d", "small", 4, 2, 0)}, wantNodes: []string{"small"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			vs := check(graphs, tc.pods)
			last := vs[len(vs)-1]
			if tc.want == "" && last.problem != "" || !strings.Contains(last.problem, tc.want) {
				t.Errorf("problem %q, want %q", last.problem, tc.want)
			}
			if d := cmp.Diff(tc.wantNodes, last.nodes); d != "" {
				t.Errorf("allowed nodes (-want,+got):\n%s", d)
			}
		})
	}
}

// TestWorkload: the workload is what the demo promises.
func TestWorkload(t *testing.T) {
	nodes := Nodes()
	if len(nodes) != 12 {
		t.Errorf("%d nodes, want 12", len(nodes))
	}
	capacity := 0
	for _, n := range nodes {
		g, err := n.Graph()
		if err != nil {
			t.Fatal(err)
		}
		capacity += g.Len()
	}
	sizes, impossible, ends, used := map[int]int{}, 0, 0, 0
	live := map[string]int{}
	for _, w := range workload() {
		for _, name := range w.finish {
			n, ok := live[name]
			if !ok {
				t.Errorf("pod %s finishes without having run", name)
			}
			used -= n
			ends++
			delete(live, name)
		}
		for _, r := range w.pods {
			if _, twice := live[r.name]; twice {
				t.Errorf("two pods are called %s", r.name)
			}
			if _, err := r.constraint(); err != nil {
				t.Error(err)
			}
			if r.impossible {
				impossible++
				continue
			}
			live[r.name] = r.total()
			sizes[r.total()]++
			used += r.total()
		}
		if used > capacity {
			t.Errorf("wave %q needs %d GPUs of %d", w.title, used, capacity)
		}
	}
	for _, n := range []int{1, 2, 3, 4, 8} {
		if sizes[n] == 0 {
			t.Errorf("no pod asks for %d GPUs", n)
		}
	}
	pods := impossible
	for _, n := range sizes {
		pods += n
	}
	if pods < 36 || pods > 44 || impossible != 1 || ends == 0 {
		t.Errorf("%d pods, %d impossible, %d finishing; want about 40, 1, some", pods, impossible, ends)
	}
}
