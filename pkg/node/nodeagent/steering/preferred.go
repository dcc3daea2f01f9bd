// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/answer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// answered is the answer to a question.
type answered struct {
	ids []string
	err error
	// right is true if the container that was found may have these ids.
	right bool
}

// turn is one question from kubelet. If its answer takes too long, another is given from memory. The late
// answer must then have no effect.
type turn struct {
	given atomic.Bool                     // one of the two answers was given to kubelet
	who   atomic.Pointer[podfinder.Asker] // the requesting container, once found and claimed
}

// take reports whether the caller's answer is the one to give.
func (t *turn) take() bool { return t.given.CompareAndSwap(false, true) }

// Preferred answers GetPreferredAllocation; see interposer.Steering. If the answer is not ready in time,
// another is given from memory.
func (s *Steering) Preferred(ctx context.Context, in interposer.Question,
	inner func(context.Context, interposer.Question) ([]string, error),
) ([]string, error) {
	defer s.give()()
	q := question.New(in.Resource, slices.Concat(in.Available, in.MustInclude), in.MustInclude, in.Size)
	q.At = s.clock.Now()
	timer := s.clock.NewTimer(answerBudget)
	defer timer.Stop()
	t := &turn{}
	done := make(chan answered, 1)
	go func() { done <- s.prefer(ctx, t, q, inner) }()
	var got answered
	select {
	case got = <-done:
	case <-timer.C():
		if t.take() {
			got = s.fallback(klog.FromContext(ctx), t, q)
		} else {
			got = <-done // its answer is already decided
		}
	}
	if got.right {
		s.promises.add(q.Resource, got.ids, s.clock.Now())
	}
	return got.ids, got.err
}

// prefer computes an answer. It has no effect if another one was given in the meantime.
func (s *Steering) prefer(ctx context.Context, t *turn, q question.Question,
	inner func(context.Context, interposer.Question) ([]string, error),
) answered {
	sh := s.shelf(klog.FromContext(ctx), q.Resource)
	o := s.findOut(ctx, sh, t, q)
	if t.given.Load() {
		return answered{}
	}
	d := answer.Decide(o)
	if d.Err == nil && d.Narrowed != nil && inner != nil {
		d.IDs = s.askInner(ctx, d, inner)
	}
	sh.mu.Lock()
	if !t.take() {
		sh.mu.Unlock()
		return answered{}
	}
	a := s.conclude(klog.FromContext(ctx), sh, &o, d)
	sh.mu.Unlock()
	s.awaitSurvey(q)
	return a
}

// conclude records the answer. sh is locked, or nil if it could not be locked.
func (s *Steering) conclude(logger klog.Logger, sh *shelf, o *answer.Offer, d answer.Decision) answered {
	s.metrics.decisions.WithLabelValues(d.Result).Inc()
	if d.Err != nil {
		if sh != nil {
			sh.release(o.Who)
		}
		logger.Error(d.Err, "Refusing to allocate", "resource", o.Question.Resource)
		return answered{err: d.Err}
	}
	if sh != nil {
		sh.grant(o.Who, d.IDs, s.clock.Now())
	}
	if d.Result == answer.ResultConflict || d.Result == answer.ResultForced {
		reason, _ := o.Complaint()
		logger.Info("A container gets other devices than were chosen for it", "resource", o.Question.Resource, "pod", o.Who.Pod.Key(),
			"container", o.Who.Container.Name, "chosen", o.Who.Want, "devices", d.IDs, "reason", reason)
	}
	return answered{ids: d.IDs, right: o.Who != nil && o.Who.Right(o.Question.Resource, d.IDs)}
}

// findOut finds the requesting container and gathers the input of answer.Decide. It queries kubelet about
// devices of other pods if the answer may depend on them.
func (s *Steering) findOut(ctx context.Context, sh *shelf, t *turn, q question.Question) answer.Offer {
	ctx, cancel := context.WithTimeout(ctx, askBudget)
	defer cancel()
	f := s.facts(ctx, sh, q)
	who := s.claim(ctx, sh, t, f)
	look := func() answer.Offer {
		sh.mu.Lock()
		p := sh.plans(who, f.Now)
		sh.mu.Unlock()
		return s.offer(f, who, p)
	}
	o := look()
	var open []*podfinder.Pod
	for _, p := range f.Pods {
		if _, known := f.Answers[p.UID]; !known && (o.Needs(f.Unrecorded(p, who)) || o.Needs(f.Had(p, who))) {
			open = append(open, p)
		}
	}
	if len(open) == 0 || f.Mute {
		return o
	}
	if len(open) >= podfinder.SurveyFrom && f.Listable() {
		s.survey(ctx, f)
	}
	for _, p := range open {
		if _, known := f.Answers[p.UID]; !known && !f.Mute {
			s.ask(ctx, f, p)
		}
	}
	return look()
}

// claim identifies the requesting container, so that two simultaneous questions are never attributed to
// one container: the second one searches again. It claims nothing if the question has been answered
// already: the pod that is found then may be the next one, whose own question would find it claimed.
func (s *Steering) claim(ctx context.Context, sh *shelf, t *turn, f *podfinder.Facts) *podfinder.Asker {
	for {
		who := s.identify(ctx, sh, f)
		if who == nil {
			return nil
		}
		at := who.Ref()
		sh.mu.Lock()
		if t.given.Load() {
			sh.mu.Unlock()
			return nil
		}
		claimed := sh.claims(s.clock.Now())
		if claimed[at] && !f.Claimed[at] {
			f.Claimed = claimed
			sh.mu.Unlock()
			continue
		}
		sh.grant(who, nil, s.clock.Now())
		t.who.Store(who)
		sh.mu.Unlock()
		return who
	}
}

// askInner returns the inner plugin's preference if it is valid, else the agent's own pick.
func (s *Steering) askInner(ctx context.Context, d answer.Decision, inner func(context.Context, interposer.Question) ([]string, error)) []string {
	n := d.Narrowed
	ids, err := inner(ctx, interposer.Question{Resource: n.Resource, Available: n.Offered.Sorted(), MustInclude: n.Must, Size: n.Size})
	switch {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("The device plugin gave no preference", "resource", n.Resource, "err", err)
	case !n.Valid(ids):
		klog.FromContext(ctx).Info("The device plugin's preference does not answer the question", "resource", n.Resource, "size", n.Size, "devices", ids)
	default:
		return question.Sorted(ids)
	}
	return d.IDs
}

// plans is a shelf's addition to the facts about pods: devices that were answered to others and are not
// recorded yet, and the list that kubelet was sent.
type plans struct {
	underway question.Set
	healthy  map[string]bool
}

// plans returns the shelf's plans. It needs mu.
func (s *shelf) plans(who *podfinder.Asker, now time.Time) plans {
	return plans{underway: s.underway(who, now), healthy: s.healthy}
}

// offer gathers the input of answer.Decide.
func (s *Steering) offer(f *podfinder.Facts, who *podfinder.Asker, p plans) answer.Offer {
	o := answer.NewOffer(f, who, s.cfg.Strict, p.healthy)
	o.Tables = s.graphs.Tables(f.Question.Resource)
	o.Promised = o.Promised.With(p.underway)
	return o
}

// release drops the claim of a rejected question. It needs mu.
func (s *shelf) release(who *podfinder.Asker) {
	s.grants = slices.DeleteFunc(s.grants, func(g grant) bool { return who != nil && g.who != nil && g.who.Ref() == who.Ref() })
}
