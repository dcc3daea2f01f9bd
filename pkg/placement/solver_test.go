// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

func gpus(n int) *podrequest.Request {
	r := &podrequest.Request{UID: "p"}
	if n > 0 {
		r.Resources, r.Containers = []podrequest.ResourceRequest{{Name: gpu, Count: n}}, []podrequest.Container{{Name: "main", GPUs: []int{n}}}
	}
	return r
}

// TestUsableGPUs: which of the GPUs of a machine of eight a pod gets, or why none.
func TestUsableGPUs(t *testing.T) {
	tests := map[string]struct {
		free, degraded nvtopo.Mask
		counted, asked int
		want           Reason
		wantOf         nvtopo.Mask // the set is among these
	}{
		"a degraded one is given to nobody who needs two": {free: nvtopo.MaskOf(0, 1), degraded: nvtopo.MaskOf(0), asked: 2, want: DegradedGPUs},
		"two intact ones beside it are":                   {free: nvtopo.MaskOf(0, 1, 2), degraded: nvtopo.MaskOf(0), asked: 2, wantOf: nvtopo.MaskOf(1, 2)},
		"who needs one has the degraded one":              {free: nvtopo.MaskOf(0, 1, 5), degraded: nvtopo.MaskOf(5), asked: 1, wantOf: nvtopo.MaskOf(5)},
		"those known by number may be any":                {free: nvtopo.MaskOf(0, 1, 2), counted: 2, asked: 2, want: FewGPUs},
		"what they leave is given":                        {free: nvtopo.MaskOf(0, 1, 2), counted: 2, asked: 1, wantOf: nvtopo.MaskOf(0, 1, 2)},
		"as many as are free":                             {free: nvtopo.MaskOf(1, 6), asked: 2, wantOf: nvtopo.MaskOf(1, 6)},
		"one more":                                        {free: nvtopo.MaskOf(1, 6), asked: 3, want: FewGPUs},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := nodeOf(t, "dgx1-v100")
			n.Accels[0].Degraded = tc.degraded
			u := *n.Idle
			u.Used, u.Counted = []nvtopo.Mask{nvtopo.FullMask(8) &^ tc.free}, []int{tc.counted}
			sets, reason := Pick(&u, gpus(tc.asked))
			if reason != tc.want || reason == Fits && (sets[0].Len() != tc.asked || sets[0]&^tc.wantOf != 0) {
				t.Errorf("%v, %s; want of %v, %s", sets[0].Positions(), reason.Name(), tc.wantOf.Positions(), tc.want.Name())
			}
		})
	}
}

// TestFit: whether some NUMA nodes of two have the requested CPU and memory.
func TestFit(t *testing.T) {
	type left = [2][2]int64 // CPU and memory of each
	tests := map[string]struct {
		left             left
		nodes            uint64
		milliCPU, memory int64
		want             Reason
	}{
		"all that is left":       {left: left{{2000, 10}, {}}, nodes: 1, milliCPU: 2000, memory: 10},
		"a thousandth more":      {left: left{{2000, 10}, {9000, 90}}, nodes: 1, milliCPU: 2001, want: NoNUMACPU},
		"a byte more":            {left: left{{2000, 10}, {9000, 90}}, nodes: 1, memory: 11, want: NoNUMAMemory},
		"both together":          {left: left{{2000, 10}, {1000, 20}}, nodes: 3, milliCPU: 3000, memory: 30},
		"a debt is one's own":    {left: left{{-2000, -10}, {4000, 20}}, nodes: 3, milliCPU: 4000, memory: 20},
		"of one with a debt too": {left: left{{-2000, -10}, {4000, 20}}, nodes: 1, milliCPU: 1, want: NoNUMACPU},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			u := &usage.Usage{}
			for _, l := range tc.left {
				u.NUMA = append(u.NUMA, usage.NUMAFree{MilliCPU: l[0], Memory: l[1]})
			}
			if got := fit(u, tc.nodes, tc.milliCPU, tc.memory); got != tc.want {
				t.Errorf("%s, want %s", got.Name(), tc.want.Name())
			}
		})
	}
}

// TestPickNUMA: which NUMA node of two, with four GPUs each, a pod of two CPUs without GPUs gets.
func TestPickNUMA(t *testing.T) {
	tests := map[string]struct {
		used nvtopo.Mask
		cpus [2]int64
		want uint64 // as a mask
	}{
		"that without free GPUs, though it has more CPU": {used: nvtopo.MaskOf(0, 1, 2, 3), cpus: [2]int64{8, 4}, want: 1},
		"of two with as many free GPUs the tightest":     {cpus: [2]int64{8, 4}, want: 2},
		"of two that are equal the first":                {cpus: [2]int64{4, 4}, want: 1},
		"the only one that has the CPU":                  {used: nvtopo.MaskOf(0, 1, 2, 3), cpus: [2]int64{1, 4}, want: 2},
		"both, if none has":                              {cpus: [2]int64{1, 1}, want: 3},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			u := *nodeOf(t, "dgx1-v100").Idle
			u.Used = []nvtopo.Mask{tc.used}
			u.NUMA = []usage.NUMAFree{{MilliCPU: 1000 * tc.cpus[0]}, {MilliCPU: 1000 * tc.cpus[1]}}
			if got, reason := pickNUMA(&u, &podrequest.Request{MilliCPU: 2000}); got != tc.want || reason != Fits {
				t.Errorf("%b, %s; want %b", got, reason.Name(), tc.want)
			}
		})
	}
}

// TestChooseCPUs: a pod of one GPU gets as many CPUs as it requests, rounded up, on its NUMA node.
func TestChooseCPUs(t *testing.T) {
	for name, tc := range map[string]struct {
		milliCPU int64
		want     int
	}{
		"none": {0, 0}, "a part of one": {1, 1}, "two": {2000, 2}, "one and a half": {1500, 2}, "more than there are": {1 << 40, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := nodeOf(t, "dgx1-v100")
			r := gpus(1)
			r.MilliCPU = tc.milliCPU
			a, reason := Choose(n.Idle, r, true)
			if reason != Fits || len(a.CPUs()) != tc.want {
				t.Fatalf("%s, CPUs %v; want %d", reason.Name(), a, tc.want)
			}
			for _, nn := range n.NUMA.NUMANodes {
				if nn.ID != a.NUMANodes[0] && len(a.CPUs().Minus(nn.CPUs)) != tc.want {
					t.Errorf("CPUs %v for GPU %v on NUMA node %v", a.CPUs(), a.GPUs(gpu), a.NUMANodes)
				}
			}
		})
	}
}
