// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
)

// Step is one write to a Workload.
type Step struct {
	Workload *kueue.Workload
	Kind     StepKind
	// Check is the new state of our entry in the Workload's admission checks; nil for Release.
	Check *kueue.AdmissionCheckState
}

// StepKind is the purpose of a Step.
type StepKind string

// The kinds of Step.
const (
	Answer  StepKind = "Answer"  // the verdict on a Workload with quota
	Pause   StepKind = "Pause"   // Kueue is to leave the Workload out of its queue for a while
	Hold    StepKind = "Hold"    // Kueue does, so the check can be decided again
	Release StepKind = "Release" // there is a place: Kueue need not wait any longer
)

// extendBefore is the time before the end of a pause at which it is extended, if there is still no
// place: on a busy machine a round and its writes take a while.
const extendBefore = 5 * time.Second

// NextRound returns the steps to write, and when to make another round without an event; zero: never.
// Promises come first, in the order in which they were made. Then Workloads that need a decision, by
// priority and then by when they got quota. Then places are found for those that are about to get quota,
// so that held ones, which come last, are not released for the same place; for held ones the round
// decides only whether to release them.
func NextRound(w *World, g *Graphs) (steps []Step, again time.Time) {
	byStage := map[stage][]*kueue.Workload{}
	for i := range w.Workloads {
		workload := &w.Workloads[i]
		at := stageOf(workload, w.Now)
		byStage[at] = append(byStage[at], workload)
	}
	if len(byStage[asking])+len(byStage[held]) == 0 {
		return nil, again
	}
	r := &round{now: w.Now, s: NewSnapshot(w, g), podsOf: podsOf(w), failed: map[string]Decision{}}
	r.held = newHoldings(w, byStage[promised], r.podsOf)
	slices.SortFunc(byStage[promised], bySince)
	for _, workload := range byStage[promised] {
		r.promise(workload)
	}
	slices.SortFunc(byStage[asking], byPriority)
	for _, workload := range byStage[asking] {
		r.answer(workload)
	}
	slices.SortFunc(byStage[queued], byPriority)
	for _, workload := range byStage[queued] {
		if why, _ := r.placeFor(workload); why != "" && r.keeper == nil && starves(workload) {
			r.keeper = workload
		}
		if isTrue(workload, kueue.WorkloadRequeued) {
			r.at(inQueueSince(workload).Add(queuedFor))
		}
	}
	slices.SortFunc(byStage[held], byPriority)
	for _, workload := range byStage[held] {
		r.look(workload)
	}
	return r.steps, r.again
}

// round is the state of one round.
type round struct {
	now    time.Time
	s      *Snapshot // including all promises so far
	podsOf map[types.UID][]*v1.Pod
	// failed are the decisions on asks without room in this round. Promises only add to the usage, so
	// equal asks have no room either.
	failed map[string]Decision
	held   *holdings       // including all promises so far
	keeper *kueue.Workload // the Workload that keeps its quota without a place, or is about to get some
	steps  []Step
	again  time.Time
}

func (r *round) at(t time.Time) {
	if !t.IsZero() && (r.again.IsZero() || t.Before(r.again)) {
		r.again = t
	}
}

// promise reserves the places of pods that were told to start and are not bound yet. Where they no
// longer fit, nothing is reserved: Kueue evicts the Workload when its pods are late.
func (r *round) promise(w *kueue.Workload) {
	counts, counted := map[string]int{}, map[string]int{}
	for i := range w.Spec.PodSets {
		ps := &w.Spec.PodSets[i]
		counts[ps.Name], counted[ps.Name] = countOf(w, ps), reclaimableOf(w, ps.Name)
	}
	var own []*v1.Pod
	for _, owner := range w.OwnerReferences {
		own = append(own, r.podsOf[owner.UID]...)
	}
	m := r.s.missingOf(counts, counted, own)
	if !slices.ContainsFunc(slices.Collect(maps.Values(m.counts)), func(n int) bool { return n > 0 }) {
		return
	}
	a, err := r.s.read(w, r.s.flavorsOf(w), m.counts)
	if err != nil {
		return
	}
	if found, err := r.s.fit(a, m.bound); err == nil {
		r.s = found.after
	} else if d, ok := r.s.afterPreemption(a); ok {
		r.s = d.after
	}
}

