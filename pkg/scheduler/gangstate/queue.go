// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"slices"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	// turnAfter is the time after which another member is elected, and queuedTurnAfter the time if the one
	// before is in the queue: that may be long, and a member that comes earlier would wait for this one.
	turnAfter       = time.Second
	queuedTurnAfter = 30 * time.Second
)

// queue has all gangs: which members came, in which order gangs and members are tried, and which member
// is elected. It has no lock: the caller holds Gangs.mu.
type queue struct {
	*signals
	clock    clock.PassiveClock
	cluster  Cluster
	profiles map[string]bool // the profiles with gangs; fixed before the first pod comes

	gangs    map[gangrequest.Key]*gang
	byPod    map[types.UID]*gang
	arrivals uint64                                           // number of members that came
	groups   map[gangrequest.Key]*schedulingv1alpha1.PodGroup // with or without pods
	ended    map[gangrequest.Key]map[types.UID]*v1.Pod        // finished pods, whether or not the gang has others
}

func newQueue(clk clock.PassiveClock, cluster Cluster) *queue {
	return &queue{
		signals: newSignals(), clock: clk, cluster: cluster, profiles: map[string]bool{}, gangs: map[gangrequest.Key]*gang{}, byPod: map[types.UID]*gang{},
		groups: map[gangrequest.Key]*schedulingv1alpha1.PodGroup{}, ended: map[gangrequest.Key]map[types.UID]*v1.Pod{},
	}
}

// ensure returns the gang with a key and makes it if necessary.
func (q *queue) ensure(key gangrequest.Key) *gang {
	x := q.gangs[key]
	if x == nil {
		x = &gang{key: key}
		x.pods, x.ended, x.came, x.since = map[types.UID]*v1.Pod{}, q.ended[key], map[types.UID]uint64{}, q.clock.Now()
		x.setGroup(q.groups[key])
		x.refusals.nodes, x.told.pods = map[Refusal]int64{}, map[types.UID]bool{}
		q.gangs[key] = x
	}
	return x
}

// put records a member, and returns its earlier version; nil if it is new.
func (q *queue) put(x *gang, pod *v1.Pod) (old *v1.Pod) {
	old = x.pods[pod.UID]
	if old == nil {
		q.arrivals++
		x.came[pod.UID] = q.arrivals
	}
	x.pods[pod.UID] = pod
	q.byPod[pod.UID] = x
	if old == nil || changed(old, pod) {
		x.change()
		delete(x.passed, pod.UID)
	}
	if old != nil && len(old.Spec.SchedulingGates) > 0 && len(pod.Spec.SchedulingGates) == 0 {
		x.ungated = q.clock.Now()
	}
	if old != nil && changed(old, pod) {
		x.counted = 0 // it may have another number
	}
	return old
}

// drop forgets a member.
func (q *queue) drop(x *gang, uid types.UID) {
	delete(x.pods, uid)
	delete(x.came, uid)
	delete(x.told.pods, uid)
	delete(q.byPod, uid)
	x.counted = 0 // the others may need fewer
	x.change()
}

// putGroup records a PodGroup; nil if it was deleted. It returns its gang if that has pods and its
// requests changed; else nil.
func (q *queue) putGroup(key gangrequest.Key, group *schedulingv1alpha1.PodGroup) *gang {
	old := q.groups[key]
	if group == nil {
		delete(q.groups, key)
	} else {
		q.groups[key] = group
	}
	x := q.gangs[key]
	if x == nil {
		return nil
	}
	x.setGroup(group)
	if sameGroup(old, group) {
		return nil
	}
	x.counted, x.passed = 0, nil
	x.change()
	x.read = nil // its members do not have its requests
	return x
}

// setGroup sets the PodGroup of a gang.
func (r *reading) setGroup(group *schedulingv1alpha1.PodGroup) {
	state, ok := gangrequest.StateOf(group)
	r.group, r.partial = group, ok && !state.Whole
}

// changeEnded changes the finished pods of a gang, and returns it if it has others; else nil.
func (q *queue) changeEnded(key gangrequest.Key, change func(map[types.UID]*v1.Pod)) *gang {
	pods := q.ended[key]
	if pods == nil {
		pods = map[types.UID]*v1.Pod{}
		q.ended[key] = pods
	}
	change(pods)
	if len(pods) == 0 {
		delete(q.ended, key)
	}
	x := q.gangs[key]
	if x == nil {
		return nil
	}
	x.ended = q.ended[key]
	x.counted = 0
	x.change()
	return x
}

