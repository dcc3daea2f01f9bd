// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// Commit is an attempt of which all members have come.
type Commit struct {
	Key     gangrequest.Key
	Group   *schedulingv1alpha1.PodGroup // nil if the gang has none
	Members []types.UID
	Fresh   bool  // no member was bound before: the gang may be rolled back until it is whole
	Attempt int64 // the number that Doer.Commit wrote on the group; 0 if it wrote nothing
	Answer  *Answer
}

// Gangs are all gangs of a process. Make them with New.
type Gangs struct {
	clock     clock.PassiveClock
	config    Config
	scheduler Scheduler
	profiles  map[string]bool // the profiles with gangs; fixed before the first pod comes

	wake     chan struct{} // something changed
	planned  chan struct{} // a plan ended
	planning atomic.Int64  // nanoseconds that plans took without finding places, since that was looked at
	debt     atomic.Int64  // nanoseconds that they took beyond their share; negative: less
	leads    atomic.Bool   // a cycle began here: this process leads, or did until it ends

	mu       sync.Mutex
	gangs    map[gangrequest.Key]*gang                        // guarded by mu, as is what they have
	byPod    map[types.UID]*gang                              // guarded by mu
	arrivals uint64                                           // members that came; guarded by mu
	group    map[gangrequest.Key]*schedulingv1alpha1.PodGroup // guarded by mu; PodGroups, with or without pods
	ended    map[gangrequest.Key]map[types.UID]*v1.Pod        // guarded by mu; finished pods, whether the gang has others or not

	drains    map[int32]*drain         // by priority; guarded by mu
	heldNodes spans                    // by node; guarded by mu
	holders   spans                    // by namespace; guarded by mu
	partial   map[gangrequest.Key]bool // guarded by mu; those that say that they are not whole
	strays    map[types.UID]time.Time  // those that are gone, but may still wait, until then; guarded by mu
}

// gang is what is known of one gang.
type gang struct {
	key      gangrequest.Key
	pods     map[types.UID]*v1.Pod // as the informer has them, which drops those that finished
	came     map[types.UID]uint64  // in which order they came, as they came to the queue
	read     *gangrequest.Gang     // nil: to be read
	stale    bool                  // something changed since it was read
	events   int                   // members read for events since the last tick
	counted  int                   // how many pods there were when it was read, and were too few
	turns    *turns                // what is to be placed next, as of read
	attempt  *attempt              // nil: there is none
	commit   *Commit               // of the attempt
	claim    *Claim                // nil: nothing is held until others are gone
	closed   bool                  // an attempt is over, and nobody was elected since
	priority int32                 // as last read
	busy     int                   // steps whose effects are being carried out
	passed   map[types.UID]*Wait   // members above the minimum that had no room, since the last round, and why
	pauses   int                   // attempts in a row that failed, or could not be held
	turn     int                   // who of turns is elected
	turnAt   time.Time
	queued   types.UID         // whom PreEnqueue has let into the queue, since a cycle of the gang began
	waits    *Wait             // nil: it may be tried
	tried    bool              // its cycle is to come, since it waited for a change
	known    bool              // it was planned or tried before
	since    time.Time         // when its first pod came: its age
	ready    time.Time         // when it became complete; zero while it is not
	room     time.Time         // when it could have been placed first since then; zero before
	ungated  time.Time         // when a member's last scheduling gate was seen to go
	revision uint64            // another number after each change of its pods or its group
	refused  map[Refusal]int64 // node generation at which another plugin refused it
	refusing time.Time         // when the last of refused was noted
	tries    int               // plans in a row that other plugins refused
	drainAt  time.Time         // nothing is kept for it before
	stuck    time.Time         // since when it does not go on
	saidAt   time.Time         // when its members were told why

	told    map[types.UID]bool // members that were told why it waits
	checked levelCheck

	unsettled unsettled
}

