// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/answer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// Waits of the check against double use. A running allocation ends within milliseconds, and kubelet
// reports it right after.
const (
	overlapWait = 300 * time.Millisecond
	showWait    = 20 * time.Millisecond
	showAge     = 100 * time.Millisecond
)

// Allocate identifies the container for which kubelet allocates ids. It rejects ids that kubelet reports
// as held by another pod; see interposer.Steering. If the check is not done in time, ids are allowed, but
// in strict mode only if they were just the agent's answer to kubelet.
func (s *Steering) Allocate(ctx context.Context, resource string, ids []string) error {
	defer s.give()()
	promised := s.promises.take(resource, ids, s.clock.Now())
	timer := s.clock.NewTimer(answerBudget)
	defer timer.Stop()
	t := &turn{}
	done := make(chan error, 1)
	go func() { done <- s.admit(ctx, t, resource, ids) }()
	select {
	case err := <-done:
		return err
	case <-timer.C():
		if !t.take() {
			return <-done // its answer is already decided
		}
	}
	if s.cfg.Strict && !promised {
		s.metrics.decisions.WithLabelValues(answer.ResultRefused).Inc()
		return status.Errorf(codes.Unavailable, "%s: cannot check in time whether another container holds %v", resource, ids)
	}
	klog.FromContext(ctx).Info("Allowed devices without checking them for double use: the check took too long",
		"resource", resource, "devices", ids)
	return nil
}

// admit does Allocate's work without a time limit. It has no effect if another answer was given before it
// registered the allocation.
func (s *Steering) admit(ctx context.Context, t *turn, resource string, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, askBudget)
	defer cancel()
	logger := klog.FromContext(ctx)
	sh := s.shelf(logger, resource)
	ids = question.SetOf(ids).Sorted()
	f := s.facts(ctx, sh, question.NewFinal(resource, ids))
	p := &pendingAllocation{ids: ids, at: f.Now, done: make(chan struct{})}
	sh.mu.Lock()
	if t.given.Load() {
		sh.mu.Unlock()
		return nil // the allocation may be over, and then nothing would remove it from pending
	}
	f.Claimed = sh.claims(f.Now)
	// Both in one step, so that the container is claimed all the time.
	p.who = sh.granted(ids, f.Now)
	sh.pending = append(sh.pending, p)
	sh.mu.Unlock()
	if p.who == nil {
		who := s.identify(ctx, sh, f)
		sh.mu.Lock()
		p.who = who
		sh.mu.Unlock()
	}
	err := s.check(ctx, sh, f, p)
	if !t.take() {
		return nil // Allocated removes it from pending, or it expires
	}
	if err != nil {
		s.metrics.decisions.WithLabelValues(answer.ResultRefused).Inc()
		logger.Error(err, "Refusing to allocate", "resource", resource)
		sh.mu.Lock()
		sh.pending = slices.DeleteFunc(sh.pending, func(o *pendingAllocation) bool { return o == p })
		sh.mu.Unlock()
		return err
	}
	return nil
}

// Allocated records the devices given to a container; see interposer.Steering. Kubelet waits for it only
// briefly: kubelet's own record has the same devices.
func (s *Steering) Allocated(resource string, ids []string) {
	within(s.clock, fileWait, func() struct{} {
		s.allocated(resource, ids)
		return struct{}{}
	})
}

func (s *Steering) allocated(resource string, ids []string) {
	sh := s.shelf(klog.Background(), resource)
	ids = question.SetOf(ids).Sorted()
	sh.mu.Lock()
	if p := sh.settle(ids); p != nil {
		close(p.done)
		if p.who != nil {
			sh.serve(p.who, ids, s.clock.Now())
		}
	}
	sh.mu.Unlock()
	select {
	case s.written <- struct{}{}:
	default: // Run is already woken
	}
	if f := s.notify.Load(); f != nil {
		(*f)()
	}
}

// check returns an error if kubelet must not allocate the devices that it has taken.
func (s *Steering) check(ctx context.Context, sh *shelf, f *podfinder.Facts, p *pendingAllocation) error {
	if err := f.Unfit(p.who, s.cfg.Strict); err != nil {
		return err
	}
	if err := s.guardKept(f, p); err != nil {
		return err
	}
	if err := s.guardUnrecorded(ctx, f, p); err != nil {
		return err
	}
	return s.guard(ctx, sh, f, p)
}

// guardKept rejects ids that another container of the same pod has and keeps. Kubelet takes such ids only
// because of the fault that guard is for. The pod would have fewer devices than it requests.
func (s *Steering) guardKept(f *podfinder.Facts, p *pendingAllocation) error {
	taken, kept := question.SetOf(p.ids), f.Kept(p.who)
	for _, id := range slices.Sorted(maps.Keys(kept)) {
		if taken.Overlaps(id) {
			s.metrics.doubleBook.Inc()
			return status.Errorf(codes.FailedPrecondition, "%s: kubelet took %v for container %s of pod %s, but container %s of the same pod holds %s",
				f.Question.Resource, p.ids, p.who.Container.Name, p.who.Pod.Key(), kept[id], id)
		}
	}
	return nil
}

