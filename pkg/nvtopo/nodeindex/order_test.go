// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// standing is a machine of the catalogue with pods that run on its lowest GPUs.
type standing struct {
	machine string
	pods    []int
}

// TestOrder: machines are chosen by reserves, then time, then score.
func TestOrder(t *testing.T) {
	tests := map[string]struct {
		machines []standing
		gpus     int
		change   func(*Demand, *Order)
		want     int // the machine
	}{
		"a single GPU leaves a begun fast machine for an empty slow one": {
			machines: []standing{{"hgx-h200", []int{1, 1, 1}}, {"l40s-8", nil}}, gpus: 1, want: 1,
		},
		"with LeastLost it completes the machine that is begun": {
			machines: []standing{{"hgx-h200", []int{1, 1, 1}}, {"l40s-8", nil}}, gpus: 1, want: 0,
			change: func(_ *Demand, o *Order) { o.Singles = SinglesLeastLost },
		},
		"with SlowGPUs it takes the slower GPU, whatever the links": {
			machines: []standing{{"l40s-8", nil}, {"dgx1-v100", nil}, {"hgx-h200", []int{1, 1, 1}}}, gpus: 1, want: 1,
			change: func(_ *Demand, o *Order) { o.Singles = SinglesSlowGPUs },
		},
		"with SlowGPUs too it leaves slow machines of eight to the pods of eight on them": {
			machines: []standing{{"l40s-8", []int{8}}, {"l40s-8", []int{8}}, {"l40s-8", []int{8}}, {"l40s-8", nil}, {"gb200-tray", nil}}, gpus: 1, want: 4,
			change: func(_ *Demand, o *Order) { o.Singles = SinglesSlowGPUs },
		},
		"SlowGPUs changes nothing for two GPUs": {
			machines: []standing{{"dgx1-v100", nil}, {"hgx-h200", []int{4}}}, gpus: 2, want: 1,
			change: func(_ *Demand, o *Order) { o.Singles = SinglesSlowGPUs },
		},
		"of machines with the same links a single GPU takes the begun one": {
			machines: []standing{{"l40s-8", nil}, {"l40s-8", []int{1}}}, gpus: 1, want: 1,
		},
		"four GPUs take the links of twice the speed, though their latency is twice": {
			machines: []standing{{"h200-nvl-8", nil}, {"hgx-a100-8", nil}}, gpus: 4, want: 1,
		},
		"for small messages latency decides": {
			machines: []standing{{"h200-nvl-8", nil}, {"hgx-a100-8", nil}}, gpus: 4, want: 0,
			change: func(d *Demand, _ *Order) { d.Bytes = 64_000 },
		},
		"a pair takes the faster of two NVSwitch machines": {
			machines: []standing{{"dgx-a100", nil}, {"hgx-h200", []int{4}}}, gpus: 2, want: 1,
		},
		"half of the best ring of one machine beats all of a slower one's": {
			machines: []standing{{"l40s-8", nil}, {"dgx1-v100", []int{4}}}, gpus: 4, want: 1,
		},
		"a pair leaves fast machines of eight to the pods of eight on them": {
			machines: []standing{{"hgx-a100-8", []int{8}}, {"hgx-a100-8", []int{8}}, {"hgx-a100-8", nil}, {"hgx-a100-8", []int{8}}, {"h200-nvl-8", nil}}, gpus: 2, want: 4,
		},
		"until no other has room": {
			machines: []standing{{"hgx-a100-8", []int{8}}, {"hgx-a100-8", nil}, {"h200-nvl-8", []int{8}}}, gpus: 2, want: 1,
		},
		"and not where more than 1.5 times the root of those in use are left": {
			machines: []standing{{"hgx-a100-8", []int{8}}, {"hgx-a100-8", nil}, {"hgx-a100-8", nil}, {"h200-nvl-8", nil}}, gpus: 2, want: 1,
		},
		"one that is begun it leaves as well": {
			machines: []standing{{"hgx-a100-8", []int{8}}, {"hgx-a100-8", nil}, {"hgx-a100-8", []int{1}}, {"h200-nvl-8", nil}}, gpus: 2, want: 3,
		},
		"a single GPU leaves slow machines of eight to the pods of eight on them": {
			machines: []standing{{"l40s-8", []int{8}}, {"l40s-8", []int{8}}, {"l40s-8", []int{8}}, {"l40s-8", nil}, {"gb200-tray", nil}}, gpus: 1, want: 4,
		},
		"unless there is no headroom": {
			machines: []standing{{"l40s-8", []int{8}}, {"l40s-8", []int{8}}, {"l40s-8", []int{8}}, {"l40s-8", nil}, {"gb200-tray", nil}}, gpus: 1, want: 3,
			change: func(_ *Demand, o *Order) { o.Headroom = 0 },
		},
		"a single GPU leaves one that is begun too": {
			machines: []standing{{"l40s-8", []int{8}}, {"l40s-8", []int{8}}, {"l40s-8", []int{1}}, {"gb200-tray", []int{2}}}, gpus: 1, want: 3,
		},
		"unless the others are tight for pods of several": {
			machines: []standing{{"l40s-8", []int{8}}, {"l40s-8", []int{8}}, {"l40s-8", []int{1}}, {"gb200-tray", []int{2, 1}}}, gpus: 1, want: 2,
		},
		"a machine of eight with pairs of fast links only is large for pods of eight": {
			machines: []standing{{"a6000-8-bridged", []int{8}}, {"a6000-8-bridged", nil}, {"a100-pcie-4-bridged", nil}}, gpus: 1, want: 2,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x := NewIndex()
			for i, s := range tc.machines {
				tb := tables(t, s.machine)[0]
				used := 0
				for _, n := range s.pods {
					used += n
				}
				full := nvtopo.FullMask(tb.Graph().Len())
				x.Put(i, Machine{Tables: tb, Healthy: full, Free: full &^ nvtopo.FullMask(used)})
				x.Run(i, s.pods)
			}
			d, o := Demand{GPUs: tc.gpus}, DefaultOrder()
			if tc.change != nil {
				tc.change(&d, &o)
			}
			if got, offer, ok := x.Best(&d, &o); !ok || got != tc.want {
				t.Errorf("node %d (%t), %+v; want node %d; reserved are %+v", got, ok, offer, tc.want, x.Reserved(tc.gpus, o.Headroom))
			}
		})
	}
}

