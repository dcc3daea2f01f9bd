// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// surveyFrom is how many pods must be left to ask about, after one answer that ruled out
// another, for one request of all pods to take the place of one about each. With fewer,
// to ask about each costs no more.
const surveyFrom = 3

// listable reports whether kubelet can be asked for all its pods. That makes it clean up,
// which does no harm as long as it has taken no devices for the container that asks: it
// has just cleaned up itself, at the beginning of this container.
func (f *facts) listable() bool {
	return f.active == nil && !f.apart && !f.q.final && len(f.q.must) == 0
}

// surveys reports whether to do so, to rule out at once those that it does not know yet
// and those that have ended.
func (f *facts) surveys(left []candidate) bool {
	return len(f.answers) > 0 && f.listable() && f.unsure(left) >= surveyFrom
}

// unsure counts the pods that kubelet may have to be asked about: the candidates left,
// and those that seem to hold devices that it offers.
func (f *facts) unsure(left []candidate) int {
	pods := map[types.UID]bool{}
	for i := range left {
		pods[left[i].pod.uid] = true
	}
	for _, p := range f.pods {
		if f.q.offered.hasAny(f.had(p, nil).with(f.unrecorded(p, nil)).sorted()) {
			pods[p.uid] = true
		}
	}
	for uid := range f.answers {
		delete(pods, uid)
	}
	return len(pods)
}

// strike rules out the pods that kubelet does not know, once it was asked for all.
func (f *facts) strike() {
	for _, p := range f.pods {
		if _, asked := f.answers[p.uid]; !asked && f.active != nil && !f.active[types.NamespacedName{Namespace: p.namespace, Name: p.name}] {
			f.answers[p.uid] = answer{unknown: true}
		}
	}
}

// survey asks kubelet for all its pods, and rules out the others. If it is too late for
// that, or without an answer, they are asked for one by one.
func (s *Steering) survey(ctx context.Context, f *facts) {
	f.apart = true
	patience := surveyBudget - s.clock.Since(f.q.at)
	if patience <= 0 {
		return
	}
	select {
	case s.surveying <- struct{}{}:
		defer func() { <-s.surveying }()
	default:
		return
	}
	if s.givesOut() {
		return
	}
	s.metrics.surveys.Inc()
	active, err := s.kubelet.ActivePods(ctx, patience)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Kubelet does not tell its pods", "err", err)
		return
	}
	f.active = active
	f.strike()
}

// awaitSurvey is called before an answer goes out to q, and waits until kubelet has told
// another question of all its pods: one that begins later sees that there is this answer.
func (s *Steering) awaitSurvey(q question) {
	timer := s.clock.NewTimer(answerBudget - s.clock.Since(q.at))
	defer timer.Stop()
	select {
	case s.surveying <- struct{}{}:
		<-s.surveying
	case <-timer.C():
	}
}

// givesOut reports whether kubelet may have devices in hand that it has not recorded,
// beside the question that is being answered: it admits one pod at a time, but workers
// of pods of which it lost the record ask beside.
func (s *Steering) givesOut() bool {
	now := s.clock.Now()
	return s.giving.Load() > 1 || slices.ContainsFunc(s.all(), func(sh *shelf) bool {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.inHand(now)
	})
}

// inHand reports whether kubelet may be acting on an answer. How long the plugin takes
// for its part nobody knows. It needs mu.
func (s *shelf) inHand(now time.Time) bool {
	return slices.ContainsFunc(s.grants, func(g grant) bool { return len(g.ids) > 0 && now.Sub(g.at) < grantAge }) ||
		slices.ContainsFunc(s.pending, func(p *pendingAllocation) bool { return now.Sub(p.at) < grantAge })
}
