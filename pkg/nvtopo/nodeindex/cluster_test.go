// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// tables returns the tables of catalogue machines, one set per class.
func tables(tb testing.TB, names ...string) []*nvtopo.Tables {
	tb.Helper()
	r := nvtopo.NewRegistry(nvtopo.DefaultWeights())
	var out []*nvtopo.Tables
	for _, name := range names {
		m, err := machine.Lookup(name)
		if err != nil {
			tb.Fatal(err)
		}
		g, err := m.GraphFor("n")
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, r.Tables(g))
	}
	return out
}

// TestBands: bands follow the share of the best ring.
func TestBands(t *testing.T) {
	tests := map[string]struct {
		gpus       int
		ring, best int64
		want       int
	}{
		"the best ring":                       {4, 50, 50, BandBest},
		"one GPU has no ring to lose":         {1, 0, 0, BandBest},
		"exactly three quarters":              {2, 75, 100, BandThreeQuarter},
		"just below three quarters":           {2, 74, 100, BandHalf},
		"exactly half":                        {2, 50, 100, BandHalf},
		"exactly a quarter":                   {2, 25, 100, BandQuarter},
		"less than a quarter":                 {2, 24, 100, BandRest},
		"GPUs without any link but with rank": {2, 0, 100, BandRest},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := band(tc.gpus, tc.ring, tc.best); got != tc.want {
				t.Errorf("band is %d, want %d", got, tc.want)
			}
		})
	}
}

// TestKubeletPolicy: the kubelet's policy only tightens the choice.
func TestKubeletPolicy(t *testing.T) {
	tests := map[string]struct{ pod, kubelet, want nvtopo.Policy }{
		"a lax kubelet changes nothing":       {nvtopo.PolicyRestricted, nvtopo.PolicyNone, nvtopo.PolicyRestricted},
		"a strict kubelet binds a lax pod":    {nvtopo.PolicyNone, nvtopo.PolicySingleNUMANode, nvtopo.PolicySingleNUMANode},
		"the stricter pod keeps its policy":   {nvtopo.PolicySingleNUMANode, nvtopo.PolicyRestricted, nvtopo.PolicySingleNUMANode},
		"a restricted kubelet binds lax pods": {nvtopo.PolicyBestEffort, nvtopo.PolicyRestricted, nvtopo.PolicyRestricted},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Tighten(nvtopo.Constraint{Policy: tc.pod}, tc.kubelet).Policy; got != tc.want {
				t.Errorf("policy is %v, want %v", got, tc.want)
			}
		})
	}
}

// linear is the choice across machines without buckets: every machine judged by
// itself. It returns all machines that are as good as the best.
func linear(machines map[int]Machine, d *Demand, w *Order) map[int]int64 {
	offers := map[int]Offer{}
	best := NoBest(TermsOf(d, w, Reserved{}))
	for node, m := range machines {
		if d.KnownOnly && m.Unknown {
			continue
		}
		if o, ok := m.Offer(d); ok {
			offers[node] = o
			best.Lead(&o, node)
		}
	}
	for _, o := range offers {
		if best.Among(&o) {
			best.Add(&o)
		}
	}
	winners, top := map[int]int64{}, int64(-1)
	for node, o := range offers {
		if !best.Among(&o) {
			continue
		}
		raw := w.Weights.Raw(&o, &best)
		if raw > top {
			clear(winners)
			top = raw
		}
		if raw == top {
			winners[node] = raw
		}
	}
	return winners
}

// TestIndexLinearSearch: the index chooses as a linear search does. It changes machines at random
// and compares every choice with one that looks at each machine.
func TestIndexLinearSearch(t *testing.T) {
	kinds := tables(t, "dgx1-v100", "l40s-8", "dgx-h100", "a100-pcie-4-bridged")
	constraints := []nvtopo.Constraint{
		{},
		{Policy: nvtopo.PolicySingleNUMANode},
		{Policy: nvtopo.PolicyRestricted},
		{MinBandwidth: 20_000_000},
		{MinLink: nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 1}},
	}
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 1))
		x, machines := NewIndex(), map[int]Machine{}
		for step := range 1500 {
			node := r.IntN(40)
			switch {
			case r.IntN(12) == 0:
				x.Remove(node)
				delete(machines, node)
			default:
				tb := kinds[r.IntN(len(kinds))]
				full := nvtopo.FullMask(tb.Graph().Len())
				m := Machine{Tables: tb, Healthy: full, Kind: uint64(r.IntN(2))}
				if r.IntN(8) == 0 {
					m.Healthy &^= 1 << r.IntN(tb.Graph().Len())
				}
				m.Free = nvtopo.Mask(r.Uint64()) & m.Healthy
				if r.IntN(8) == 0 {
					m.Held, m.Unknown = r.IntN(3), true
				}
				if r.IntN(8) == 0 {
					m.Kubelet = nvtopo.PolicySingleNUMANode
				}
				x.Put(node, m)
				machines[node] = m
			}
			if step%5 != 0 {
				continue
			}
			d := Demand{GPUs: 1 + r.IntN(8), Constraint: constraints[r.IntN(len(constraints))], KnownOnly: r.IntN(2) == 0}
			if r.IntN(6) == 0 {
				d.Suitable = func(g *nvtopo.Graph) nvtopo.Mask { return nvtopo.FullMask(g.Len() / 2) }
			}
			w := DefaultOrder()
			if r.IntN(4) == 0 {
				w.Weights = Weights{Fragmentation: 1}
			}
			want := linear(machines, &d, &w)
			node, o, ok := x.Best(&d, &w)
			if ok != (len(want) > 0) {
				t.Fatalf("seed %d step %d, %+v: found %t, a linear search %v", seed, step, d, ok, want)
			}
			if !ok {
				continue
			}
			if _, equal := want[node]; !equal {
				t.Fatalf("seed %d step %d, %+v: node %d, a linear search takes one of %v", seed, step, d, node, want)
			}
			if direct, _ := func() (Offer, bool) { m := machines[node]; return m.Offer(&d) }(); direct != o {
				t.Fatalf("seed %d step %d: offer (-direct,+index):\n%s", seed, step, cmp.Diff(direct, o))
			}
			for n := range want {
				if n < node {
					t.Fatalf("seed %d step %d: node %d, but the lower %d is as good", seed, step, node, n)
				}
			}
		}
		if got := x.Largest(); got != largest(machines) {
			t.Errorf("seed %d: largest machine has %d GPUs, want %d", seed, got, largest(machines))
		}
	}
}

