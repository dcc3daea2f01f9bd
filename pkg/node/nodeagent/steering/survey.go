// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// survey queries kubelet for all its pods and rules out the others. If it is too late for that, or no
// response comes, kubelet is queried about the pods one by one.
func (s *Steering) survey(ctx context.Context, f *podfinder.Facts) {
	f.Surveyed = true
	patience := surveyBudget - s.clock.Since(f.Question.At)
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
	f.Active = active
	f.RuleOut()
}

// awaitSurvey waits, before q is answered, until a survey for another question is over. A survey that
// begins later sees this answer and does not run.
func (s *Steering) awaitSurvey(q question.Question) {
	timer := s.clock.NewTimer(answerBudget - s.clock.Since(q.At))
	defer timer.Stop()
	select {
	case s.surveying <- struct{}{}:
		<-s.surveying
	case <-timer.C():
	}
}

// givesOut reports whether kubelet may be allocating devices that it has not recorded yet, apart from the
// current question. Kubelet admits one pod at a time, but workers of pods whose record it lost send
// requests at the same time.
func (s *Steering) givesOut() bool {
	now := s.clock.Now()
	return s.giving.Load() > 1 || slices.ContainsFunc(s.all(), func(sh *shelf) bool {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return sh.inHand(now)
	})
}

// inHand reports whether kubelet may be acting on an answer. The duration of the plugin's part is not
// known. It needs mu.
func (s *shelf) inHand(now time.Time) bool {
	return slices.ContainsFunc(s.grants, func(g grant) bool { return len(g.ids) > 0 && now.Sub(g.at) < grantAge }) ||
		slices.ContainsFunc(s.pending, func(p *pendingAllocation) bool { return now.Sub(p.at) < grantAge })
}
