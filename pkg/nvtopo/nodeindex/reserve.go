// SPDX-License-Identifier: Apache-2.0

package nodeindex

import "math/bits"

// Sizes is a set of numbers of GPUs from 1 to nvtopo.MaxGPUs.
type Sizes uint64

// Has reports whether a number is in the set.
func (s Sizes) Has(n int) bool { return n > 0 && s>>(n-1)&1 == 1 }

func (s *Sizes) add(n int) { *s |= 1 << (n - 1) }

// largestBelow is the largest number of the set below n; 0 if there is none.
func (s Sizes) largestBelow(n int) int { return bits.Len64(uint64(s) & (1<<(n-1) - 1)) }

// Reserved are machines that are left to larger pods, by the two sizes of a machine.
type Reserved struct{ GPUs, Together Sizes }

// Has reports whether the machine of an offer is one of them.
func (r *Reserved) Has(o *Offer) bool { return r.GPUs.Has(o.GPUs) || r.Together.Has(o.Together) }

// work is what runs on a machine, as far as reserves ask.
type work struct {
	size  [2]int // GPUs of the machine, and how many of them work together
	least int    // GPUs of its smallest pod; 0 without one
	pods  []int  // GPUs of each
}

// supply counts the GPUs of machines, by one of their sizes and the GPUs of their smallest pod.
type supply map[[2]int]int

func (s supply) add(size, least, gpus int) {
	k := [2]int{size, least}
	if s[k] += gpus; s[k] == 0 {
		delete(s, k)
	}
}

// Run says which pods run on a machine: how many GPUs each has. The machine has been Put.
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

// unrun takes what runs on a machine out of the sums.
func (x *Index) unrun(node int) {
	x.runs = append(x.runs, make([]work, max(0, node+1-len(x.runs)))...)
	if r := &x.runs[node]; r.size[0] > 0 {
		x.countRunning(r, -1)
		r.size, r.pods = [2]int{}, r.pods[:0]
	}
}

// countRunning counts what runs on a machine in or out.
func (x *Index) countRunning(r *work, by int) {
	for _, n := range r.pods {
		x.held[n] += by * n
	}
	for i := range x.supply {
		x.supply[i].add(r.size[i], r.least, by*r.size[0])
	}
}

// Reserved are the machines that are left to larger pods than one of so many GPUs. Machines are if
// the next smaller ones would do for the pod, and pods too large for these have more than a share of
// the GPUs of the machines on which no smaller pod runs: those that come would not find enough whole
// machines if smaller pods broke into more.
func (x *Index) Reserved(gpus int, share float64) (out Reserved) {
	if share < 1 {
		out = Reserved{GPUs: x.reserved(x.supply[0], gpus, share), Together: x.reserved(x.supply[1], gpus, share)}
	}
	return out
}

func (x *Index) reserved(s supply, gpus int, share float64) (out Sizes) {
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
		if float64(held) > share*float64(unbroken) {
			out.add(size)
		}
	}
	return out
}

// terms are those of a demand now.
func (x *Index) terms(d *Demand, o *Order) Terms {
	return TermsOf(d, o, x.Reserved(d.GPUs, o.Reserve))
}

// TermsOf are the terms of a demand where some machines are reserved.
func TermsOf(d *Demand, o *Order, reserved Reserved) Terms {
	t := Terms{GPUs: d.GPUs, Bytes: d.Bytes, Tolerance: o.Tolerance, Singles: o.Singles, Reserved: reserved}
	if t.Bytes == 0 {
		t.Bytes = DefaultBytes
	}
	return t
}