func largest(machines map[int]Machine) int {
	n := 0
	for _, m := range machines {
		n = max(n, m.Tables.Graph().Len())
	}
	return n
}

// TestSingleGPUDamage: a single GPU comes from where it damages least.
func TestSingleGPUDamage(t *testing.T) {
	bridged := tables(t, "a100-pcie-4-bridged")[0]
	full := nvtopo.FullMask(4)
	x := NewIndex()
	x.Put(0, Machine{Tables: bridged, Healthy: full, Free: full})
	x.Put(1, Machine{Tables: bridged, Healthy: full, Free: nvtopo.MaskOf(0, 1)})
	x.Put(2, Machine{Tables: bridged, Healthy: full, Free: nvtopo.MaskOf(1, 2, 3)}) // one bridge is broken already
	w := DefaultOrder()
	node, o, ok := x.Best(&Demand{GPUs: 1}, &w)
	if !ok || node != 2 || o.Set != nvtopo.MaskOf(1) {
		t.Errorf("GPUs %v of node %d (%t), want the one of node 2 whose bridge is broken: 1", o.Set.Positions(), node, ok)
	}
}

// TestSingleGPUSmallMachine: a single GPU comes from the smaller of machines with the same links.
func TestSingleGPUSmallMachine(t *testing.T) {
	w := DefaultOrder()
	for _, pair := range [][2]string{{"hgx-a100-4", "hgx-a100-8"}, {"gb200-tray", "hgx-b200"}} {
		x := NewIndex()
		for i, tb := range tables(t, pair[1], pair[0]) {
			full := nvtopo.FullMask(tb.Graph().Len())
			x.Put(i, Machine{Tables: tb, Healthy: full, Free: full})
		}
		if node, o, ok := x.Best(&Demand{GPUs: 1}, &w); !ok || node != 1 {
			t.Errorf("%v: %+v of the %s (%t), which would no longer have eight together", pair, o, pair[1], ok)
		}
	}
}

// TestSingleGPUDegraded: a single GPU comes from a degraded one first.
func TestSingleGPUDegraded(t *testing.T) {
	bridged := tables(t, "a100-pcie-4-bridged")[0]
	full := nvtopo.FullMask(4)
	x := NewIndex()
	x.Put(0, Machine{Tables: bridged, Healthy: full, Free: full})
	x.Put(1, Machine{Tables: bridged, Healthy: full, Free: full, Degraded: nvtopo.MaskOf(3)})
	w := DefaultOrder()
	node, o, ok := x.Best(&Demand{GPUs: 1}, &w)
	if !ok || node != 1 || o.Set != nvtopo.MaskOf(3) || o.Lost != 0 || o.FreeAfter != 3 {
		t.Errorf("%+v of node %d (%t), want the degraded GPU 3 of node 1, with which nothing is lost and 3 stay free", o, node, ok)
	}
	x.Remove(0)
	node, o, ok = x.Best(&Demand{GPUs: 2}, &w)
	if !ok || node != 1 || o.Set != nvtopo.MaskOf(0, 1) || o.Lost != 27 {
		t.Errorf("%+v of node %d (%t), want 0 and 1, all that is worth something on a machine of three", o, node, ok)
	}
	if _, o, ok := x.Best(&Demand{GPUs: 4}, &w); ok {
		t.Errorf("four GPUs %v, one of which is degraded", o.Set.Positions())
	}
}

// TestIdleBuckets shows that states that come and go do not fill the memory.
func TestIdleBuckets(t *testing.T) {
	tb := tables(t, "dgx-h100")[0]
	x := NewIndex()
	for i := range 3 * maxIdle {
		x.Put(0, Machine{Tables: tb, Healthy: nvtopo.FullMask(8), Free: 1, Kind: uint64(i)})
	}
	if n := len(x.buckets); n > maxIdle+2 {
		t.Errorf("%d buckets for one machine, want at most %d", n, maxIdle+2)
	}
	if len(x.active) != 1 {
		t.Errorf("%d active buckets, want 1", len(x.active))
	}
}

// BenchmarkBest is the choice among 5000 machines in as many states as they can
// have, without other work.
func BenchmarkBest(b *testing.B) {
	kinds := tables(b, "dgx1-v100", "l40s-8", "dgx-h100", "dgx-a100")
	r := rand.New(rand.NewPCG(1, 1))
	x := NewIndex()
	for node := range 5000 {
		x.Put(node, Machine{Tables: kinds[node%len(kinds)], Healthy: 0xff, Free: nvtopo.Mask(r.UintN(256))})
	}
	w := DefaultOrder()
	b.ReportAllocs()
	var into []Candidate
	k := 0
	for b.Loop() {
		k = k%8 + 1
		d := Demand{GPUs: k}
		into = x.Candidates(&d, into[:0])
		x.Top(into, &d, &w, 0)
	}
}
