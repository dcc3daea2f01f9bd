// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// SlotCounter counts how many members of a gang a node can hold at the same time. It caches its results:
// nodes in the same state share one. It is not safe for concurrent use.
type SlotCounter struct {
	byGraph *fabric.SlotCounter
	tried   map[stateKey]*fabric.Slots
}

// maxTried bounds the cache of a SlotCounter; a full cache is emptied.
const maxTried = 1 << 13

// NewSlotCounter returns an empty SlotCounter.
func NewSlotCounter() *SlotCounter {
	return &SlotCounter{byGraph: fabric.NewSlotCounter(), tried: map[stateKey]*fabric.Slots{}}
}

// Beside computes the usage of a node after some pods have been given further allocations, in this order.
type Beside func(given []usage.Reservation) *usage.Usage

// Slots returns the slots of a node for GPU pods with equal requests, nil if it has none, and the greatest
// number of them that can be given with regard to untracked pods. Members get no degraded GPU, since they
// are never alone.
//
// The limits of links, models and free GPUs are exact. Where CPU and memory of NUMA nodes matter, kubelet
// aligns or several resources are requested, the sets are tried one after the other, as Reserve will take
// them. If some fail, the result is a lower bound, and the Slots record that.
func (s *SlotCounter) Slots(u *usage.Usage, d *Demand, now time.Time, beside Beside) (slots *fabric.Slots, most int) {
	r := d.Request
	ai := u.AccelIndex(r.Resources[0].Name)
	if ai < 0 || checkEnforcement(r, d.Unenforced, u.Node, now) != Fits {
		return nil, 0
	}
	accel, k := u.Node.Accels[ai], r.Resources[0].Count
	free, alone, reason := usableGPUs(u, ai, k, r.Single())
	f := newForecast(u, r)
	if reason != Fits || u.Foreign[ai] && (r.LinkSensitive() || f.strict()) {
		return nil, 0
	}
	m := &fabric.Machine{Tables: accel.Tables, Healthy: accel.Healthy &^ accel.Degraded, Free: free, Allowed: r.Suitable(accel.Graph)}
	if (free & m.Allowed).Len() < k {
		return nil, 0
	}
	most = ((free | alone).Len() - u.Counted[ai]) / k
	t := &trial{u: u, d: d, m: m, k: k, now: now, beside: beside}
	if len(r.Resources) == 1 {
		t.byGraph = s.byGraph.Slots(m, k, constraintOf(u, r))
		if f == nil && !r.NeedsNUMAFit() || t.byGraph.Count(nodeindex.Bands-1) == 0 {
			return t.byGraph, most
		}
	}
	if len(u.ToAdmit) > 0 { // a short-lived state, with many details that the key would need
		return t.slots(), most
	}
	key := keyOf(u, d, ai)
	known, ok := s.tried[key]
	if !ok {
		if len(s.tried) >= maxTried {
			clear(s.tried)
		}
		known = t.slots()
		s.tried[key] = known
	}
	return known, most
}

// Supply returns a node's capacity for members with equal requests, after members of other demands are
// placed on it and have the GPUs in used. room is the node's room of all that the scheduler adds up. n is
// nil where no graph is valid. beside computes the usage with more allocations; see AsGiven.
func (s *SlotCounter) Supply(d *Demand, n *usage.Node, room Room, now time.Time, used nvtopo.Mask, placed []Placed, beside Beside) fabric.Supply {
	for _, p := range placed {
		room.Take(p.Demand.Request, int64(p.Count))
	}
	limit := room.Holds(d.Request)
	switch {
	case !d.HasGPUs():
		return fabric.Supply{Slots: fabric.Unlinked(limit), Limit: fabric.AtMost(limit)}
	case limit == 0 || n == nil:
		return fabric.Supply{}
	}
	others := AsGiven(d, n, used, placed)
	with := func(given []usage.Reservation) *usage.Usage { return beside(slices.Concat(others, given)) }
	slots, most := s.Slots(with(nil), d, now, with)
	return fabric.Supply{Slots: slots, Limit: fabric.AtMost(min(limit, most))}
}

