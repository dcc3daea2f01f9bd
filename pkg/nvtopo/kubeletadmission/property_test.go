// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// randomCase makes a small machine, a state and a pod.
func randomCase(r *rand.Rand) (*Machine, *bruteMachine, State, *Pod) {
	n := 1 + r.IntN(4)
	b := &bruteMachine{
		policy: Policy(r.IntN(4)), podScope: r.IntN(2) == 0, closest: r.IntN(3) == 0, own: r.IntN(2) == 0, distances: map[[2]int]int{},
	}
	cfg := &Config{
		Policy: b.policy, PodScope: b.podScope, DeviceNodes: b.own,
		TopologyOptions: map[string]string{preferClosest: strconv.FormatBool(b.closest)},
	}
	var nodes []Node
	id := 0
	for range n {
		id += 1 + r.IntN(2)
		b.ids = append(b.ids, id)
		nodes = append(nodes, Node{ID: id, Distances: make([]int, n)})
	}
	for i := range n {
		for j := range n {
			d := 10
			if i != j {
				d = 11 + r.IntN(3)
			}
			nodes[i].Distances[j] = d
			b.distances[[2]int{b.ids[i], b.ids[j]}] = d
		}
	}
	kinds := 1 + r.IntN(2)
	var resources []Resource
	var s State
	for range kinds {
		devices := 1 + r.IntN(7)
		res := Resource{All: nvtopo.FullMask(devices)}
		blind := r.IntN(8) == 0
		for range devices {
			at := b.ids[r.IntN(n)]
			if blind || r.IntN(12) == 0 {
				at = nvtopo.UnknownNUMA
			}
			res.NUMA = append(res.NUMA, at)
		}
		resources = append(resources, res)
		b.numa, b.all = append(b.numa, res.NUMA), append(b.all, res.All)
	}
	m, err := New(cfg, nodes, resources)
	if err != nil {
		panic(err) // of the test's own making
	}
	s = m.NewState(nil, nil)
	for i := range kinds {
		s.Free[i] = nvtopo.Mask(r.Uint64()) & b.all[i]
		if r.IntN(3) == 0 {
			s.Free[i] = b.all[i]
		}
	}
	var cs []Container
	for range r.IntN(3) {
		cs = append(cs, Container{Kind: []Kind{Init, Sidecar}[r.IntN(2)]})
	}
	for range 1 + r.IntN(2) {
		cs = append(cs, Container{Kind: App})
	}
	for i := range cs {
		for k := range kinds {
			if r.IntN(3) > 0 {
				cs[i].Devices[k] = r.IntN(4)
			}
		}
	}
	return m, b, s, NewPod(cs)
}

// TestAdmissionBruteForce: admission agrees with trying everything.
func TestAdmissionBruteForce(t *testing.T) {
	cases, admitted, refused := 30000, 0, 0
	if testing.Short() {
		cases = 3000
	}
	r := rand.New(rand.NewPCG(4, 6))
	for i := range cases {
		m, b, s, pod := randomCase(r)
		wish := &Wish{}
		budget := make([]nvtopo.Mask, len(b.all))
		for k := range b.all {
			budget[k] = s.Free[k]
			if r.IntN(2) == 0 {
				wish.Fixed[k] = true
				wish.Sets[k] = randomSubset(r, s.Free[k], pod.whole.Devices[k])
				budget[k] = wish.Sets[k]
			}
		}
		got := m.Admit(&s, pod, wish, nil)
		brute := bruteState{free: slices.Clone(s.Free[:len(b.all)]), reuse: make([]nvtopo.Mask, len(b.all))}
		want, h := true, bruteHint{}
		if b.podScope && b.policy != PolicyNone {
			h, want = b.hint(brute, &pod.whole, false)
		}
		want = want && b.admit(brute, pod, budget, 0, 0, h)
		if got != want {
			t.Fatalf("case %d: admitted %t, want %t\nmachine %+v\nfree %v\npod %+v\nwish %+v", i, got, want, b, brute.free, pod, wish)
		}
		if got {
			admitted++
		} else {
			refused++
		}
	}
	t.Logf("%d admitted, %d refused", admitted, refused)
	if admitted < cases/10 || refused < cases/10 {
		t.Errorf("%d admitted and %d refused of %d: the cases are one-sided", admitted, refused, cases)
	}
}

func randomSubset(r *rand.Rand, of nvtopo.Mask, n int) (out nvtopo.Mask) {
	members := of.Positions()
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return nvtopo.MaskOf(members[:min(n, len(members))]...)
}

// TestHintBruteForce: hints agree with every combination. It compares the merge of arbitrary hints,
// not only those that devices give.
func TestHintBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	for i := range 20000 {
		n := 1 + r.IntN(4)
		b := &bruteMachine{policy: Policy(1 + r.IntN(3)), closest: r.IntN(2) == 0, distances: map[[2]int]int{}}
		m := &Machine{policy: b.policy, closest: b.closest, nodes: n, all: 1<<n - 1}
		for p := range n {
			b.ids = append(b.ids, p)
			row := make([]int, n)
			for q := range n {
				row[q] = 10 + r.IntN(3)
				b.distances[[2]int{p, q}] = row[q]
			}
			m.distances = append(m.distances, row)
		}
		l := lists{size: 1 << n}
		var providers [][]bruteHint
		for range r.IntN(4) {
			switch r.IntN(6) {
			case 0:
				providers = append(providers, []bruteHint{{nil, true}})
				continue
			case 1:
				providers = append(providers, []bruteHint{{nil, false}})
				l.impossible = true
				continue
			}
			row, width := l.next(), 1+r.IntN(n)
			var hints []bruteHint
			for _, nodes := range subsetsOf(b.ids) {
				if r.IntN(2) == 0 {
					continue
				}
				var set NodeSet
				for _, id := range nodes {
					set |= 1 << id
				}
				row[set] = offered
				hints = append(hints, bruteHint{nodes, len(nodes) == width})
			}
			if l.keep(width) {
				providers = append(providers, hints)
			} else {
				l.impossible = true
				providers = append(providers, []bruteHint{{nil, false}})
			}
		}
		want, wantOK := b.merge(providers)
		got, ok := m.merge(&l)
		if ok != wantOK {
			t.Fatalf("case %d: admitted %t, want %t; %+v", i, ok, wantOK, providers)
		}
		if !ok {
			continue
		}
		var nodes []int
		for p := range n {
			if got.Nodes.has(p) {
				nodes = append(nodes, p)
			}
		}
		if got.Bound != (want.nodes != nil) || got.Bound && !slices.Equal(nodes, want.nodes) || got.Preferred != want.good {
			t.Fatalf("case %d: hint %+v (nodes %v), want %+v; policy %d, %+v", i, got, nodes, want, b.policy, providers)
		}
	}
}