// again has a gang that waits for a change tried in the next round, after one of its own objects changed.
// A pause after failures goes on: the owner of the gang could otherwise end it at any rate.
func (q *queue) again(x *gang) {
	if x.waits != nil && x.waits.ForChange {
		x.known = false // it is tried before the round ends
		q.Changed()
	}
}

// NotSynced is why a gang waits while the first lists of nodes' topologies are read. Their end is
// reported as a change.
const NotSynced = "gang: the GPU topologies are not read yet"

// othersFirst is why a gang waits that has not been tried yet.
const othersFirst = "gang: its turn is to come, since many gangs wait that have no room"

// gate returns why the cycle of a member may not begin; "" if it may. Without elect any member may begin.
func (q *queue) gate(x *gang, uid types.UID, elect bool) string {
	switch a := x.attempt; {
	case a.live() && a.steps[uid] == held && a.has(uid):
		return ""
	case a != nil || x.busy > 0:
		return "gang: its last attempt has not ended yet"
	case x.unsettled.evicting:
		return "gang: it was never whole, and its members that are bound are being evicted"
	}
	if why := q.incomplete(x); why != "" {
		return why
	}
	if x.waits != nil {
		return x.waits.Why
	}
	if elect && x.turns.elected(x.turn) != uid {
		return "gang: another member looks for the places of all"
	}
	if !x.turns.has(uid) {
		return "gang: the pod is no live member"
	}
	if elect {
		return q.elect(x, uid)
	}
	return ""
}

// elect lets a member into the queue, or returns why its gang waits.
func (q *queue) elect(x *gang, uid types.UID) string {
	if !q.cluster.Synced() {
		x.waits = &Wait{Why: NotSynced, ForChange: true}
		return NotSynced
	}
	if !x.known && q.behind() {
		x.waits = &Wait{Why: othersFirst, ForChange: true}
		q.Changed()
		return othersFirst
	}
	x.queued = uid
	return ""
}

// incomplete returns why a gang may not start yet; "" if it may.
func (q *queue) incomplete(x *gang) string {
	why := q.missing(x)
	switch {
	case why != "":
		x.ready, x.room = time.Time{}, time.Time{}
	case x.ready.IsZero():
		x.ready = q.clock.Now()
	}
	return why
}

func (q *queue) missing(x *gang) string {
	if x.read == nil || x.stale {
		if n := x.count(); n < x.counted {
			return q.tooFew(x, n, x.counted)
		}
		q.readAgain(x)
	}
	r := x.read
	switch {
	case r.Err != nil:
		return "gang: " + r.Err.Error()
	case r.Members.Count() < r.Minimum:
		return q.tooFew(x, r.Members.Count(), r.Minimum)
	case x.turns.missing > 0:
		return gangrequest.Short(r.Minimum-x.turns.missing, r.Minimum) + gangrequest.MayBeScheduled
	}
	return ""
}

// tooFew returns that members are missing, and any fault that will keep the gang waiting when all are
// present: it is known from the first member on.
func (q *queue) tooFew(x *gang, have, want int) string {
	why := gangrequest.Short(have, want)
	if x.read == nil || x.read.Err != nil {
		return why
	}
	if view := q.cluster.Fabric(); x.checked.read != x.read || x.checked.view != view {
		x.checked = levelCheck{x.read, view, levelFault(x.read, view)}
	}
	if x.checked.why != "" {
		why += "; " + x.checked.why
	}
	return why
}

// maxEventReads bounds how many members of one gang are read for events in a second. A read takes about a
// microsecond a member, under a lock that all pods' PreEnqueue may wait for: a gang of thousands, each of
// which is made or ends on its own, would be read thousands of times. Further events wait for the next
// tick, and cycles never use a stale reading.
const maxEventReads = 1 << 13

// readAgain reads a gang for an event, within maxEventReads: a gang that is larger is read once a second.
func (q *queue) readAgain(x *gang) {
	if x.read != nil && x.events > 0 && x.events+x.count() > maxEventReads {
		return
	}
	x.events += x.count()
	q.readNow(x)
}

