// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

// TestIndexBruteForce: the index chooses as a brute force does. It compares choices among machines
// of different size and speed with the published order, which the oracle follows by itself.
func TestIndexBruteForce(t *testing.T) {
	names := []string{"dgx1-v100", "l40s-8", "a100-pcie-4-bridged", "hgx-a100-4", "hgx-a100-8", "gb200-tray", "power9-v100-4", "h200-nvl-8"}
	speeds := []int64{125, 362, 312, 312, 312, 2500, 125, 835} // of their GPUs, TFLOPS
	kinds := tables(t, names...)
	oracles := make([]*oracle.Oracle, len(kinds))
	for i := range kinds {
		oracles[i] = oracle.New(kinds[i].Graph())
	}
	constraints := []nvtopo.Constraint{{}, {Policy: nvtopo.PolicySingleNUMANode}, {MinBandwidth: 20_000_000}}
	r := rand.New(rand.NewPCG(11, 1))
	answered, sizes, kept, bySpeed := 0, 0, 0, 0
	for step := range 10_000 {
		x := NewIndex()
		w := DefaultOrder()
		if r.IntN(2) == 0 {
			w.Singles = SinglesSlowGPUs
		}
		nodes := make([]oracle.Node, 2+r.IntN(5))
		for i := range nodes {
			at := r.IntN(len(kinds))
			m, pods := drawn(r, kinds[at])
			x.Put(i, m)
			x.Run(i, pods)
			nodes[i] = oracle.Node{Oracle: oracles[at], Whole: m.Healthy, Free: m.Free, Pods: pods}
			if w.Singles == SinglesSlowGPUs {
				nodes[i].Speed = big.NewRat(speeds[at], 1)
			}
		}
		d := Demand{GPUs: 1 + r.IntN(8), Bytes: []int64{DefaultBytes, DefaultBytes, 64_000}[r.IntN(3)], Constraint: constraints[r.IntN(len(constraints))]}
		got, offer, ok := x.Best(&d, &w)
		choices := oracle.Across(nodes, d.GPUs, d.Constraint, d.Bytes)
		allowed := oracle.Allowed(choices)
		if ok != (len(allowed) > 0) {
			t.Fatalf("step %d, %+v: found %t, by brute force %v", step, d, ok, allowed)
		}
		if !ok {
			continue
		}
		answered++
		if d.GPUs == 1 && w.Singles == SinglesSlowGPUs {
			bySpeed++
		}
		if slices.ContainsFunc(choices, func(c oracle.Choice) bool { return c.Reserved }) {
			kept++
		}
		c := choices[got]
		if c.Score == nil || c.Set != offer.Set {
			t.Fatalf("step %d, %+v: GPUs %v of node %d, by brute force its best are %v and it is none of the best: %+v", step, d, offer.Set.Positions(), got, c.Set.Positions(), choices)
		}
		if best := choices[allowed[0]]; !slices.Contains(allowed, got) {
			t.Errorf("step %d, %+v: node %d has %s points and %d GPUs left, the best %s and %d",
				step, d, got, c.Score.FloatString(6), c.Left, best.Score.FloatString(6), best.Left)
		}
		if nodes[got].Whole.Len() < nvtopo.FullMask(8).Len() {
			sizes++
		}
	}
	t.Logf("%d of 10000 cases had a node: %d on machines of less than eight GPUs, %d with machines left to larger pods, %d single GPUs by speed", answered, sizes, kept, bySpeed)
	if answered < 5000 || sizes < 500 || sizes > answered-500 || kept < 500 || bySpeed < 300 {
		t.Errorf("%d of 10000 answered, %d of them by small machines, some machine reserved in %d, single GPUs by speed in %d: too few to show anything", answered, sizes, kept, bySpeed)
	}
}

