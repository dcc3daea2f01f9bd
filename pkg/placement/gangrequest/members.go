// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Standing is the state of a pod as a member of its gang.
type Standing uint8

// The standings.
const (
	Live  Standing = iota // to be placed, or placed
	Ended                 // succeeded or failed: it is a member, and is not placed
	Gone                  // being deleted: it is no member
)

// StandingOf returns the standing of a pod.
func StandingOf(p *v1.Pod) Standing {
	switch {
	case p.DeletionTimestamp != nil:
		return Gone
	case p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed:
		return Ended
	}
	return Live
}

// Members are the members of a gang, by UID.
type Members struct {
	// Live are in the order of their ranks.
	Live []*v1.Pod
	// Ranks are Live's, ascending. Each has its own; a member that died leaves its rank free for its
	// replacement. A pod with a node keeps the rank written on it.
	Ranks []int
	// Ended are the members that ended: none that a live member replaces, and none of an earlier run of a
	// gang of that name. Failed ones are no longer members once no member is left running, since then the
	// gang starts again.
	Ended    []*v1.Pod
	Warnings []string
}

// Count is the number of members, ended ones included.
func (m *Members) Count() int { return len(m.Live) + len(m.Ended) }

// Split returns the members that are not placed yet, as indices of Live: those that the gang needs for its
// minimum, lowest ranks first, and those above.
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

// all returns the pods whose annotations are read.
func (m *Members) all() []*v1.Pod { return slices.Concat(m.Live, m.Ended) }

// sortOut returns the identities of the live and ended pods, each pod once.
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

// keepEnded keeps the ended pods that are members.
func (m *Members) keepEnded(live, ended []identity) {
	if len(ended) == 0 {
		return
	}
	now := runOf(live)
	taken := map[seat]bool{}
	for i := range live {
		if live[i].index >= 0 {
			taken[live[i].seat] = true
		}
	}
	for _, id := range ended {
		switch {
		case taken[id.seat]:
		case !now.has(id.pod):
		default:
			m.Ended = append(m.Ended, id.pod)
			if id.index >= 0 {
				taken[id.seat] = true
			}
		}
	}
}

// run distinguishes the members that ended in this run of a gang from those of an earlier run, whose pods
// may exist for long and must not be used.
type run struct {
	controllers map[types.UID]bool // of live members
	running     bool               // a member has a node
	since       time.Time          // the earliest creation of those
}

func runOf(live []identity) run {
	r := run{controllers: map[types.UID]bool{}}
	for i := range live {
		pod := live[i].pod
		if c := metav1.GetControllerOfNoCopy(pod); c != nil {
			r.controllers[c.UID] = true
		}
		if made := pod.CreationTimestamp.Time; pod.Spec.NodeName != "" && (!r.running || made.Before(r.since)) {
			r.running, r.since = true, made
		}
	}
	return r
}

// has reports whether an ended member is of the run: it ran beside a member that runs now, or it succeeded
// and has the same controller as a live one. If its end is not recorded, it is of the run of the members
// that run now.
func (r *run) has(pod *v1.Pod) bool {
	if c := metav1.GetControllerOfNoCopy(pod); c != nil && r.controllers[c.UID] {
		return r.running || pod.Status.Phase == v1.PodSucceeded
	}
	at := endedAt(pod)
	return r.running && (at.IsZero() || !at.Before(r.since))
}

// endedAt is when the last container of a pod ended; zero if no status has it.
func endedAt(pod *v1.Pod) (last time.Time) {
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	return last
}