// trial gives members their sets one after the other, without recording it.
type trial struct {
	u       *usage.Usage
	d       *Demand
	m       *fabric.Machine
	k       int
	now     time.Time
	beside  Beside
	byGraph *fabric.Slots // the slots by the graph alone; nil for several resources
}

// slots returns the slots of the graph if all of them can be taken, else those of the longest sequence
// that can.
func (t *trial) slots() *fabric.Slots {
	best, all := t.most(t.byGraph)
	if all {
		return t.byGraph
	}
	if greedy := t.greedily(); len(greedy) > len(best) {
		best = greedy
	}
	if len(best) == 0 {
		return nil
	}
	return fabric.Sequence(t.m, best)
}

// most returns the longest sequence of sets of some slots that can be taken; all reports whether every set
// can be taken, for each number of members.
func (t *trial) most(slots *fabric.Slots) (best []nvtopo.Mask, all bool) {
	if slots == nil {
		return nil, false
	}
	all = true
	for n := slots.Count(nodeindex.Bands - 1); n > 0; n-- {
		if !all && n <= len(best) {
			break
		}
		sets := slots.Sets(n)
		got := t.taken(sets)
		all = all && got == n
		if got > len(best) {
			best = sets[:got]
		}
	}
	return best, all
}

// taken returns how many of the sets can be taken, from the first one on.
func (t *trial) taken(sets []nvtopo.Mask) int {
	u := t.u
	var given []usage.Reservation
	for i, set := range sets {
		a, reason := ChooseOnly(u, t.d, set, t.now)
		if reason != Fits {
			return i
		}
		a.Assumed = t.now
		given = append(given, usage.Reservation{UID: t.d.UID, Allocation: a, Request: t.d.Request})
		if i+1 < len(sets) {
			u = t.beside(given)
		}
	}
	return len(sets)
}

// greedily gives each member the set that Reserve would choose for it, out of the GPUs that members may
// have.
func (t *trial) greedily() (sets []nvtopo.Mask) {
	u := t.u
	ai := u.AccelIndex(t.d.Resources[0].Name)
	accel := u.Node.Accels[ai]
	var given []usage.Reservation
	for range t.m.Free.Len() / t.k {
		intact := *u
		intact.Used = append([]nvtopo.Mask(nil), u.Used...)
		intact.Used[ai] |= accel.Degraded
		a, reason := Choose(&intact, t.d.Request, t.d.WantCPUs)
		if reason != Fits {
			break
		}
		a.Assumed = t.now
		sets = append(sets, a.Mask(accel.Resource, accel.Graph))
		given = append(given, usage.Reservation{UID: t.d.UID, Allocation: a, Request: t.d.Request})
		u = t.beside(given)
	}
	return sets
}

// stateKey is equal for nodes that have the same slots for members of one shape.
type stateKey struct {
	rest    string
	classes [podrequest.MaxResources]nvtopo.ClassID
	held    kubeletadmission.State
}

// keyOf returns the key of a state that no kubelet is about to change.
func keyOf(u *usage.Usage, d *Demand, ai int) stateKey {
	b := make([]byte, 0, 256)
	put := func(v uint64) { b = binary.AppendUvarint(b, v) }
	put(uint64(ai))
	key := stateKey{}
	for i, a := range u.Node.Accels {
		if i < len(key.classes) {
			key.classes[i] = a.Tables.Class()
		}
		put(a.Kind)
		put(uint64(a.Healthy))
		put(uint64(a.Degraded))
		put(uint64(u.Used[i]))
		put(uint64(u.Counted[i]))
		if u.Foreign[i] {
			put(1)
		}
		b = append(append(b, a.Resource...), 0)
	}
	for _, n := range u.NUMA {
		b = binary.AppendVarint(binary.AppendVarint(b, n.MilliCPU), n.Memory)
	}
	if d.WantCPUs {
		for _, cpu := range u.FreeCPUs() {
			put(uint64(cpu))
		}
	}
	b = append(b, d.Signature()...)
	if k := u.Node.Kubelet; k != nil {
		put(k.Kind)
		put(u.Node.Layout)
		key.held = *u.Held
	} else {
		put(u.Node.Layout)
		put(uint64(u.Node.KubeletPolicy))
	}
	key.rest = string(b)
	return key
}
