// SPDX-License-Identifier: Apache-2.0

package clusterview_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// paper is a cluster of which the test itself keeps the books.
type paper struct {
	nodes   []*paperNode
	pods    []*paperPod
	allowed int // disruptions of the pods with a budget, which they have together
}

type paperNode struct {
	name, machine string
	tables        *nvtopo.Tables
	healthy       nvtopo.Mask
}

type paperPod struct {
	name   string
	node   int
	gpus   nvtopo.Mask
	stays  bool
	budget bool
}

// draw draws a cluster of a few small machines.
func draw(t *testing.T, r *rand.Rand, machines []string, nodes, pods int) *paper {
	t.Helper()
	p := &paper{allowed: r.IntN(3)}
	c := viewtest.New()
	for i := range nodes {
		n := &paperNode{name: "n" + strconv.Itoa(i), machine: machines[r.IntN(len(machines))]}
		if err := c.AddNode(n.name, n.machine); err != nil {
			t.Fatal(err)
		}
		graphs, err := c.Topologies[i].Graphs()
		if err != nil {
			t.Fatal(err)
		}
		n.tables = nvtopo.NewTables(graphs[v1alpha1.DefaultResource], nvtopo.DefaultWeights())
		n.healthy = nvtopo.FullMask(n.tables.Graph().Len())
		if r.IntN(4) == 0 {
			n.healthy &^= nvtopo.MaskOf(r.IntN(n.healthy.Len()))
		}
		p.nodes = append(p.nodes, n)
	}
	for i := range pods {
		pod := &paperPod{name: "p" + strconv.Itoa(i), node: r.IntN(nodes), stays: r.IntN(5) == 0, budget: r.IntN(2) == 0}
		n := p.nodes[pod.node]
		for free := p.free(pod.node, nil); free != 0 && pod.gpus.Len() < 1+r.IntN(2); {
			all := free.Positions()
			pod.gpus |= nvtopo.MaskOf(all[r.IntN(len(all))])
			free &^= pod.gpus
		}
		if pod.gpus == 0 || n.healthy&pod.gpus != pod.gpus {
			continue
		}
		p.pods = append(p.pods, pod)
	}
	return p
}

// free are the free GPUs of a node when some pods are elsewhere than at first.
func (p *paper) free(node int, moved map[int]paperPod) nvtopo.Mask {
	free := p.nodes[node].healthy
	for i, pod := range p.pods {
		at := *pod
		if m, ok := moved[i]; ok {
			at = m
		}
		if at.node == node {
			free &^= at.gpus
		}
	}
	return free
}

// objects are the API objects of the cluster.
func (p *paper) objects(t *testing.T, moved map[int]paperPod) *clusterobjects.Objects {
	t.Helper()
	c := viewtest.New()
	for i, n := range p.nodes {
		if err := c.AddNode(n.name, n.machine); err != nil {
			t.Fatal(err)
		}
		for at := range (nvtopo.FullMask(n.tables.Graph().Len()) &^ n.healthy).All() {
			c.Topologies[i].Status.GPUHealth = append(c.Topologies[i].Status.GPUHealth, v1alpha1.GPUHealth{ID: c.Topologies[i].Spec.GPUs[at].ID, Reason: "Xid79"})
		}
	}
	for i, pod := range p.pods {
		at := *pod
		if m, ok := moved[i]; ok {
			at = m
		}
		object := c.AddPod(pod.name, p.nodes[at.node].name, at.gpus.Len(), at.gpus.Positions()...)
		if pod.stays {
			object.Annotations["nvtopo.dev/movable"] = "false"
		}
		if pod.budget {
			object.Labels["app"] = "guarded"
		}
	}
	c.AddBudget("guarded", int32(p.allowed))
	return &c.Objects
}

// groups is the most disjoint sets of k of some GPUs whose ring is as fast as the machine's best.
func groups(t *nvtopo.Tables, free nvtopo.Mask, k int) int {
	if free.Len() < k {
		return 0
	}
	first := nvtopo.MaskOf(free.First())
	most := groups(t, free&^first, k) // the first one is in no group
	rest := free &^ first
	for s := rest; ; s = (s - 1) & rest {
		if set := s | first; set.Len() == k && t.Ring(set) >= t.Best(k) {
			most = max(most, 1+groups(t, free&^set, k))
		}
		if s == 0 {
			return most
		}
	}
}

func (p *paper) value(k int, moved map[int]paperPod) (value int) {
	for i, n := range p.nodes {
		value += groups(n.tables, p.free(i, moved), k)
	}
	return value
}

var smallMachines = []string{"hgx-a100-4", "a100-pcie-4-bridged", "power9-v100-4"}

// TestSupply compares what a view counts with what the test's own books say.
func TestSupply(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := draw(t, r, append(smallMachines, "dgx1-v100"), 1+r.IntN(4), r.IntN(8))
		v := clusterview.Of(p.objects(t, nil), clusterview.Options{})
		type counts struct{ GPUs, Used, Free, Linked, Capacity, Ideal int }
		got, want := map[int]counts{}, map[int]counts{}
		for _, s := range v.Supply.Slots {
			c := counts{GPUs: v.Supply.GPUs, Used: v.Supply.UsedGPUs, Free: s.Free}
			for _, l := range s.Linked {
				c.Linked += l.Free
				c.Capacity += l.Capacity
				c.Ideal += l.Ideal
			}
			got[s.GPUs] = c
		}
		for _, k := range clusterview.Sizes() {
			var c counts
			type class struct{ capacity, free int }
			classes := map[string]class{}
			for i, n := range p.nodes {
				free, all := p.free(i, nil), nvtopo.FullMask(n.tables.Graph().Len())
				c.GPUs += all.Len()
				c.Used += (n.healthy &^ free).Len()
				c.Free += free.Len() / k
				if k == 1 || n.healthy.Len() < k {
					continue
				}
				c.Linked += groups(n.tables, free, k)
				c.Capacity += groups(n.tables, n.healthy, k)
				name := ""
				for s := range nvtopo.Mask(1) << all.Len() { // the first best set decides
					if s.Len() == k && n.tables.Ring(s) == n.tables.Best(k) {
						name = n.tables.RingClass(s).String()
						break
					}
				}
				at := classes[name]
				classes[name] = class{at.capacity + groups(n.tables, n.healthy, k), at.free + free.Len()}
			}
			for _, name := range slices.Sorted(maps.Keys(classes)) {
				c.Ideal += min(classes[name].capacity, classes[name].free/k)
			}
			want[k] = c
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d, by size (-want,+got):\n%s", seed, diff)
		}
	}
}