// guardUnrecorded rejects ids that containers run with after kubelet has lost its record of them: kubelet
// takes such ids by itself if it has no others. An unknown requesting container may be one of these
// containers, which should get its ids again; but a container that the API server shows as running is not
// the one.
func (s *Steering) guardUnrecorded(ctx context.Context, f *podfinder.Facts, p *pendingAllocation) error {
	if p.who != nil && p.who.Source == podfinder.SourceGuess {
		return nil
	}
	for _, v := range f.Pods {
		if !f.Unrecorded(v, p.who).OverlapsAny(p.ids) {
			continue
		}
		if _, asked := f.Answers[v.UID]; !asked && !f.Mute {
			s.ask(ctx, f, v)
		}
		if f.Present(v, p.who) && f.Unrecorded(v, p.who).OverlapsAny(p.ids) {
			s.metrics.doubleBook.Inc()
			return status.Errorf(codes.FailedPrecondition, "%s: containers of pod %s run with some of %v, and kubelet has lost the record of that",
				f.Question.Resource, v.Key(), p.ids)
		}
	}
	return nil
}

// holder is another pod that may hold one of the ids.
type holder struct {
	uid             types.UID
	namespace, name string
	at              time.Time // when it was served
	listed          bool      // the watch has it
}

// guard rejects ids that kubelet itself reports as held by another active pod. Kubelet can allocate a
// device twice if it cleans up while the agent answers a question (kubernetes/kubernetes#137534). Only
// kubelet's current report is used: every other source may be about a pod that has ended, whose devices
// are free.
func (s *Steering) guard(ctx context.Context, sh *shelf, f *podfinder.Facts, p *pendingAllocation) error {
	s.awaitOverlap(ctx, sh, p)
	for _, h := range s.holders(sh, f, p.who, p.ids) {
		for {
			held, ok := s.shown(ctx, sh, f, h, p.ids)
			if held != "" {
				s.metrics.doubleBook.Inc()
				return status.Errorf(codes.FailedPrecondition, "%s: device %s is still held by pod %s/%s", f.Question.Resource, held, h.namespace, h.name)
			}
			if !ok || s.clock.Since(h.at) >= showAge || ctx.Err() != nil {
				break
			}
			// Kubelet reports it after it has received the agent's answer.
			s.wait(ctx, showWait)
		}
	}
	return nil
}

// awaitOverlap waits for running allocations of the same devices.
func (s *Steering) awaitOverlap(ctx context.Context, sh *shelf, p *pendingAllocation) {
	set := question.SetOf(p.ids)
	var wait []*pendingAllocation
	sh.mu.Lock()
	// This is the only removal of an allocation that the plugin rejected.
	sh.pending = slices.DeleteFunc(sh.pending, func(o *pendingAllocation) bool { return s.clock.Since(o.at) >= grantAge })
	for _, o := range sh.pending {
		if o == p {
			break // later ones wait for this one
		}
		if set.OverlapsAny(o.ids) && s.clock.Since(o.at) < podfinder.SettleAge {
			wait = append(wait, o)
		}
	}
	sh.mu.Unlock()
	for _, o := range wait {
		select {
		case <-o.done:
		case <-ctx.Done():
		case <-s.clock.After(overlapWait):
		}
	}
}

func (s *Steering) wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-s.clock.After(d):
	}
}

// holders returns the other pods that were given any of ids and could still exist. A pod that could
// itself be requesting is left out: rejecting it would be wrong.
func (s *Steering) holders(sh *shelf, f *podfinder.Facts, who *podfinder.Asker, ids []string) []holder {
	set := question.SetOf(ids)
	views := make(map[types.UID]*podfinder.Pod, len(f.Pods))
	for _, p := range f.Pods {
		views[p.UID] = p
	}
	var out []holder
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for uid, p := range sh.served {
		v := views[uid]
		if p.name == "" || (v != nil && v.Terminal) || mayAsk(f, who, uid, p, v) {
			continue
		}
		for name, d := range p.containers {
			// Kubelet cannot show what it has not recorded, unless that came just now:
			// perhaps after f was gathered.
			old := s.clock.Since(d.At) >= podfinder.SettleAge
			gone := v == nil && sh.ended[uid] || f.Recorded != nil && len(f.Recorded[uid][name]) == 0 && (sh.gone[uid] || old)
			if set.OverlapsAny(d.IDs) && !gone {
				out = append(out, holder{uid: uid, namespace: p.namespace, name: p.name, at: d.At, listed: v != nil})
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b holder) int { return cmp.Compare(a.uid, b.uid) })
	return out
}

// mayAsk reports whether the holder is or could be the requesting pod, or has its name: kubelet's report
// would then be about the requesting pod.
func mayAsk(f *podfinder.Facts, who *podfinder.Asker, uid types.UID, p *servedPod, v *podfinder.Pod) bool {
	if who != nil {
		return who.Pod.UID == uid || (who.Pod.Namespace == p.namespace && who.Pod.Name == p.name)
	}
	return v != nil && f.MayAsk(v)
}

// shown reads the holder's devices from kubelet, and returns one that overlaps ids. ok reports whether
// the pod is active, so the devices might still appear.
func (s *Steering) shown(ctx context.Context, sh *shelf, f *podfinder.Facts, h holder, ids []string) (id string, ok bool) {
	s.metrics.gets.Inc()
	devices, err := s.kubelet.Get(ctx, h.namespace, h.name)
	if err != nil {
		if errors.Is(err, kubelet.ErrUnknownPod) {
			sh.learnActive(map[types.UID]podfinder.Answer{h.uid: {Unknown: true}})
			if !h.listed {
				s.LearnEnded(h.uid)
			}
		} else {
			klog.FromContext(ctx).V(2).Info("Cannot check for double use", "pod", h.namespace+"/"+h.name, "err", err)
		}
		return "", false
	}
	set := question.SetOf(ids)
	for _, byResource := range devices {
		for _, id := range byResource[f.Question.Resource] {
			if set.Overlaps(id) {
				return id, true
			}
		}
	}
	return "", true
}