// TestPreferenceBruteForce: pods with wishes for hardware and models get a node as by brute force. Offers
// are rated one by one, as the plugin rates them; Reserved comes from the index.
func TestPreferenceBruteForce(t *testing.T) {
	kinds := tables(t, "dgx1-v100", "l40s-8", "hgx-a100-4", "hgx-a100-8", "h200-nvl-8")
	oracles := make([]*oracle.Oracle, len(kinds))
	for i := range kinds {
		oracles[i] = oracle.New(kinds[i].Graph())
	}
	r := rand.New(rand.NewPCG(31, 8))
	how := DefaultOrder()
	const cases = 10_000
	var answered, preferred, reserved, refused, small int
	for step := range cases {
		x := NewIndex()
		d := Demand{GPUs: 1 + r.IntN(8), Bytes: []int64{DefaultBytes, DefaultBytes, 64_000}[r.IntN(3)]}
		unwanted := "" // the model that the pod does not take
		if r.IntN(4) == 0 {
			unwanted = kinds[r.IntN(len(kinds))].Graph().GPUs[0].Model
		}
		nodes, machines := make([]oracle.Node, 2+r.IntN(4)), []Machine{}
		for i := range nodes {
			at := r.IntN(len(kinds))
			m, pods := drawn(r, kinds[at])
			x.Put(i, m)
			x.Run(i, pods)
			machines = append(machines, m)
			nodes[i] = oracle.Node{Oracle: oracles[at], Whole: m.Healthy, Free: m.Free, Pods: pods, Preference: int64(r.IntN(3))}
			if kinds[at].Graph().GPUs[0].Model == unwanted {
				nodes[i].Refused = m.Healthy
			}
		}
		choices := oracle.Across(nodes, d.GPUs, d.Constraint, d.Bytes)
		best := NoBest(TermsOf(&d, &how, x.Reserved(d.GPUs, how.Headroom)))
		offers := map[int]*Offer{}
		for i, m := range machines {
			asked := d
			asked.Suitable = func(*nvtopo.Graph) nvtopo.Mask { return ^nodes[i].Refused }
			o, ok := m.Offer(&asked)
			if ok != choices[i].Found || ok && o.Set != choices[i].Set {
				t.Fatalf("step %d, %+v: node %d offers %v (%t), by brute force %+v", step, d, i, o.Set, ok, choices[i])
			}
			if ok {
				o.Preference = nodes[i].Preference
				offers[i] = &o
				best.Lead(&o, i)
			}
		}
		for i, c := range choices {
			o := offers[i]
			among := o != nil && best.Among(o)
			if among != (c.Score != nil) {
				t.Fatalf("step %d, %+v: node %d of preference %d takes part %t, by brute force %t: %+v", step, d, i, nodes[i].Preference, among, c.Score != nil, choices)
			}
			if among {
				best.Add(o)
			}
		}
		raws := map[int64][]int{} // raw score -> nodes
		for i, o := range offers {
			if best.Among(o) {
				raw := how.Weights.Raw(o, &best)
				raws[raw] = append(raws[raw], i)
			}
		}
		if len(raws) == 0 {
			continue
		}
		winners, allowed := raws[slices.Max(slices.Collect(maps.Keys(raws)))], oracle.Allowed(choices)
		for _, i := range winners {
			if !slices.Contains(allowed, i) {
				t.Errorf("step %d, %+v: node %d wins, by brute force %v: %+v", step, d, i, allowed, choices)
			}
		}
		count := func(n *int, is bool) {
			if is {
				*n++
			}
		}
		count(&answered, true)
		count(&preferred, best.Preference > 0)
		count(&reserved, slices.ContainsFunc(choices, func(c oracle.Choice) bool { return c.Reserved }))
		count(&refused, slices.ContainsFunc(nodes, func(n oracle.Node) bool { return n.Refused != 0 }))
		count(&small, d.Bytes < DefaultBytes)
	}
	t.Logf("%d of %d cases had a node: %d with a wish for hardware that some node meets, %d with machines left to larger pods, %d with a model that is not wanted, %d with small messages",
		answered, cases, preferred, reserved, refused, small)
	if min(preferred, reserved, refused, small) < 500 {
		t.Error("too few of some sort to show anything")
	}
}

// drawn is a machine in some state, and the pods that run there.
func drawn(r *rand.Rand, tb *nvtopo.Tables) (m Machine, pods []int) {
	full := nvtopo.FullMask(tb.Graph().Len())
	m = Machine{Tables: tb, Healthy: full, Free: full}
	if r.IntN(8) == 0 {
		m.Healthy &^= 1 << r.IntN(full.Len())
	}
	switch r.IntN(6) {
	case 0, 1, 2:
		m.Free = nvtopo.Mask(r.Uint64())
	case 3:
		m.Free = 0
	}
	m.Free &= m.Healthy
	return m, divided(r, (m.Healthy &^ m.Free).Len())
}

// divided divides GPUs in use into pods of 1, 2, 4 and 8, every other time into the largest.
func divided(r *rand.Rand, gpus int) (pods []int) {
	least := r.IntN(2) * 3
	for gpus > 0 {
		n := 1 << max(least, r.IntN(4))
		if n > gpus {
			least--
		} else {
			pods, gpus = append(pods, n), gpus-n
		}
	}
	return pods
}