// Wait is why a gang is not tried for now.
type Wait struct {
	Why       string
	Until     time.Time // zero: no time
	ForChange bool      // it is tried too when something changes
	// Alike are members above the minimum that ask for the same as the one that was refused.
	Alike []types.UID
}

// Refusal is a node that another plugin refused to members of a shape.
type Refusal struct{ Shape, Node string }

// New returns Gangs without any.
func New(clk clock.PassiveClock, config Config, scheduler Scheduler) *Gangs {
	return &Gangs{
		clock: clk, config: config, scheduler: scheduler,
		wake: make(chan struct{}, 1), planned: make(chan struct{}, 1), profiles: map[string]bool{}, gangs: map[gangrequest.Key]*gang{}, byPod: map[types.UID]*gang{},
		group: map[gangrequest.Key]*schedulingv1alpha1.PodGroup{}, partial: map[gangrequest.Key]bool{},
		ended:  map[gangrequest.Key]map[types.UID]*v1.Pod{},
		strays: map[types.UID]time.Time{},
		drains: map[int32]*drain{}, heldNodes: spans{}, holders: spans{},
	}
}

// Serve says that a profile's pods may be members. Call it before the first pod comes.
func (g *Gangs) Serve(profile string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.profiles[profile] = true
}

// ChangePod takes note of a pod that is there; old is what was told of it before, nil if nothing
// was. Whoever is no member costs a look at a few keys, without a lock.
func (g *Gangs) ChangePod(old, pod *v1.Pod) {
	_, is := gangrequest.KeyOf(pod)
	if old != nil && !is {
		_, is = gangrequest.KeyOf(old)
	}
	if is {
		g.SetPod(pod)
	}
}

// SetPod takes note of a pod that is there, and was perhaps a member of some gang.
func (g *Gangs) SetPod(pod *v1.Pod) {
	key, ok := gangrequest.KeyOf(pod)
	g.do(func() (*gang, effects) {
		if was := g.byPod[pod.UID]; was != nil && (!ok || was.key != key) {
			return was, g.remove(was, pod.UID, "a member left the gang") // it comes again below
		}
		return nil, effects{}
	})
	if !ok {
		return
	}
	g.do(func() (*gang, effects) {
		x := g.ensure(key)
		old := x.pods[pod.UID]
		if old == nil {
			g.arrivals++
			x.came[pod.UID] = g.arrivals
		}
		x.pods[pod.UID] = pod
		g.byPod[pod.UID] = x
		if old == nil || changed(old, pod) {
			x.change()
			delete(x.passed, pod.UID)
		}
		if old != nil && len(old.Spec.SchedulingGates) > 0 && len(pod.Spec.SchedulingGates) == 0 {
			x.ungated = g.clock.Now()
		}
		if old != nil && changed(old, pod) {
			x.counted = 0 // it may say another number
		}
		return x, g.follow(x, old, pod)
	})
}

// follow says what a member's change means for the attempt.
func (g *Gangs) follow(x *gang, old, pod *v1.Pod) effects {
	switch a := x.attempt; {
	case pod.Spec.NodeName != "":
		if a != nil && (old == nil || old.Spec.NodeName == "") {
			return a.bound(pod.UID)
		}
	case gangrequest.StandingOf(pod) != gangrequest.Live:
		if a != nil {
			return g.leave(x, pod.UID, "a member is gone")
		}
	case len(pod.Spec.SchedulingGates) > 0:
		if a != nil {
			return a.stopped(pod.UID, "a member may not be scheduled any more")
		}
	case old != nil && (a.collects() || x.claim != nil) && !sameWishes(old.Annotations, pod.Annotations):
		return x.giveUp("a member asks for something else now")
	}
	if old == nil || changed(old, pod) {
		g.again(x)
	}
	return effects{activate: g.next(x)}
}

// giveUp ends what is held for a gang of which no member has been let through. It needs g.mu.
func (x *gang) giveUp(why string) effects {
	if x.attempt.collects() {
		return x.attempt.end(why)
	}
	x.waits = nil
	return x.endClaim()
}

