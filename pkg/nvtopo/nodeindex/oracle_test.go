// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

// TestIndexBruteForce: the index chooses as a brute force does. It compares choices among machines
// of different size and speed with the published order, which the oracle follows by itself. Scores
// are rounded to a thousandth of a point before the tightest fit decides.
func TestIndexBruteForce(t *testing.T) {
	kinds := tables(t, "dgx1-v100", "l40s-8", "a100-pcie-4-bridged", "hgx-a100-4", "hgx-a100-8", "gb200-tray", "power9-v100-4", "h200-nvl-8")
	oracles := make([]*oracle.Oracle, len(kinds))
	for i := range kinds {
		oracles[i] = oracle.New(kinds[i].Graph())
	}
	constraints := []nvtopo.Constraint{{}, {Policy: nvtopo.PolicySingleNUMANode}, {MinBandwidth: 20_000_000}}
	rounded := big.NewRat(1, 1000)
	r := rand.New(rand.NewPCG(11, 1))
	answered, sizes, kept := 0, 0, 0
	for step := range 10_000 {
		x := NewIndex()
		nodes := make([]oracle.Node, 2+r.IntN(5))
		for i := range nodes {
			at := r.IntN(len(kinds))
			full := nvtopo.FullMask(kinds[at].Graph().Len())
			m := Machine{Tables: kinds[at], Healthy: full, Free: full}
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
			x.Put(i, m)
			pods := divided(r, (m.Healthy &^ m.Free).Len())
			x.Run(i, pods)
			nodes[i] = oracle.Node{Oracle: oracles[at], Whole: m.Healthy, Free: m.Free, Pods: pods}
		}
		d := Demand{GPUs: 1 + r.IntN(8), Bytes: []int64{DefaultBytes, DefaultBytes, 64_000}[r.IntN(3)], Constraint: constraints[r.IntN(len(constraints))]}
		w := DefaultOrder()
		got, offer, ok := x.Best(&d, &w)
		choices := oracle.Across(nodes, d.GPUs, d.Constraint, d.Bytes)
		var best *oracle.Choice
		for i := range choices {
			if c := &choices[i]; c.Score != nil && (best == nil || c.Score.Cmp(best.Score) > 0 || c.Score.Cmp(best.Score) == 0 && c.Left < best.Left) {
				best = c
			}
		}
		if ok != (best != nil) {
			t.Fatalf("step %d, %+v: found %t, by brute force %t", step, d, ok, best != nil)
		}
		if !ok {
			continue
		}
		answered++
		if slices.ContainsFunc(choices, func(c oracle.Choice) bool { return c.Reserved }) {
			kept++
		}
		c := choices[got]
		if c.Score == nil || c.Set != offer.Set {
			t.Fatalf("step %d, %+v: GPUs %v of node %d, by brute force its best are %v and it is none of the best: %+v", step, d, offer.Set.Positions(), got, c.Set.Positions(), choices)
		}
		behind := new(big.Rat).Sub(best.Score, c.Score)
		if behind.Cmp(rounded) > 0 || behind.Sign() == 0 && c.Left != best.Left {
			t.Errorf("step %d, %+v: node %d has %s points and %d GPUs left, the best %s and %d",
				step, d, got, c.Score.FloatString(6), c.Left, best.Score.FloatString(6), best.Left)
		}
		if nodes[got].Whole.Len() < nvtopo.FullMask(8).Len() {
			sizes++
		}
	}
	if answered < 5000 || sizes < 500 || sizes > answered-500 || kept < 500 {
		t.Errorf("%d of 10000 answered, %d of them by small machines, some machine reserved in %d: too few to show anything", answered, sizes, kept)
	}
}

// TestPreferenceBruteForce: where a pod prefers some machines, Best admits the same ones as the oracle.
// Offers are rated one by one, as the plugin rates them; Reserved comes from the index.
func TestPreferenceBruteForce(t *testing.T) {
	kinds := tables(t, "dgx1-v100", "l40s-8", "hgx-a100-4", "hgx-a100-8", "h200-nvl-8")
	oracles := make([]*oracle.Oracle, len(kinds))
	for i := range kinds {
		oracles[i] = oracle.New(kinds[i].Graph())
	}
	r := rand.New(rand.NewPCG(31, 8))
	how := DefaultOrder()
	decided := 0
	for step := range 3000 {
		x := NewIndex()
		nodes, machines := make([]oracle.Node, 2+r.IntN(4)), []Machine{}
		for i := range nodes {
			at := r.IntN(len(kinds))
			full := nvtopo.FullMask(kinds[at].Graph().Len())
			m := Machine{Tables: kinds[at], Healthy: full, Free: full & nvtopo.Mask(r.Uint64()|r.Uint64())}
			pods := divided(r, (full &^ m.Free).Len())
			x.Put(i, m)
			x.Run(i, pods)
			machines = append(machines, m)
			nodes[i] = oracle.Node{Oracle: oracles[at], Whole: full, Free: m.Free, Pods: pods, Preference: int64(r.IntN(3))}
		}
		d := Demand{GPUs: 1 + r.IntN(4), Bytes: DefaultBytes}
		choices := oracle.Across(nodes, d.GPUs, d.Constraint, d.Bytes)
		best := NoBest(TermsOf(&d, &how, x.Reserved(d.GPUs, how.Reserve)))
		offers := map[int]*Offer{}
		for i, c := range choices {
			if !c.Found {
				continue
			}
			o := OfferOf(machines[i].Tables, machines[i].Healthy, machines[i].Free, 0, c.Set)
			o.Preference = nodes[i].Preference
			offers[i] = &o
			best.Lead(&o)
		}
		for i, c := range choices {
			o := offers[i]
			if got := o != nil && best.Among(o); got != (c.Score != nil) {
				t.Fatalf("step %d, %+v: node %d of preference %d takes part %t, by brute force %t: %+v", step, d, i, nodes[i].Preference, got, c.Score != nil, choices)
			}
			if o != nil && o.Preference > 0 && best.Among(o) {
				decided++
			}
		}
	}
	if decided < 1000 {
		t.Errorf("%d preferred machines took part, too few to show anything", decided)
	}
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
