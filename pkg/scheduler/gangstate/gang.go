// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"maps"
	"slices"
	"strings"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// gang is the state of one gang.
type gang struct {
	key gangrequest.Key
	memberPods
	reading
	trial
	placing
	refusals  refusals
	drainAt   time.Time // no places are kept for it before
	told      told
	unsettled unsettled
}

// memberPods are the pods of a gang.
type memberPods struct {
	pods     map[types.UID]*v1.Pod // from the informer, which drops finished ones
	ended    map[types.UID]*v1.Pod // finished ones
	came     map[types.UID]uint64  // order of arrival, as in the queue
	since    time.Time             // when the first one came: the gang's age
	ungated  time.Time             // when a member's last scheduling gate was seen to be removed
	revision uint64                // changes with the pods or the PodGroup
}

// reading has the parsed requests of a gang.
type reading struct {
	group    *schedulingv1alpha1.PodGroup // nil if it has none
	partial  bool                         // the group's state is that the gang is not whole
	read     *gangrequest.Gang            // nil: to be read
	stale    bool                         // something changed since it was read
	events   int                          // members read because of events since the last tick
	counted  int                          // number of pods that the gang must have before it is read again; 0 if it may be read
	turns    *turns                       // members to be placed next, as of read
	priority int32                        // as last read
	checked  levelCheck
}

// trial is whether a gang is tried, and by whose cycle.
type trial struct {
	waits  *Wait               // nil: it may be tried
	passed map[types.UID]*Wait // members above the minimum that had no room since the last round, and why
	pauses int                 // attempts in a row that failed, or could not be held
	known  bool                // it was planned or tried before
	tried  bool                // it was tried after it waited for a change, and its cycle has not come yet
	turn   int                 // index of the elected member of turns
	turnAt time.Time
	queued types.UID // the member that PreEnqueue has let into the queue, since a cycle of the gang began
	ready  time.Time // when it became complete; zero while it is not
	room   time.Time // when it could first have been placed since then; zero before
}

// placing has the attempt or claim of a gang.
type placing struct {
	attempt *attempt // nil: there is none
	commit  *Commit  // of the attempt
	claim   *Claim   // nil: there is none
	closed  bool     // an attempt is over, and no member was elected since
	busy    int      // steps whose effects are being carried out
}

// Wait is why a gang is not tried for now.
type Wait struct {
	Why       string
	Until     time.Time // zero: no time
	ForChange bool      // it is also tried when something changes
	// Alike are members above the minimum with the same requests as the one that was refused.
	Alike []types.UID
}

// Refusal is a node that another plugin refused to members of a shape.
type Refusal struct{ Shape, Node string }