// again has a gang that waits for a change tried in the next round, after one of its own objects
// changed. A pause after failures goes on: whoever owns the gang could end it at any rate. It
// needs g.mu.
func (g *Gangs) again(x *gang) {
	if x.waits != nil && x.waits.ForChange {
		x.known = false // it is tried before the round ends
		g.Changed()
	}
}

// DeletePod takes note of a pod that is no longer there, as it was told of last.
func (g *Gangs) DeletePod(pod *v1.Pod) {
	if _, is := gangrequest.KeyOf(pod); !is {
		return
	}
	g.do(func() (*gang, effects) {
		x := g.byPod[pod.UID]
		if x == nil {
			return nil, effects{}
		}
		return x, g.remove(x, pod.UID, "a member was deleted")
	})
}

// remove needs g.mu.
func (g *Gangs) remove(x *gang, uid types.UID, why string) (e effects) {
	delete(x.pods, uid)
	delete(x.came, uid)
	delete(x.told, uid)
	delete(g.byPod, uid)
	x.counted = 0 // the others may ask for fewer
	x.change()
	if x.attempt != nil {
		e = g.leave(x, uid, why)
	}
	if x.claim != nil && slices.ContainsFunc(x.claim.Places, func(l Located) bool { return l.Pod.UID == uid }) {
		x.waits = nil
		e = x.endClaim()
	}
	return e
}

// SetGroup takes note of a PodGroup.
func (g *Gangs) SetGroup(group *schedulingv1alpha1.PodGroup) {
	g.changeGroup(gangrequest.Key{Source: gangrequest.SourcePodGroup, Namespace: group.Namespace, Name: group.Name}, group)
}

// Groups returns all PodGroups. They must not be changed.
func (g *Gangs) Groups() []*schedulingv1alpha1.PodGroup {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.group))
}

// DeleteGroup takes note of a PodGroup that is no longer there.
func (g *Gangs) DeleteGroup(group *schedulingv1alpha1.PodGroup) {
	g.changeGroup(gangrequest.Key{Source: gangrequest.SourcePodGroup, Namespace: group.Namespace, Name: group.Name}, nil)
}

func (g *Gangs) changeGroup(key gangrequest.Key, group *schedulingv1alpha1.PodGroup) {
	g.do(func() (*gang, effects) {
		old := g.group[key]
		if group == nil {
			delete(g.group, key)
		} else {
			g.group[key] = group
		}
		if state, ok := gangrequest.StateOf(group); ok && !state.Whole {
			g.partial[key] = true
		} else {
			delete(g.partial, key)
		}
		x := g.gangs[key]
		if x == nil || sameGroup(old, group) {
			return nil, effects{}
		}
		x.counted, x.passed = 0, nil
		x.change()
		x.read = nil // its members do not say what it asks for
		if x.attempt.collects() || x.claim != nil {
			return x, x.giveUp("the PodGroup asks for something else now")
		}
		g.again(x)
		return x, effects{activate: g.next(x)}
	})
}

