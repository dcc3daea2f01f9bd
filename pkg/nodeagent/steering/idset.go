// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"maps"
	"slices"
	"strings"
)

// idSet is a set of device ids, or of physical ones.
type idSet map[string]struct{}

func newSet(ids ...[]string) idSet {
	s := idSet{}
	for _, part := range ids {
		s.add(part)
	}
	return s
}

func (s idSet) add(ids []string) {
	for _, id := range ids {
		s[id] = struct{}{}
	}
}

func (s idSet) has(id string) bool {
	_, ok := s[id]
	return ok
}

func (s idSet) hasAll(ids []string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return !s.has(id) })
}

func (s idSet) hasAny(ids []string) bool { return slices.ContainsFunc(ids, s.has) }

// with is the union, without the difference, common the intersection.
func (s idSet) with(o idSet) idSet {
	out := maps.Clone(o)
	if out == nil {
		out = idSet{}
	}
	maps.Copy(out, s)
	return out
}

func (s idSet) without(o idSet) idSet {
	out := idSet{}
	for id := range s {
		if !o.has(id) {
			out[id] = struct{}{}
		}
	}
	return out
}

func (s idSet) common(o idSet) idSet { return s.without(s.without(o)) }

func (s idSet) sorted() []string { return slices.Sorted(maps.Keys(s)) }

// physical is the device of an id: plugins that share a device give out
// "<device>::<replica>".
func physical(id string) string {
	device, _, _ := strings.Cut(id, "::")
	return device
}

// overlaps reports whether id and an id of s cannot be with two containers: they are the
// same, or one is a whole device and the other a replica of it. Two replicas of a device
// can. A device has ids of both kinds after sharing was switched on or off: pods keep
// the ids that they were given before.
func (s idSet) overlaps(id string) bool {
	if s.has(id) || s.has(physical(id)) {
		return true
	}
	for other := range s {
		if physical(other) == id {
			return true
		}
	}
	return false
}

func (s idSet) overlapsAny(ids []string) bool { return slices.ContainsFunc(ids, s.overlaps) }

// physicals returns the distinct devices of ids, sorted.
func physicals(ids []string) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = physical(id)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// setKey is equal for equal sets of ids; ids must be sorted.
func setKey(sorted []string) string { return strings.Join(sorted, "\x00") }

func sortedCopy(ids []string) []string {
	out := slices.Clone(ids)
	slices.Sort(out)
	return out
}