// TestAdviceOptimality: the advice is the best there is. It compares advice with all sequences of
// moves there are.
func TestAdviceOptimality(t *testing.T) {
	proven, moving := 0, 0
	for seed := range uint64(250) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := draw(t, r, smallMachines[:1+r.IntN(2)], 2+r.IntN(2), 3+r.IntN(4))
		k := 2 << r.IntN(2)
		v := clusterview.Of(p.objects(t, nil), clusterview.Options{})
		got := v.Advise(clusterview.AdviceOptions{GPUs: k, MaxMoves: 3})
		value, moves := p.best(k, 3)
		name := fmt.Sprintf("seed %d, groups of %d", seed, k)
		if got.Before != p.value(k, nil) {
			t.Errorf("%s: %d free before, want %d", name, got.Before, p.value(k, nil))
		}
		if after := p.replay(t, k, &got); after != got.After {
			t.Errorf("%s: %d free after the moves, and it says %d", name, after, got.After)
		}
		switch {
		case got.After > value || got.After == value && len(got.Moves) < moves:
			t.Errorf("%s: %d groups by %d moves, and the best is %d by %d", name, got.After, len(got.Moves), value, moves)
		case got.Proven && (got.After != value || len(got.Moves) != moves):
			t.Errorf("%s: proven %d groups by %d moves, and there are %d by %d", name, got.After, len(got.Moves), value, moves)
		}
		if got.Proven {
			proven++
		}
		moving += len(got.Moves)
	}
	if proven < 150 || moving < 30 {
		t.Errorf("%d were proven and %d pods moved: that says little", proven, moving)
	}
}

// best tries all sequences of moves.
func (p *paper) best(k, most int) (value, moves int) {
	value = p.value(k, nil)
	spent := 0
	var try func(moved map[int]paperPod)
	try = func(moved map[int]paperPod) {
		if v := p.value(k, moved); v > value || v == value && len(moved) < moves {
			value, moves = v, len(moved)
		}
		if len(moved) == most {
			return
		}
		for i, pod := range p.pods {
			_, done := moved[i]
			if done || pod.stays || pod.budget && spent >= p.allowed {
				continue
			}
			for to := range p.nodes {
				// It holds its GPUs until after its replacement is placed.
				set, ok := p.choose(to, p.free(to, moved), pod.gpus.Len())
				from := p.nodes[pod.node]
				if !ok || p.nodes[to].machine != from.machine || p.nodes[to].tables.Ring(set) < from.tables.Ring(pod.gpus) {
					continue
				}
				next := maps.Clone(moved)
				if next == nil {
					next = map[int]paperPod{}
				}
				next[i] = paperPod{name: pod.name, node: to, gpus: set}
				if pod.budget {
					spent++
				}
				try(next)
				if pod.budget {
					spent--
				}
			}
		}
	}
	try(nil)
	return value, moves
}

// choose is which GPUs the scheduler gives a pod without demands.
func (p *paper) choose(node int, free nvtopo.Mask, k int) (nvtopo.Mask, bool) {
	return p.nodes[node].tables.Pick(free, free, k, nvtopo.Constraint{Policy: nvtopo.PolicyBestEffort})
}

// replay makes the moves of some advice, refuses what is not allowed, and returns how many groups
// are free in the end.
func (p *paper) replay(t *testing.T, k int, a *clusterview.Advice) int {
	t.Helper()
	moved := map[int]paperPod{}
	value, spent := p.value(k, nil), 0
	for _, m := range a.Moves {
		i := slices.IndexFunc(p.pods, func(pod *paperPod) bool { return pod.name == m.Name })
		pod := p.pods[i]
		if pod.budget {
			spent++
		}
		if _, twice := moved[i]; twice || pod.stays || pod.budget && spent > p.allowed {
			t.Errorf("%s must not be moved", m.Name)
		}
		to := slices.IndexFunc(p.nodes, func(n *paperNode) bool { return n.name == m.To })
		set, ok := p.choose(to, p.free(to, moved), pod.gpus.Len())
		if !ok || !slices.Equal(set.Positions(), m.ToGPUs) || m.From != p.nodes[pod.node].name || !slices.Equal(pod.gpus.Positions(), m.FromGPUs) {
			t.Errorf("%s goes from %s %v to %s %v, and the scheduler would choose %v there", m.Name, m.From, m.FromGPUs, m.To, m.ToGPUs, set.Positions())
		}
		moved[i] = paperPod{node: to, gpus: set}
		after := p.value(k, moved)
		if after-value != m.Gain {
			t.Errorf("%s gains %d groups, and it says %d", m.Name, after-value, m.Gain)
		}
		value = after
	}
	if view := clusterview.Of(p.objects(t, moved), clusterview.Options{}); view.Advise(clusterview.AdviceOptions{GPUs: k, MaxMoves: 1}).Before != value {
		t.Errorf("after the moves the objects have other groups than %d", value)
	}
	return value
}