// Gate says why a pod is kept out of the scheduling queue; "" if it is not. It is called
// under the queue's lock.
func (g *Gangs) Gate(pod *v1.Pod) string {
	key, ok := gangrequest.KeyOf(pod)
	if !ok {
		return ""
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.gangs[key]
	if x == nil || x.pods[pod.UID] == nil {
		return "gang: the pod is not known yet"
	}
	return g.gate(x, pod.UID, true)
}

// NotSynced is why a gang waits while the first lists of what nodes have are read. Their end is told
// as a change.
const NotSynced = "gang: the GPU topologies are not read yet"

// othersFirst is why a gang waits that has not been tried yet.
const othersFirst = "gang: its turn is to come, since many gangs wait that have no room"

// gate needs g.mu. Without elect any member may begin.
func (g *Gangs) gate(x *gang, uid types.UID, elect bool) string {
	switch a := x.attempt; {
	case a.live() && a.steps[uid] == held && a.has(uid):
		return ""
	case a != nil || x.busy > 0:
		return "gang: its last attempt has not ended yet"
	case x.unsettled.evicting:
		return "gang: it was never whole, and its members that are bound are being evicted"
	}
	if why := g.incomplete(x); why != "" {
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
		return g.elect(x, uid)
	}
	return ""
}

// elect lets a member into the queue, or says why its gang waits. It needs g.mu.
func (g *Gangs) elect(x *gang, uid types.UID) string {
	if !g.scheduler.Synced() {
		x.waits = &Wait{Why: NotSynced, ForChange: true}
		return NotSynced
	}
	if !x.known && g.behind() {
		x.waits = &Wait{Why: othersFirst, ForChange: true}
		g.Changed()
		return othersFirst
	}
	x.queued = uid
	return ""
}

// incomplete says what is missing before a gang may start; "" if nothing is.
func (g *Gangs) incomplete(x *gang) string {
	why := g.missing(x)
	switch {
	case why != "":
		x.ready, x.room = time.Time{}, time.Time{}
	case x.ready.IsZero():
		x.ready = g.clock.Now()
	}
	return why
}

func (g *Gangs) missing(x *gang) string {
	if x.read == nil || x.stale {
		if n := g.known(x); n < x.counted {
			return g.tooFew(x, n, x.counted)
		}
		g.readAgain(x)
	}
	r := x.read
	switch {
	case r.Err != nil:
		return "gang: " + r.Err.Error()
	case r.Members.Count() < r.Minimum:
		return g.tooFew(x, r.Members.Count(), r.Minimum)
	case x.turns.missing > 0:
		return fmt.Sprintf("gang: %d of %d members may be scheduled", r.Minimum-x.turns.missing, r.Minimum)
	}
	return ""
}

// next returns the member whose cycle is to come, if there is one.
func (g *Gangs) next(x *gang) []types.UID {
	if x.attempt != nil || x.busy > 0 || x.unsettled.evicting || x.waits != nil || g.incomplete(x) != "" {
		return nil
	}
	if uid := x.turns.elected(x.turn); uid != "" {
		return []types.UID{uid}
	}
	return nil
}

// change has the gang read again.
func (x *gang) change() {
	x.stale = true
	x.revision++
}

// ensure needs g.mu.
func (g *Gangs) ensure(key gangrequest.Key) *gang {
	x := g.gangs[key]
	if x == nil {
		x = &gang{key: key, pods: map[types.UID]*v1.Pod{}, came: map[types.UID]uint64{}, refused: map[Refusal]int64{}, told: map[types.UID]bool{}, since: g.clock.Now()}
		g.gangs[key] = x
	}
	return x
}

// wishKeys are the annotations by which a gang and its members ask for something.
var wishKeys = slices.Concat(gangrequest.InputKeys(), podrequest.InputKeys())

// sameWishes reports whether annotations ask for the same as before. Many others are written on the
// same objects, by the scheduler too.
func sameWishes(old, notes map[string]string) bool {
	for _, key := range wishKeys {
		if old[key] != notes[key] {
			return false
		}
	}
	return true
}

// sameGroup reports whether a PodGroup asks for the same as before. Its status asks for nothing.
func sameGroup(old, group *schedulingv1alpha1.PodGroup) bool {
	if old == nil || group == nil {
		return old == group
	}
	return old.UID == group.UID && equality.Semantic.DeepEqual(old.Spec, group.Spec) && sameWishes(old.Annotations, group.Annotations)
}

// changed reports whether a pod says something else of its gang than before.
func changed(old, pod *v1.Pod) bool {
	return old.Spec.NodeName != pod.Spec.NodeName || len(old.Spec.SchedulingGates) != len(pod.Spec.SchedulingGates) ||
		old.Generation != pod.Generation || gangrequest.StandingOf(old) != gangrequest.StandingOf(pod) ||
		!sameNotes(old.Annotations, pod.Annotations) || !sameNotes(old.Labels, pod.Labels)
}

func sameNotes(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}
