// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"math"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

// Slots is how many members of a gang one node can hold at the same time, and their GPUs. Nodes in the
// same state share one. It is immutable.
type Slots struct {
	count     [nodeindex.Bands]int // by band: members that fit if no band is worse
	divisions []division           // by members - 1; empty for members without GPUs
	estimated bool                 // a lower bound: the machine is too large to try all divisions, or has constraints outside the graph
	model     string               // of all GPUs that members may get; empty if it is not known, or there are several
	alone     []*Slots             // of a machine with several models: the slots of each alone, by name
	fastest   int64                // the best ring of any number of members, in kB/s; 0 if none is known
}

// division is the best way to give a number of members their GPUs.
type division struct {
	used nvtopo.Mask
	sets []nvtopo.Mask // in the order of their lowest GPUs
	lost int64         // residual lost as in nodeindex.Offer, in millionths
	ring int64         // of all GPUs used, in kB/s; 0 for a single GPU, or if it is not known
}

// Count returns the number of members that fit if no member's band is worse than the given one.
func (s *Slots) Count(band int) int {
	if s == nil {
		return 0
	}
	return s.count[band]
}

// modelName returns the model of the members' GPUs, or "several models" on a machine with several.
func (s *Slots) modelName() string {
	if s != nil && len(s.alone) > 0 {
		return "several models"
	}
	if s == nil {
		return ""
	}
	return s.model
}

// onRings returns how many of that many members fit if the ring of no number of them is slower than
// floor, in kB/s. A single GPU has no ring and is as fast as any.
func (s *Slots) onRings(members int, floor int64) int {
	for n := range s.divisions[:min(members, len(s.divisions))] {
		if d := &s.divisions[n]; d.ring < floor && d.used.Len() > 1 {
			return n
		}
	}
	return members
}

// Estimated reports whether the numbers are a lower bound.
func (s *Slots) Estimated() bool { return s != nil && s.estimated }

// fromGraph reports whether members get GPUs.
func (s *Slots) fromGraph() bool { return s != nil && len(s.divisions) > 0 }

// Sets returns the GPUs of each of that many members, nil for members without GPUs; do not change it.
func (s *Slots) Sets(members int) []nvtopo.Mask {
	if members < 1 || members > len(s.divisions) {
		return nil
	}
	return s.divisions[members-1].sets
}

func (s *Slots) lost(members int) int64 {
	if members < 1 || members > len(s.divisions) {
		return 0
	}
	return s.divisions[members-1].lost
}

// ring returns the ring of all GPUs of that many members, in kB/s; 0 if there is none, or it is not
// known.
func (s *Slots) ring(members int) int64 {
	if members < 1 || members > len(s.divisions) {
		return 0
	}
	return s.divisions[members-1].ring
}

// Unlinked returns the slots of a node for members without GPUs.
func Unlinked(members int) *Slots {
	s := &Slots{}
	for b := range s.count {
		s.count[b] = members
	}
	return s
}

// Sequence returns the slots of members that get these sets one after the other, chosen by a caller with
// constraints outside the graph. It is a lower bound, and a Plan that rests on it is marked as such.
func Sequence(m *Machine, sets []nvtopo.Mask) *Slots {
	var all nvtopo.Mask
	for _, set := range sets {
		all |= set
	}
	models := modelsOf(m.Tables.Graph(), all)
	s := &Slots{estimated: true, model: models.name}
	for _, of := range models.several {
		if only := slices.DeleteFunc(slices.Clone(sets), func(set nvtopo.Mask) bool { return set&^of != 0 }); len(only) > 0 {
			s.alone = append(s.alone, Sequence(m, only))
		}
	}
	var used nvtopo.Mask
	worst := 0
	for i, set := range sets {
		used |= set
		worst = max(worst, nodeindex.BandOf(m.Tables, set))
		s.add(m, m.Free&m.Healthy, used, sets[:i+1:i+1], worst)
	}
	return s
}

// Machine is the state of one node that decides its slots.
type Machine struct {
	Tables *nvtopo.Tables
	// Healthy are the GPUs that may be used at all, Free those of them that are unused. Degraded GPUs belong
	// to neither: a member of a gang is never alone.
	Healthy, Free nvtopo.Mask
	// Allowed restricts the choice, by model or memory; 0 allows all.
	Allowed nvtopo.Mask
	// Keep, if not nil, is a further condition on a member's set that the graph does not cover: admission by
	// the kubelet's topology manager, NUMA nodes with free CPUs. Above 16 GPUs it must depend only on how
	// many GPUs the set has on which NUMA nodes.
	Keep func(nvtopo.Mask) bool
	// KeepKey identifies Keep: on machines of one class, equal keys mean equal results.
	KeepKey uint64
}

