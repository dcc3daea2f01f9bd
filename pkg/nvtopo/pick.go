// SPDX-License-Identifier: Apache-2.0

package nvtopo

// Choice is a picked set of GPUs and its value by the criteria of the objective.
type Choice struct {
	Set       Mask
	Ring      []int // positions in ring order
	Bandwidth int64 // kB/s of the weakest link of the ring; 0 for one GPU
	Class     Class // class of that link; zero for one GPU
	Latency   int64 // ns of that link; 0 for one GPU
	NUMANodes []int // ascending ids; UnknownNUMA where a node is not known
	Residual  int64 // of the GPUs that stay free
	PairSum   int64 // kB/s, over all pairs
	PCIeSum   int64 // of the PCIe ranks of all pairs
}

// Pick returns the best k GPUs of free and allowed under the constraint. free is the set of unused GPUs,
// and the residual is taken of all of it; allowed restricts the choice only. For k = 0 it returns the
// empty set.
func (t *Tables) Pick(free, allowed Mask, k int, con Constraint) (Mask, bool) {
	c := t.c
	free &= c.all
	// The scheduler calls this per node and pod, mostly without constraints: that path makes no call, so no
	// register is spilled for one.
	if free&^allowed == 0 && uint(k-1) < uint(c.n) && len(c.answers) > 0 && con.unconstrained() {
		if a := c.answers[0].Load(); a != nil {
			s := Mask(a.sets[k<<(c.n&31)|int(free)])
			return s, s != 0
		}
	}
	return t.pick(free, free&allowed, k, &con)
}

// PickUsable is Pick on a machine with degraded GPUs. These belong to no set of two or more, so the
// residual is taken without them. A single degraded GPU therefore costs nothing: the lowest one that
// satisfies the constraint is taken first, and an intact one only if none does.
func (t *Tables) PickUsable(free, degraded, allowed Mask, k int, con Constraint) (Mask, bool) {
	if degraded == 0 {
		return t.Pick(free, allowed, k, con)
	}
	if alone := free & degraded & allowed & t.c.all; k == 1 && alone != 0 {
		return alone & -alone, true
	}
	return t.Pick(free&^degraded, allowed, k, con)
}

// PickWhere is Pick among the sets that keep also accepts, for demands that are not a property of the
// graph, such as free CPUs beside the set. Every set is a candidate, so it costs C(|free|, k) steps up to
// 16 GPUs. Above, keep must depend only on how many GPUs the set has on which NUMA nodes.
func (t *Tables) PickWhere(free, allowed Mask, k int, con Constraint, keep func(Mask) bool) (Mask, bool) {
	c := t.c
	free &= c.all
	avail := free & allowed
	if k <= 0 || k > avail.Len() {
		return 0, k == 0
	}
	f := c.filter(c.variant(&con))
	if c.n > exactGPUs {
		return t.fastEnough(c.branchAndBound(free, avail, k, f, keep), k, &con)
	}
	return t.fastEnough(c.enumerate(free, avail, k, f, keep), k, &con)
}

// unconstrained reports whether the constraint is that of variant 0, without a bandwidth. It compares
// field by field because comparing with an empty Class reads memory.
func (con *Constraint) unconstrained() bool {
	return con.Policy <= PolicyNone && !con.AllowMixedModels && con.MinBandwidth <= 0 &&
		con.MinLink.Kind == 0 && con.MinLink.Lanes == 0 && con.MinLink.PCIe == 0
}

// pick is Pick with constraints or without a table.
func (t *Tables) pick(free, avail Mask, k int, con *Constraint) (Mask, bool) {
	c := t.c
	if k <= 0 || k > avail.Len() {
		return 0, k == 0
	}
	variant := c.variant(con)
	var s Mask
	if avail == free && c.n <= exactGPUs {
		if a := c.answers[variant].Load(); a != nil {
			return t.fastEnough(Mask(a.sets[k<<c.n|int(free)]), k, con)
		}
	}
	switch {
	case c.n > exactGPUs:
		s = c.search(free, avail, k, variant)
	case avail == free && c.n <= eagerGPUs:
		s = Mask(c.answer(nil, variant).sets[k<<c.n|int(free)])
	default:
		s = c.enumerate(free, avail, k, c.filter(variant), nil)
	}
	return t.fastEnough(s, k, con)
}

// fastEnough returns s and whether it is not empty and its ring is at least MinBandwidth.
func (t *Tables) fastEnough(s Mask, k int, con *Constraint) (Mask, bool) {
	if con.MinBandwidth > 0 && k > 1 && t.Ring(s) < con.MinBandwidth {
		return 0, false
	}
	return s, s != 0
}

// Choose is Pick that also returns the set's values, or the reason why there is no set.
func (t *Tables) Choose(free, allowed Mask, k int, con Constraint) (Choice, Shortfall) {
	s, ok := t.Pick(free, allowed, k, con)
	if !ok {
		return Choice{}, t.Shortfall(free, allowed, k, con)
	}
	pcie, pair := t.c.sums(s)
	ch := Choice{
		Set: s, Ring: t.RingOrder(s), Bandwidth: t.Ring(s), Latency: t.Latency(s), NUMANodes: t.g.NUMAOf(s),
		Residual: t.Residual(free &^ s), PairSum: pair, PCIeSum: pcie,
	}
	ch.Class = t.c.ringClass(ch.Ring)
	return ch, ShortNone
}

// Shortfall returns the reason why Pick finds no set; ShortNone when it finds one.
func (t *Tables) Shortfall(free, allowed Mask, k int, con Constraint) Shortfall {
	if k < 0 || (free&allowed&t.c.all).Len() < k {
		return ShortFree
	}
	relaxed := Constraint{Policy: PolicyNone, AllowMixedModels: con.AllowMixedModels}
	if _, ok := t.Pick(free, allowed, k, relaxed); !ok {
		return ShortModel
	}
	relaxed.Policy = con.Policy
	if _, ok := t.Pick(free, allowed, k, relaxed); !ok {
		return ShortNUMA
	}
	relaxed.MinLink = con.MinLink
	if _, ok := t.Pick(free, allowed, k, relaxed); !ok {
		return ShortLink
	}
	if _, ok := t.Pick(free, allowed, k, con); !ok {
		return ShortBandwidth
	}
	return ShortNone
}