// TestReservedForgets: pods of a machine have no effect once it is gone or changed.
func TestReservedForgets(t *testing.T) {
	large, small := tables(t, "l40s-8")[0], tables(t, "gb200-tray")[0]
	x := NewIndex()
	put := func(node int, tb *nvtopo.Tables, free nvtopo.Mask, pods ...int) {
		full := nvtopo.FullMask(tb.Graph().Len())
		x.Put(node, Machine{Tables: tb, Healthy: full, Free: free})
		x.Run(node, pods)
	}
	put(0, large, 0, 8)
	put(1, small, 0xf)
	if r := x.Reserved(1, 1.5); !r.GPUs.Has(8) || r.GPUs.Has(4) {
		t.Errorf("reserved are %+v, want machines of 8", r)
	}
	put(0, large, 0xff)
	if r := x.Reserved(1, 1.5); r != (Reserved{}) {
		t.Errorf("reserved are %+v after the pod of 8 went, want none", r)
	}
	put(0, large, 0, 8)
	x.Remove(1)
	if r := x.Reserved(1, 1.5); r != (Reserved{}) {
		t.Errorf("reserved are %+v in a cluster of one size, want none", r)
	}
	x.Remove(0)
	if len(x.supply[0])+len(x.supply[1])+len(x.traffic) != 0 || x.held != [nvtopo.MaxGPUs + 1]int{} {
		t.Errorf("%v machines and %v GPUs count in an empty index", x.supply, x.held)
	}
}

