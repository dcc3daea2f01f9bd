// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"math"
	"math/bits"
)

// Sizes is a set of numbers of GPUs from 1 to nvtopo.MaxGPUs.
type Sizes uint64

// Has reports whether a number is in the set.
func (s Sizes) Has(n int) bool { return n > 0 && s>>(n-1)&1 == 1 }

func (s *Sizes) add(n int) { *s |= 1 << (n - 1) }

// largestBelow returns the largest number of the set below n; 0 if there is none.
func (s Sizes) largestBelow(n int) int { return bits.Len64(uint64(s) & (1<<(n-1) - 1)) }

// Reserved are machines that are left to larger pods, by the two sizes of a machine.
type Reserved struct{ GPUs, Together Sizes }

// Has reports whether the machine of an offer is one of them.
func (r *Reserved) Has(o *Offer) bool { return r.of([2]int{o.GPUs, o.Together}) }

func (r *Reserved) of(size [2]int) bool { return r.GPUs.Has(size[0]) || r.Together.Has(size[1]) }

// work is the load of a machine as far as reserves depend on it.
type work struct {
	size  [2]int // GPUs of the machine, and how many of them have fast links to each other
	least int    // GPUs of its smallest pod; 0 without one
	pods  []int  // GPUs of each
}

// supply is the GPUs of machines, by one of their sizes and the GPUs of their smallest pod.
type supply map[[2]int]int

func (s supply) add(size, least, gpus int) {
	k := [2]int{size, least}
	if s[k] += gpus; s[k] == 0 {
		delete(s, k)
	}
}

// Run sets the pods that run on a machine, by the GPUs of each. The machine must have been Put.
func (x *Index) Run(node int, pods []int) {
	m := &x.where[node].group.bucket.Machine
	whole := m.Healthy &^ m.Degraded
	x.unrun(node)
	if whole == 0 {
		return
	}
	r := &x.runs[node]
	r.size, r.least, r.pods = [2]int{whole.Len(), together(m.Tables, whole)}, 0, append(r.pods[:0], pods...)
	for _, n := range pods {
		if r.least == 0 || n < r.least {
			r.least = n
		}
	}
	x.countRunning(r, 1)
}

// unrun removes the load of a machine from the sums.
func (x *Index) unrun(node int) {
	x.runs = append(x.runs, make([]work, max(0, node+1-len(x.runs)))...)
	if r := &x.runs[node]; r.size[0] > 0 {
		x.countRunning(r, -1)
		r.size, r.pods = [2]int{}, r.pods[:0]
	}
}

// countRunning adds or removes the load of a machine in the sums.
func (x *Index) countRunning(r *work, by int) {
	t := traffic{machines: by}
	free := r.size[0]
	for _, n := range r.pods {
		x.held[n] += by * n
		free -= n
		if n > 1 {
			t.pods, t.held = t.pods+by, t.held+by*n
		}
	}
	t.free = by * max(0, free)
	for i := range x.supply {
		x.supply[i].add(r.size[i], r.least, by*r.size[0])
	}
	if t = x.traffic[r.size].plus(t); t.machines == 0 {
		delete(x.traffic, r.size)
	} else {
		x.traffic[r.size] = t
	}
}

// traffic is the sums over machines of the same two sizes: their unused GPUs, the pods of several GPUs on
// them, and the GPUs of these pods.
type traffic struct{ machines, free, pods, held int }

func (t traffic) plus(o traffic) traffic {
	return traffic{t.machines + o.machines, t.free + o.free, t.pods + o.pods, t.held + o.held}
}

// tight reports whether fewer GPUs are free than the root of the number of pods of several GPUs, times
// their mean size: that number fluctuates by as much.
func (t *traffic) tight() bool { return t.free*t.free*t.pods < t.held*t.held }

// Reserved returns the machines that are left to pods larger than one of the given GPUs. Machines are
// reserved if the next smaller ones would suffice for the pod, and future pods too large for those would
// not find enough whole machines if smaller pods broke into more. For a single GPU none is reserved while
// the other machines are tight for pods of several GPUs, which would be driven from there.
func (x *Index) Reserved(gpus int, headroom float64) Reserved {
	out := Reserved{GPUs: x.scarce(0, gpus, headroom), Together: x.scarce(1, gpus, headroom)}
	if out.GPUs|out.Together == 0 || gpus == 1 && x.othersTight(&out) {
		return Reserved{}
	}
	return out
}

func (x *Index) othersTight(r *Reserved) bool {
	var sum traffic
	for size, t := range x.traffic {
		if !r.of(size) {
			sum = sum.plus(t)
		}
	}
	return sum.tight()
}

// scarce returns the values of a size that are scarce for pods larger than one of the given GPUs.
func (x *Index) scarce(which, gpus int, headroom float64) (out Sizes) {
	if headroom <= 0 {
		return 0
	}
	s := x.supply[which]
	var sizes Sizes
	for k := range s {
		sizes.add(k[0])
	}
	for rest := sizes; rest != 0; rest &= rest - 1 {
		size := bits.TrailingZeros64(uint64(rest)) + 1
		smaller := sizes.largestBelow(size)
		if smaller < gpus {
			continue
		}
		held, unbroken := 0, 0
		for n := smaller + 1; n < len(x.held); n++ {
			held += x.held[n]
		}
		for k, n := range s {
			if k[0] >= size && (k[1] == 0 || k[1] > smaller) {
				unbroken += n
			}
		}
		// The pods fill held / size machines, and their number fluctuates by about its root.
		if float64(unbroken-held) < headroom*math.Sqrt(float64(held*size)) {
			out.add(size)
		}
	}
	return out
}

// terms returns the current terms of a demand.
func (x *Index) terms(d *Demand, o *Order) Terms {
	return TermsOf(d, o, x.Reserved(d.GPUs, o.Headroom))
}

// TermsOf returns the terms of a demand where some machines are reserved.
func TermsOf(d *Demand, o *Order, reserved Reserved) Terms {
	t := Terms{GPUs: d.GPUs, Bytes: d.Bytes, Tolerance: o.Tolerance, Singles: o.Singles, Reserved: reserved}
	if t.Bytes == 0 {
		t.Bytes = DefaultBytes
	}
	return t
}