const (
	// minAttempt and perMember bound the time from the first member's Reserve to the last one's Permit: a
	// waiting member stays in flight, and the queue keeps every event for it.
	minAttempt = 10 * time.Second
	perMember  = 50 * time.Millisecond
	// maxAttempt bounds the time that a PodGroup may request, as the places are held meanwhile, and the
	// pause after it. kube-scheduler ends a wait in Permit after 15 minutes.
	maxAttempt = 10 * time.Minute
	// latePause is how many times longer than an attempt the pause is after one that ended because a member
	// did not come.
	latePause = 10
	// maxTries is how many plans in a row other plugins may refuse before the gang waits.
	maxTries = 8
	// maxRefusals bounds the remembered refusals of one gang: each plan reads them.
	maxRefusals = 1 << 10
	// refusedFor is the time without another refusal after which all nodes are tried again: the cause of a
	// plugin's refusal may end without a change of the node, as a nomination does. It is longer than
	// maxPause, so that a gang gets to a node that takes it, regardless of how many refuse.
	refusedFor = time.Minute
	// firstPause is the pause after an attempt that failed for another reason; it doubles up to maxPause.
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// refusals are the nodes that other plugins refused to members of a gang.
type refusals struct {
	nodes map[Refusal]int64 // at which generation of the node
	last  time.Time         // when the last of them was recorded
	plans int               // plans refused in a row
}

// add records a node that another plugin refused.
func (r *refusals) add(node Refusal, generation int64, now time.Time) {
	if len(r.nodes) >= maxRefusals { // most are of outdated generations
		clear(r.nodes)
	}
	r.nodes[node], r.last = generation, now
}

// forget makes all nodes be tried again when none was refused for a while.
func (r *refusals) forget(now time.Time) {
	if now.Sub(r.last) >= refusedFor {
		clear(r.nodes)
	}
}

// change marks the gang to be read again.
func (x *gang) change() {
	x.stale = true
	x.revision++
}

// pause returns how long a gang waits after one more failure in a row.
func (t *trial) pause() time.Duration {
	pause := min(firstPause<<min(t.pauses, 10), maxPause)
	t.pauses++
	return pause
}

// count returns the number of pods, finished ones included; one that just finished may be counted twice.
func (m *memberPods) count() int { return len(m.pods) + len(m.ended) }

// list returns all pods. Finished ones come first: of a pod listed twice, the first is used.
func (m *memberPods) list() []*v1.Pod {
	return slices.AppendSeq(slices.Collect(maps.Values(m.ended)), maps.Values(m.pods))
}

// find returns the pods of members.
func (m *memberPods) find(uids []types.UID) []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(uids))
	for _, uid := range uids {
		if pod := m.pods[uid]; pod != nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// bound returns the number of live members with a node.
func (m *memberPods) bound() (n int) {
	for _, pod := range m.pods {
		if pod.Spec.NodeName != "" && gangrequest.StandingOf(pod) == gangrequest.Live {
			n++
		}
	}
	return n
}

// unbound returns the live members without a node, by name.
func (m *memberPods) unbound() (pods []*v1.Pod) {
	for _, pod := range m.pods {
		if pod.Spec.NodeName == "" && gangrequest.StandingOf(pod) == gangrequest.Live {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// on reports whether a member is on the node.
func (m *memberPods) on(node string) bool {
	for _, pod := range m.pods {
		if pod.Spec.NodeName == node {
			return true
		}
	}
	return false
}

// Timeout returns how long an attempt with this number of members may last by default.
func Timeout(members int) time.Duration {
	return max(minAttempt, time.Duration(members)*perMember)
}

// timeout returns how long an attempt to place this number of members may last. The PodGroup may request
// more before the gang runs.
func (r *reading) timeout(members int) time.Duration {
	if r.turns.follows {
		return Timeout(members)
	}
	return max(Timeout(members), min(r.read.MemberWait, maxAttempt))
}

// wishKeys are the annotations with requests of a gang and its members.
var wishKeys = slices.Concat(gangrequest.InputKeys(), podrequest.InputKeys())

// sameWishes reports whether the requests in annotations are unchanged. Many other annotations are
// written on the same objects, by the scheduler too.
func sameWishes(old, notes map[string]string) bool {
	for _, key := range wishKeys {
		if old[key] != notes[key] {
			return false
		}
	}
	return true
}

// sameGroup reports whether the requests of a PodGroup are unchanged. Its status has none.
func sameGroup(old, group *schedulingv1alpha1.PodGroup) bool {
	if old == nil || group == nil {
		return old == group
	}
	return old.UID == group.UID && equality.Semantic.DeepEqual(old.Spec, group.Spec) && sameWishes(old.Annotations, group.Annotations)
}

// changed reports whether a change of a pod may matter for its gang.
func changed(old, pod *v1.Pod) bool {
	return old.Spec.NodeName != pod.Spec.NodeName || len(old.Spec.SchedulingGates) != len(pod.Spec.SchedulingGates) ||
		old.Generation != pod.Generation || gangrequest.StandingOf(old) != gangrequest.StandingOf(pod) ||
		!maps.Equal(old.Annotations, pod.Annotations) || !maps.Equal(old.Labels, pod.Labels)
}