// TestLeftFaster: a machine with faster links that is left to larger pods is named, and no other is.
func TestLeftFaster(t *testing.T) {
	fast, slow := []standing{{"hgx-a100-8", []int{8}}, {"hgx-a100-8", []int{8}}, {"hgx-a100-8", []int{8}}, {"hgx-a100-8", nil}}, standing{"h200-nvl-8", nil}
	tests := map[string]struct {
		machines []standing
		gpus     int
		bytes    int64
		prefers  int // the machine that the pod prefers for its hardware, above 0
		want     int // the machine that is left; 0: none
		wantFor  int
	}{
		"a pair leaves the machine to the pods of eight":            {machines: append(fast[:4:4], slow), gpus: 4, want: 3, wantFor: 8},
		"a pod of eight needs it itself":                            {machines: append(fast[:4:4], slow), gpus: 8},
		"a single GPU has no use for its links":                     {machines: append(fast[:4:4], slow), gpus: 1},
		"its links would not be faster for small messages":          {machines: append(fast[:4:4], slow), gpus: 4, bytes: 64_000},
		"without another machine it is taken":                       {machines: fast, gpus: 4},
		"it is full":                                                {machines: append(fast[:3:3], slow), gpus: 4},
		"the pod likes the other machine better for its hardware":   {machines: append(fast[:4:4], slow), gpus: 4, prefers: 4},
		"though the pod likes the machine that is left for its own": {machines: append(fast[:4:4], slow), gpus: 4, prefers: 3, want: 3, wantFor: 8},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			x, o := NewIndex(), DefaultOrder()
			d := Demand{GPUs: tc.gpus, Bytes: tc.bytes}
			var machines []Machine
			for i, s := range tc.machines {
				tb := tables(t, s.machine)[0]
				used := 0
				for _, n := range s.pods {
					used += n
				}
				full := nvtopo.FullMask(tb.Graph().Len())
				machines = append(machines, Machine{Tables: tb, Healthy: full, Free: full &^ nvtopo.FullMask(used)})
				x.Put(i, machines[i])
				x.Run(i, s.pods)
			}
			best := NoBest(TermsOf(&d, &o, x.Reserved(tc.gpus, o.Headroom)))
			for i := range machines {
				if offer, ok := machines[i].Offer(&d); ok {
					if i == tc.prefers {
						offer.Preference = int64(tc.prefers)
					}
					best.Lead(&offer, i)
				}
			}
			left, ok := best.LeftFaster()
			if ok != (tc.want > 0) || ok && (left.Node != tc.want || left.PodsOf != tc.wantFor || left.Seconds >= best.Least) {
				t.Errorf("%+v (%t) beside %v s, want machine %d for pods of %d", left, ok, best.Least, tc.want, tc.wantFor)
			}
			if tc.prefers > 0 {
				return // the index knows of no preferences
			}
			_, rated := x.Top(x.Candidates(&d, nil), &d, &o, 0)
			if of, same := rated.LeftFaster(); same != ok || of.Seconds != left.Seconds && ok || of.PodsOf != left.PodsOf && ok {
				t.Errorf("by the index %+v (%t), want %+v", of, same, left)
			}
		})
	}
}

// TestCompare: for offers in any order, Compare puts first the one that Lead prefers.
func TestCompare(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		best := NoBest(Terms{GPUs: 1 + r.IntN(2), Bytes: DefaultBytes, Reserved: Reserved{GPUs: Sizes(1 << 7)}})
		offers := make([]Offer, 1+r.IntN(5))
		for i := range offers {
			links := int64(1+r.IntN(3)) * 50_000_000
			offers[i] = Offer{GPUs: 4 + 4*r.IntN(2), Preference: int64(r.IntN(2)), Ring: links, Links: links}
			best.Lead(&offers[i], i)
		}
		first := slices.MinFunc(offers, func(x, y Offer) int { return best.Compare(&x, &y) })
		for i := range offers {
			if !best.Among(&first) || best.Among(&offers[i]) != (best.Compare(&offers[i], &first) == 0) {
				t.Fatalf("%+v is first of %+v", first, offers)
			}
		}
	}
}
