// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Standing says how a pod counts in its gang.
type Standing uint8

// The standings.
const (
	Live  Standing = iota // to be placed, or placed
	Ended                 // succeeded or failed: it counts, and is not placed
	Gone                  // being deleted: it does not count
)

// StandingOf returns how a pod counts.
func StandingOf(p *v1.Pod) Standing {
	switch {
	case p.DeletionTimestamp != nil:
		return Gone
	case p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed:
		return Ended
	}
	return Live
}

// Members are the pods of a gang that count, by UID.
type Members struct {
	// Live are in the order of their ranks.
	Live []*v1.Pod
	// Ranks are Live's, ascending. Each has its own; a member that died leaves its rank free
	// for the one that takes its place. A pod with a node keeps the rank that is written on it.
	Ranks []int
	// Ended are those that ended and count: none whose place a live member took, and of the
	// failed ones none once no member is left running, since then the gang starts anew.
	Ended    []*v1.Pod
	Warnings []string
}

// Count is how many members there are, ended ones included.
func (m *Members) Count() int { return len(m.Live) + len(m.Ended) }

// Split returns the members that are not placed yet, as indices of Live: those that the gang
// needs to have its minimum, lowest ranks first, and those above.
func (m *Members) Split(minimum int, placed func(*v1.Pod) bool) (needed, extra []int) {
	have := len(m.Ended)
	for _, p := range m.Live {
		if placed(p) {
			have++
		}
	}
	for i, p := range m.Live {
		switch {
		case placed(p):
		case have < minimum:
			needed = append(needed, i)
			have++
		default:
			extra = append(extra, i)
		}
	}
	return needed, extra
}

// Surplus returns the placed members that the gang can do without, as indices of Live: those
// above the minimum, highest rank first. Ended members are not counted here.
func (m *Members) Surplus(minimum int, placed func(*v1.Pod) bool) []int {
	var have []int
	for i, p := range m.Live {
		if placed(p) {
			have = append(have, i)
		}
	}
	have = have[min(minimum, len(have)):]
	slices.Reverse(have)
	return have
}

// membersOf orders the pods of a gang.
func membersOf(pods []*v1.Pod, byName bool) Members {
	var m Members
	live, ended := sortOut(pods)
	slices.SortFunc(live, compare(byName))
	slices.SortFunc(ended, compare(byName))
	m.keepEnded(live, ended)
	if byName {
		for i := range live {
			live[i].index = -1
		}
	}
	m.Warnings = doubles(live)
	m.rank(live)
	return m
}

// all returns the pods that say what the gang wants.
func (m *Members) all() []*v1.Pod { return slices.Concat(m.Live, m.Ended) }

// sortOut returns the identities of the pods that count, each pod once.
func sortOut(pods []*v1.Pod) (live, ended []identity) {
	seen := make(map[types.UID]bool, len(pods))
	for _, p := range pods {
		standing := StandingOf(p)
		if standing == Gone || seen[p.UID] {
			continue
		}
		seen[p.UID] = true
		if standing == Live {
			live = append(live, identify(p))
		} else {
			ended = append(ended, identify(p))
		}
	}
	return live, ended
}

// keepEnded keeps the ended members that count.
func (m *Members) keepEnded(live, ended []identity) {
	if len(ended) == 0 {
		return
	}
	running := slices.ContainsFunc(live, func(id identity) bool { return id.pod.Spec.NodeName != "" })
	taken := map[seat]bool{}
	for i := range live {
		if live[i].index >= 0 {
			taken[live[i].seat] = true
		}
	}
	for _, id := range ended {
		switch {
		case taken[id.seat]:
		case id.pod.Status.Phase == v1.PodFailed && !running:
		default:
			m.Ended = append(m.Ended, id.pod)
			if id.index >= 0 {
				taken[id.seat] = true
			}
		}
	}
}