// answer decides on a Workload that has quota.
func (r *round) answer(w *kueue.Workload) {
	flavors := r.s.flavorsOf(w)
	var d Decision
	if why := r.held.over(w); why != "" {
		d = Decision{Verdict: Wait, Message: why} // decided again when a pod is deleted
	} else {
		d = r.decide(w, flavors)
	}
	if until := r.keepsUntil(w); d.Verdict == Retry && r.now.Before(until) && r.s.everFits(w, flavors) {
		r.keeper = w
		d = Decision{Verdict: Wait, Message: d.Message + "; keeps its quota until " + until.UTC().Format(time.RFC3339), Until: until}
	}
	old := checkOf(w)
	next := &kueue.AdmissionCheckState{Name: old.Name, Message: d.Message, LastTransitionTime: metav1.NewTime(r.now), RetryCount: old.RetryCount}
	switch d.Verdict {
	case Ready:
		r.s = d.after
		r.held.count(w.Status.Admission.ClusterQueue, quotaOf(w), nil, nil)
		next.State, next.PodSetUpdates = kueue.CheckReady, d.PodSetUpdates
	case Retry:
		// With a time Kueue would keep the quota until then. The entry still has the time of the last
		// pause.
		next.State, next.RequeueAfterSeconds = kueue.CheckRetry, new(int32(0))
	case Wait:
		next.State, next.LastTransitionTime = kueue.CheckPending, old.LastTransitionTime
		r.at(d.Until)
		if old.Message == d.Message {
			return
		}
	}
	r.steps = append(r.steps, Step{w, Answer, next})
}

// keepsUntil returns the time until which a Workload keeps its quota without a place; zero if it does
// not. Only one does at a time.
func (r *round) keepsUntil(w *kueue.Workload) time.Time {
	c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if r.keeper != nil || !starves(w) || c == nil {
		return time.Time{}
	}
	return c.LastTransitionTime.Add(keepQuota)
}

// look checks whether a held Workload has a place. If it has none, and its pause is about to end, the
// next pause begins: queueing for quota would be in vain.
func (r *round) look(w *kueue.Workload) {
	why, until := r.placeFor(w)
	if why == "" {
		r.steps = append(r.steps, Step{Workload: w, Kind: Release})
		return
	}
	extend := requeueAt(w).Add(-extendBefore)
	if r.keeper == nil && starves(w) {
		r.keeper = w // the pause ends, and it is decided again
		return
	}
	if r.now.Before(extend) {
		r.at(extend)
		r.at(until)
		return
	}
	r.steps = append(r.steps, pause(w, r.now, why, retries(checkOf(w))+1))
}

// decide is Decide, once for all equal asks that fail.
func (r *round) decide(w *kueue.Workload, flavors map[string]*kueue.ResourceFlavor) Decision {
	if !r.s.known {
		return unchecked(r.s, w)
	}
	a, err := r.s.read(w, flavors, nil)
	if err != nil {
		return Decision{Verdict: Retry, Message: err.Error()}
	}
	key := a.key()
	if d, ok := r.failed[key]; ok {
		return d
	}
	d := r.s.decide(a)
	if d.Verdict == Retry && d.Until.IsZero() {
		r.failed[key] = d
	}
	return d
}

// placeFor returns why a Workload without quota has no place; empty if it has one, which is then
// promised for this round, so that one place releases one Workload.
func (r *round) placeFor(w *kueue.Workload) (why string, until time.Time) {
	if !r.s.known {
		return "", until
	}
	why = "its queue has no flavor"
	for _, flavors := range r.s.flavorsFor(w) {
		d := r.decide(w, flavors)
		if d.Verdict != Retry {
			if d.after != nil {
				r.s = d.after
			}
			return "", until
		}
		why, until = d.Message, d.Until
	}
	return why, until
}

// podsOf returns the pods by their owner's UID, and by their own: the pods of a pod group own its
// Workload.
func podsOf(w *World) map[types.UID][]*v1.Pod {
	out := map[types.UID][]*v1.Pod{}
	for i := range w.Pods {
		p := &w.Pods[i]
		out[p.UID] = append(out[p.UID], p)
		if owner := metav1.GetControllerOf(p); owner != nil {
			out[owner.UID] = append(out[owner.UID], p)
		}
	}
	return out
}

// bySince orders by the last change of the check, and then by name.
func bySince(a, b *kueue.Workload) int {
	since := func(w *kueue.Workload) time.Time {
		if c := checkOf(w); c != nil {
			return c.LastTransitionTime.Time
		}
		return w.CreationTimestamp.Time
	}
	return cmp.Or(since(a).Compare(since(b)), byName(a, b))
}

// byPriority orders by priority, then by when quota was reserved or lost, then by name.
func byPriority(a, b *kueue.Workload) int {
	priority := func(w *kueue.Workload) int32 {
		if w.Spec.Priority == nil {
			return 0
		}
		return *w.Spec.Priority
	}
	since := func(w *kueue.Workload) time.Time {
		if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
			return c.LastTransitionTime.Time
		}
		return w.CreationTimestamp.Time
	}
	return cmp.Or(cmp.Compare(priority(b), priority(a)), since(a).Compare(since(b)), byName(a, b))
}

func byName(a, b *kueue.Workload) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