// readNow reads a gang if something changed since it was read.
func (q *queue) readNow(x *gang) {
	if x.read != nil && !x.stale {
		return
	}
	x.read, x.stale = gangrequest.Read(x.key, x.group, x.list()), false
	x.turns = q.turnsOf(x)
	if x.turns.passed { // others had room meanwhile, so something may have changed
		q.allPassed(x)
		q.Changed()
	}
	x.counted, x.priority = 0, x.read.Priority
	if x.read.Err == nil && x.count() < x.read.Minimum {
		x.counted = x.read.Minimum
	}
}

// next returns the member whose cycle is to come, if there is one.
func (q *queue) next(x *gang) []types.UID {
	if x.attempt != nil || x.busy > 0 || x.unsettled.evicting || x.waits != nil || q.incomplete(x) != "" {
		return nil
	}
	if uid := x.turns.elected(x.turn); uid != "" {
		return []types.UID{uid}
	}
	return nil
}

// turnOver elects another member if the one before did not come, or activates it again.
func (q *queue) turnOver(x *gang) []types.UID {
	now := q.clock.Now()
	if w := x.waits; w != nil && !w.Until.IsZero() && !now.Before(w.Until) {
		x.turnAt = now
		if q.behind() {
			x.waits = &Wait{Why: w.Why, ForChange: true}
			q.Changed()
			return nil
		}
		x.waits = nil
		return q.next(x)
	}
	next := q.next(x)
	switch {
	case next == nil:
		x.turnAt = time.Time{}
	case x.turnAt.IsZero():
		x.turnAt = now
	case now.Sub(x.turnAt) < turnAfter:
	case x.queued == next[0] && now.Sub(x.turnAt) < queuedTurnAfter:
		return next // it may have left the queue without a cycle
	default:
		x.turn++
		x.turnAt = now
		return q.next(x)
	}
	return nil
}

// keepWaiting keeps a gang from being tried; if a member above the minimum has to wait, the next one is
// tried.
func (q *queue) keepWaiting(x *gang, w *Wait) {
	x.refusals.plans, x.tried = 0, false
	signal(q.planned)
	if x.read != nil && x.claim == nil && !x.turns.needed && len(x.turns.pods) > 0 {
		q.passOver(x, w)
	} else {
		x.waits = w
	}
}

// waiting returns the gangs that wait for a change, those of higher priority and older ones first.
func (q *queue) waiting() []gangrequest.Key {
	return q.keys(func(x *gang) bool { return x.waits != nil && x.waits.ForChange })
}

// first returns the gangs that do not wait for a round to end: the first of the waiting ones, and those
// for which places are held or that have not been tried since they came or changed.
func (q *queue) first() []gangrequest.Key {
	all := q.waiting()
	soon := q.keys(func(x *gang) bool { return x.waits != nil && x.waits.ForChange && (x.claim != nil || !x.known) })
	if len(all) > 0 && !slices.Contains(soon, all[0]) {
		soon = append([]gangrequest.Key{all[0]}, soon...)
	}
	return soon
}

// try lets a gang that waits for a change be tried, and returns the member whose cycle is to come. The
// gang is nil if it does not wait.
func (q *queue) try(key gangrequest.Key) (x *gang, next []types.UID) {
	x = q.gangs[key]
	if x == nil || x.waits == nil || !x.waits.ForChange {
		return nil, nil
	}
	x.waits, x.known = nil, true
	next = q.next(x)
	x.tried = len(next) > 0
	return x, next
}

// isTried reports whether the cycle of a gang that was tried has not ended yet.
func (q *queue) isTried(key gangrequest.Key) bool {
	x := q.gangs[key]
	return x != nil && x.tried && x.waits == nil && x.attempt == nil
}

// keys returns the gangs for which of is true, in the order in which they are tried.
func (q *queue) keys(of func(*gang) bool) []gangrequest.Key {
	var found []*gang
	for _, x := range q.gangs {
		if of(x) {
			found = append(found, x)
		}
	}
	slices.SortFunc(found, func(a, b *gang) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), a.since.Compare(b.since), cmp.Compare(a.key.String(), b.key.String()))
	})
	keys := make([]gangrequest.Key, len(found))
	for i, x := range found {
		keys[i] = x.key
	}
	return keys
}