// SlotCounter computes slots and caches them: nodes of a class in the same state share a result, for as
// long as the SlotCounter lives. It is not safe for concurrent use.
type SlotCounter struct {
	packings map[packingKey]*packing
	known    map[slotsKey]*Slots
}

type packingKey struct {
	class nvtopo.ClassID
	k     int
	con   nvtopo.Constraint
	kept  bool   // Keep is set
	keep  uint64 // KeepKey
}

type slotsKey struct {
	packingKey
	healthy, free, allowed nvtopo.Mask
	models                 string // one class may be of several models
}

// Bounds on the caches of a SlotCounter; a cache that reaches its bound is cleared.
const (
	maxKnown    = 1 << 14
	maxPackings = 128 // at most 64 KiB and the sets for 16 GPUs each, 2 KiB for 8
)

// NewSlotCounter returns an empty SlotCounter.
func NewSlotCounter() *SlotCounter {
	return &SlotCounter{packings: map[packingKey]*packing{}, known: map[slotsKey]*Slots{}}
}

// Slots returns how many members of k GPUs each, under the constraint, the machine can hold. It is exact
// up to 16 GPUs; above, members are taken one after the other, and a Plan that rests on it is marked as
// such.
func (s *SlotCounter) Slots(m *Machine, k int, con nvtopo.Constraint) *Slots {
	pk := packingKey{class: m.Tables.Class(), k: k, con: con}
	if m.Keep != nil {
		pk.kept, pk.keep = true, m.KeepKey
	}
	allowed := m.Allowed
	if allowed == 0 {
		allowed = ^nvtopo.Mask(0)
	}
	models := modelsOf(m.Tables.Graph(), m.Free&m.Healthy&allowed)
	key := slotsKey{pk, m.Healthy, m.Free & m.Healthy, m.Allowed, models.key}
	if known, ok := s.known[key]; ok {
		return known
	}
	if len(s.known) >= maxKnown {
		clear(s.known)
	}
	out := s.work(m, pk)
	out.model = models.name
	for _, of := range models.several {
		only := *m
		only.Allowed = of
		if one := s.Slots(&only, k, con); one.Count(worstBand) > 0 {
			out.alone = append(out.alone, one)
		}
	}
	s.known[key] = out
	return out
}

func (s *SlotCounter) work(m *Machine, pk packingKey) *Slots {
	free, allowed := m.Free&m.Healthy&nvtopo.FullMask(m.Tables.Graph().Len()), m.Allowed
	if allowed == 0 {
		allowed = ^nvtopo.Mask(0)
	}
	out := &Slots{}
	if pk.k < 1 {
		return out
	}
	if m.Tables.Graph().Len() > maxPacked {
		out.estimated = true
		out.oneByOne(m, free, allowed, pk)
		return out
	}
	p := s.packings[pk]
	if p == nil {
		if len(s.packings) >= maxPackings {
			clear(s.packings)
		}
		p = newPacking(m.Tables, pk.k, pk.con, m.Keep)
		s.packings[pk] = p
	}
	for _, used := range p.best(m.Tables, free, allowed) {
		out.add(m, free, used, p.members(used), int(p.worst[used]))
	}
	return out
}

// oneByOne gives each member the best set of the GPUs left by the members before it.
func (s *Slots) oneByOne(m *Machine, free, allowed nvtopo.Mask, pk packingKey) {
	var used nvtopo.Mask
	var sets []nvtopo.Mask
	worst := 0
	for {
		set, ok := m.pick(free&^used, allowed, pk)
		if !ok {
			return
		}
		used |= set
		sets = append(sets, set)
		worst = max(worst, nodeindex.BandOf(m.Tables, set))
		s.add(m, free, used, sets[:len(sets):len(sets)], worst)
	}
}

func (m *Machine) pick(free, allowed nvtopo.Mask, pk packingKey) (nvtopo.Mask, bool) {
	if m.Keep == nil {
		return m.Tables.Pick(free, allowed, pk.k, pk.con)
	}
	return m.Tables.PickWhere(free, allowed, pk.k, pk.con, m.Keep)
}

func (s *Slots) add(m *Machine, free, used nvtopo.Mask, sets []nvtopo.Mask, worst int) {
	lost := nodeindex.OfferOf(m.Tables, m.Healthy, free, 0, used).Lost
	ring := m.Tables.Ring(used)
	s.divisions = append(s.divisions, division{used: used, sets: sets, lost: int64(math.Round(lost * 1e6)), ring: ring})
	s.fastest = max(s.fastest, ring)
	for b := worst; b < nodeindex.Bands; b++ {
		s.count[b] = len(s.divisions)
	}
}
