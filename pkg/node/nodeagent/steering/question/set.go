// SPDX-License-Identifier: Apache-2.0

package question

import (
	"maps"
	"slices"
	"strings"
)

// Set is a set of device ids, or of physical ones.
type Set map[string]struct{}

// SetOf returns the union of lists of ids.
func SetOf(ids ...[]string) Set {
	s := Set{}
	for _, part := range ids {
		s.Add(part)
	}
	return s
}

// Add puts ids into the set.
func (s Set) Add(ids []string) {
	for _, id := range ids {
		s[id] = struct{}{}
	}
}

// Has reports whether id is in the set.
func (s Set) Has(id string) bool {
	_, ok := s[id]
	return ok
}

// HasAll reports whether all of ids are in the set.
func (s Set) HasAll(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !s.Has(id) })
}

// HasAny reports whether one of ids is in the set.
func (s Set) HasAny(ids []string) bool { return slices.ContainsFunc(ids, s.Has) }

// With returns the union of s and o.
func (s Set) With(o Set) Set {
	out := maps.Clone(o)
	if out == nil {
		out = Set{}
	}
	maps.Copy(out, s)
	return out
}

// Without returns the ids of s that are not in o.
func (s Set) Without(o Set) Set {
	out := Set{}
	for id := range s {
		if !o.Has(id) {
			out[id] = struct{}{}
		}
	}
	return out
}

// Common returns the intersection of s and o.
func (s Set) Common(o Set) Set { return s.Without(s.Without(o)) }

// Sorted returns the ids of the set in order.
func (s Set) Sorted() []string { return slices.Sorted(maps.Keys(s)) }

// Physical returns the device of an id: plugins that share a device give out "<device>::<replica>".
func Physical(id string) string {
	device, _, _ := strings.Cut(id, "::")
	return device
}

// Overlaps reports whether id and an id of s exclude each other: they are the same, or one is a whole
// device and the other a replica of it. Two replicas of a device do not overlap. A device has ids of both
// kinds after sharing was switched on or off: pods keep the ids that they were given before.
func (s Set) Overlaps(id string) bool {
	if s.Has(id) || s.Has(Physical(id)) {
		return true
	}
	for other := range s {
		if Physical(other) == id {
			return true
		}
	}
	return false
}

// OverlapsAny reports whether the set overlaps one of ids.
func (s Set) OverlapsAny(ids []string) bool { return slices.ContainsFunc(ids, s.Overlaps) }

// Physicals returns the distinct devices of ids, sorted.
func Physicals(ids []string) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = Physical(id)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Key returns a string that is equal for equal sets of ids; ids must be sorted.
func Key(sorted []string) string { return strings.Join(sorted, "\x00") }

// Sorted returns a sorted copy of ids.
func Sorted(ids []string) []string {
	out := slices.Clone(ids)
	slices.Sort(out)
	return out
}
