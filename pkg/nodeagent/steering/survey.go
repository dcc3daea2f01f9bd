// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// surveyFrom is how many pods must be left to ask about, after at least one answer, to
// ask kubelet for all its pods instead. With fewer pods, asking about each one costs no
// more.
const surveyFrom = 3

// listable reports whether kubelet may be asked for all its pods. Kubelet then cleans
// up. That does no harm before it has taken devices for the asking container, because
// it cleans up anyway when it begins with a container.
func (f *facts) listable() bool {
	return f.active == nil && !f.apart && !f.q.final && len(f.q.must) == 0
}

// surveys reports whether to ask for all pods. The answer rules out at once the pods
// that kubelet does not know yet and those that have ended.
func (f *facts) surveys(left []candidate) bool {
	return len(f.answers) > 0 && f.listable() && f.unsure(left) >= surveyFrom
}

// unsure counts the pods that we may have to ask kubelet about: the candidates left,
// and those that seem to hold devices that kubelet offers.
func (f *facts) unsure(left []candidate) int {
	pods := map[types.UID]bool{}
	for i := range left {
		pods[left[i].pod.uid] = true
	}
	for _, p := range f.pods {
		if len(f.q.overlapping(f.had(p, nil).with(f.unrecorded(p, nil)))) > 0 {
			pods[p.uid] = true
		}
	}
	for uid := range f.answers {
		delete(pods, uid)
	}
	return len(pods)
}

// strike rules out the pods that kubelet does not know, after it was asked for all.
func (f *facts) strike() {
	for _, p := range f.pods {
		if _, asked := f.answers[p.uid]; !asked && f.active != nil && !f.active[types.NamespacedName{Namespace: p.namespace, Name: p.name}] {
			f.answers[p.uid] = answer{unknown: true}
		}
	}
}

// survey asks kubelet for all its pods and rules out the others. If it is too late for
// that, or no answer comes, kubelet is asked about the pods one by one.
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
		klog.FromContext(ctx).V(2).Info("Kubelet does not answer with its pods", "err", err)
		return
	}
	f.active = active
	f.strike()
}

// awaitSurvey runs before the answer to q is given. It waits until a survey for another
// question is over. A survey that begins later sees this answer and does not run.
func (s *Steering) awaitSurvey(q question) {
	timer := s.clock.NewTimer(answerBudget - s.clock.Since(q.at))
	defer timer.Stop()
	select {
	case s.surveying <- struct{}{}:
		<-s.surveying
	case <-timer.C():
	}
}

// givesOut reports whether kubelet may be giving out devices that it has not recorded
// yet, apart from the question that is being answered. Kubelet admits one pod at a
// time, but workers of pods whose record it lost ask at the same time.
func (s *Steering) givesOut() bool {
	now := s.clock.Now()
	return s.giving.Load() > 1 || slices.ContainsFunc(s.all(), func(sh *shelf) bool {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.inHand(now)
	})
}

// inHand reports whether kubelet may be acting on an answer. How long the plugin takes
// for its part is not known. It needs mu.
func (s *shelf) inHand(now time.Time) bool {
	return slices.ContainsFunc(s.grants, func(g grant) bool { return len(g.ids) > 0 && now.Sub(g.at) < grantAge }) ||
		slices.ContainsFunc(s.pending, func(p *pendingAllocation) bool { return now.Sub(p.at) < grantAge })
}
