// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// turns are the members of a gang that are to be placed next, all or none, in the order of ranks: those
// that the gang needs for its minimum, or one of those above it.
type turns struct {
	pods    []*v1.Pod
	follows bool      // some members have their nodes
	needed  bool      // they are needed for the minimum
	rest    []*v1.Pod // those above the minimum that come after them
	passed  bool      // there are members above the minimum, and all have been passed over
	missing int       // number of further members that the gang needs and that cannot be scheduled or do not exist
	came    map[types.UID]uint64
	last    []*v1.Pod // pods, in reverse order of their cycles; nil until first used
}

// newTurns leaves out members with scheduling gates, and those of other schedulers. Members above the
// minimum are tried one after the other, without those that were passed over; first is the one for which
// pods were evicted, or "". came is the order in which the members came.
func newTurns(g *gangrequest.Gang, profiles map[string]bool, passed map[types.UID]*Wait, came map[types.UID]uint64, first types.UID) *turns {
	have := len(g.Members.Ended)
	t := &turns{came: came}
	for _, pod := range g.Members.Live {
		switch {
		case pod.Spec.NodeName != "":
			have++
			t.follows = true
		case profiles[pod.Spec.SchedulerName] && len(pod.Spec.SchedulingGates) == 0:
			t.pods = append(t.pods, pod)
		}
	}
	if needed := g.Minimum - have; needed > 0 {
		t.needed = true
		t.missing = max(0, needed-len(t.pods))
		t.pods = t.pods[:min(needed, len(t.pods))]
		return t
	}
	extras := len(t.pods)
	t.pods = slices.DeleteFunc(t.pods, func(pod *v1.Pod) bool { return passed[pod.UID] != nil && pod.UID != first })
	t.passed = extras > 0 && len(t.pods) == 0
	if at := slices.IndexFunc(t.pods, func(pod *v1.Pod) bool { return pod.UID == first }); at > 0 {
		pod := t.pods[at]
		t.pods = slices.Insert(slices.Delete(t.pods, at, at+1), 0, pod)
	}
	if len(t.pods) > 1 {
		t.pods, t.rest = t.pods[:1], t.pods[1:]
	}
	return t
}

// turnsOf returns the members to be placed next of a gang that was read.
func (q *queue) turnsOf(x *gang) *turns {
	first := types.UID("")
	if x.claim != nil && len(x.claim.Places) == 1 {
		first = x.claim.Places[0].Pod.UID
	}
	return newTurns(x.read, q.profiles, x.passed, x.came, first)
}

// passOver has the next member above the minimum tried, since there is no room for the present one and
// those of w.Alike. A member that has to wait must not keep another one with other requests waiting. The
// gang is read.
func (q *queue) passOver(x *gang, w *Wait) {
	if x.passed == nil {
		x.passed = map[types.UID]*Wait{}
	}
	for _, uid := range append(w.Alike, x.turns.pods[0].UID) {
		x.passed[uid] = w
	}
	x.turns = q.turnsOf(x)
	if x.turns.passed {
		q.allPassed(x)
	}
}

// allPassed makes a gang wait whose members above the minimum have all been passed over, for the reason
// of the first one. The gang is read.
func (q *queue) allPassed(x *gang) {
	waits := &Wait{ForChange: true}
	for _, pod := range x.read.Members.Live {
		w := x.passed[pod.UID]
		if w == nil {
			continue
		}
		waits.Why = cmp.Or(waits.Why, w.Why)
		if !w.Until.IsZero() && (waits.Until.IsZero() || w.Until.Before(waits.Until)) {
			waits.Until = w.Until
		}
	}
	x.passed = nil
	x.turns = q.turnsOf(x)
	if x.waits == nil {
		x.waits = waits
	}
}

// elected returns the member whose cycle plans for all; "" if there is none to place. Each turn it is
// another one. First it is the one whose cycle would come last: the queue is in the order of priorities
// and of coming, so the others, which it activates, come before all that came after them. Otherwise,
// after a restart with many gangs, each would hold its places until the whole queue was through.
func (t *turns) elected(turn int) types.UID {
	if len(t.pods) == 0 {
		return ""
	}
	if t.last == nil {
		t.last = slices.SortedStableFunc(slices.Values(t.pods), func(a, b *v1.Pod) int {
			return cmp.Or(cmp.Compare(corev1.PodPriority(a), corev1.PodPriority(b)), cmp.Compare(t.came[b.UID], t.came[a.UID]))
		})
	}
	return t.last[turn%len(t.last)].UID
}

// has reports whether the pod is one of those to place.
func (t *turns) has(uid types.UID) bool {
	return slices.ContainsFunc(t.pods, func(pod *v1.Pod) bool { return pod.UID == uid })
}

// samePods reports whether two lists have the same pods in the same order.
func samePods(a, b []*v1.Pod) bool {
	return slices.EqualFunc(a, b, func(a, b *v1.Pod) bool { return a.UID == b.UID })
}
