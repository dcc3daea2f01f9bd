// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/nodeagent/interposer"
)

// answered is the answer to a question.
type answered struct {
	ids []string
	err error
	// right: the container that was found may have these ids.
	right bool
}

// turn is one question from kubelet. If working out its answer takes too long, another
// answer is given from memory. The late answer must then have no effect.
type turn struct {
	given atomic.Bool           // one of the two answers was given to kubelet
	who   atomic.Pointer[asker] // who asks, once found and claimed
}

// take reports whether the caller's answer is the one to give.
func (t *turn) take() bool { return t.given.CompareAndSwap(false, true) }

// Preferred answers GetPreferredAllocation; see interposer.Steering. If the answer is
// not ready in time, another is given from memory.
func (s *Steering) Preferred(ctx context.Context, in interposer.Question,
	inner func(context.Context, interposer.Question) ([]string, error),
) ([]string, error) {
	defer s.give()()
	q := newQuestion(in.Resource, slices.Concat(in.Available, in.MustInclude), in.MustInclude, in.Size)
	q.at = s.clock.Now()
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
		s.promises.add(q.resource, got.ids, s.clock.Now())
	}
	return got.ids, got.err
}

// prefer works out an answer. It has no effect if another one was given in the
// meantime.
func (s *Steering) prefer(ctx context.Context, t *turn, q question,
	inner func(context.Context, interposer.Question) ([]string, error),
) answered {
	sh := s.shelf(klog.FromContext(ctx), q.resource)
	o := s.findOut(ctx, sh, t, q)
	if t.given.Load() {
		return answered{}
	}
	d := decide(o)
	if d.err == nil && d.narrowed != nil && inner != nil {
		d.ids = s.askInner(ctx, d, inner)
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
func (s *Steering) conclude(logger klog.Logger, sh *shelf, o *offer, d decision) answered {
	s.metrics.decisions.WithLabelValues(d.result).Inc()
	if d.err != nil {
		if sh != nil {
			sh.release(o.who)
		}
		logger.Error(d.err, "Refusing to allocate", "resource", o.q.resource)
		return answered{err: d.err}
	}
	if sh != nil {
		sh.grant(o.who, d.ids, s.clock.Now())
	}
	if d.result == resultConflict || d.result == resultForced {
		reason, _ := o.complaint()
		logger.Info("A container gets other devices than were chosen for it", "resource", o.q.resource, "pod", o.who.pod.key(),
			"container", o.who.container.name, "chosen", o.who.want, "devices", d.ids, "reason", reason)
	}
	return answered{ids: d.ids, right: o.who != nil && o.who.right(o.q.resource, d.ids)}
}

// findOut finds out who asks and gathers the input of decide. It asks kubelet about
// devices of other pods if the answer may depend on them.
func (s *Steering) findOut(ctx context.Context, sh *shelf, t *turn, q question) offer {
	ctx, cancel := context.WithTimeout(ctx, askBudget)
	defer cancel()
	f := s.facts(ctx, sh, q)
	who := s.claim(ctx, sh, t, f)
	look := func() offer {
		sh.mu.Lock()
		p := sh.plans(who, f.now)
		sh.mu.Unlock()
		return s.offer(f, who, p)
	}
	o := look()
	var open []*podView
	for _, p := range f.pods {
		if _, known := f.answers[p.uid]; !known && (o.needs(f.unrecorded(p, who)) || o.needs(f.had(p, who))) {
			open = append(open, p)
		}
	}
	if len(open) == 0 || f.mute {
		return o
	}
	if len(open) >= surveyFrom && f.listable() {
		s.survey(ctx, f)
	}
	for _, p := range open {
		if _, known := f.answers[p.uid]; !known && !f.mute {
			s.ask(ctx, f, p)
		}
	}
	return look()
}

// claim identifies who asks, so that two questions at the same time are never
// attributed to one container: the second one looks again. It claims nothing if the
// question has been answered already: the pod that is found then may be the next one,
// whose own question would find it claimed.
func (s *Steering) claim(ctx context.Context, sh *shelf, t *turn, f *facts) *asker {
	for {
		who := s.identify(ctx, sh, f)
		if who == nil {
			return nil
		}
		at := who.slot()
		sh.mu.Lock()
		if t.given.Load() {
			sh.mu.Unlock()
			return nil
		}
		claimed := sh.claims(s.clock.Now())
		if claimed[at] && !f.claimed[at] {
			f.claimed = claimed
			sh.mu.Unlock()
			continue
		}
		sh.grant(who, nil, s.clock.Now())
		t.who.Store(who)
		sh.mu.Unlock()
		return who
	}
}

// askInner returns the inner plugin's preference if it is valid, else our own pick.
func (s *Steering) askInner(ctx context.Context, d decision, inner func(context.Context, interposer.Question) ([]string, error)) []string {
	n := d.narrowed
	ids, err := inner(ctx, interposer.Question{Resource: n.resource, Available: n.offered.sorted(), MustInclude: n.must, Size: n.size})
	switch {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("The device plugin gave no preference", "resource", n.resource, "err", err)
	case !n.valid(ids):
		klog.FromContext(ctx).Info("The device plugin's preference does not answer the question", "resource", n.resource, "size", n.size, "devices", ids)
	default:
		return sortedCopy(ids)
	}
	return d.ids
}

// plans are what a shelf adds to the facts about pods: devices that were answered to
// others and are not recorded yet, and the list that kubelet was sent.
type plans struct {
	underway idSet
	healthy  map[string]bool
}

// plans needs mu.
func (s *shelf) plans(who *asker, now time.Time) plans {
	return plans{underway: s.underway(who, now), healthy: s.healthy}
}

// offer gathers the input of decide.
func (s *Steering) offer(f *facts, who *asker, p plans) offer {
	o := offer{q: f.q, who: who, tables: s.graphs.Tables(f.q.resource)}
	reserved, held := f.others(who)
	o.reserved, o.held, o.inUse = reserved.with(p.underway), held, f.inUse(who)
	o.strict = s.cfg.Strict
	if who == nil {
		o.unseen = f.unseen(o.strict)
	} else {
		o.strict = o.strict || who.pod.trusts()
		o.own, o.later = f.own(who)
	}
	o.why = func(id string) (string, bool) { return f.why(id, who, p.healthy) }
	return o
}

// release drops the claim of a question that was refused. It needs mu.
func (s *shelf) release(who *asker) {
	s.grants = slices.DeleteFunc(s.grants, func(g grant) bool { return who != nil && g.who != nil && g.who.slot() == who.slot() })
}
