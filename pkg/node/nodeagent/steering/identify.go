// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// facts gathers what is known without a request to kubelet or the API server.
func (s *Steering) facts(ctx context.Context, sh *shelf, q question.Question) *podfinder.Facts {
	f := &podfinder.Facts{
		Question: q, Now: s.clock.Now(), Pods: s.viewer.of(s.pods.Pods()), Fresh: map[types.UID]bool{},
		Recorded: s.recorded.of(ctx, sh.resource), Answers: map[types.UID]podfinder.Answer{},
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.learn(f.Recorded, f.Pods, f.Now)
	sh.recall(f)
	return f
}

// identify finds out who asks. It gets the answers that podfinder.Resolve wants from kubelet and,
// if needed, the API server, as long as the context allows.
func (s *Steering) identify(ctx context.Context, sh *shelf, f *podfinder.Facts) *podfinder.Asker {
	defer func() { sh.learnActive(f.Answers) }()
	for {
		v := podfinder.Resolve(f)
		switch {
		case v.Ask != nil:
			s.ask(ctx, f, v.Ask)
		case v.Survey:
			s.survey(ctx, f)
		case v.List:
			if !s.await(ctx, f) {
				s.list(ctx, f)
			}
		default:
			s.count(ctx, f, v.Who)
			sh.learnOrder(f, v.Who)
			return v.Who
		}
	}
}

func (s *Steering) count(ctx context.Context, f *podfinder.Facts, who *podfinder.Asker) {
	if who == nil {
		s.metrics.identity.WithLabelValues(podfinder.SourceNone).Inc()
		return
	}
	s.metrics.identity.WithLabelValues(who.Source).Inc()
	if who.Ambiguous {
		s.metrics.ambiguous.Inc()
		klog.FromContext(ctx).Info("Several containers could be the one that asks; took the likeliest", "resource", f.Question.Resource, "size", f.Question.Size,
			"pod", who.Pod.Key(), "container", who.Container.Name, "source", who.Source)
	}
}

// ask asks kubelet about one pod. If no answer comes, or kubelet cannot answer, it is
// not asked again for this question: what is known must be enough.
func (s *Steering) ask(ctx context.Context, f *podfinder.Facts, p *podfinder.Pod) {
	s.metrics.gets.Inc()
	devices, err := s.kubelet.Get(ctx, p.Namespace, p.Name)
	switch {
	case errors.Is(err, kubelet.ErrUnknownPod):
		f.Answers[p.UID] = podfinder.Answer{Unknown: true}
	case err != nil:
		klog.FromContext(ctx).V(2).Info("Kubelet does not answer who holds which devices", "err", err)
		f.Mute = true
	default:
		a := podfinder.Answer{Holds: make(map[string][]string, len(devices))}
		for container, byResource := range devices {
			a.Holds[container] = byResource[f.Question.Resource]
		}
		f.Answers[p.UID] = a
	}
}

// await waits a moment for the watch to deliver a pod that kubelet already knows, and
// reports whether one came. A new pod proves nothing: kubelet is asked about it like
// about any other, and if it is not the one that asks, the pods are listed when the
// wait is over. await does not help if kubelet does not answer, because then the new
// pod cannot be checked.
func (s *Steering) await(ctx context.Context, f *podfinder.Facts) bool {
	if f.Mute {
		return false
	}
	if f.WaitUntil.IsZero() {
		f.WaitUntil = s.clock.Now().Add(watchWait)
	}
	timer := s.clock.NewTimer(f.WaitUntil.Sub(s.clock.Now()))
	defer timer.Stop()
	for {
		changed := s.pods.Changed()
		if pods := s.viewer.of(s.pods.Pods()); f.Lacks(pods) {
			f.Take(pods)
			return true
		}
		select {
		case <-changed:
		case <-timer.C():
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// list takes the pods from the API server: kubelet may know more than our watch.
func (s *Steering) list(ctx context.Context, f *podfinder.Facts) {
	f.Listed = true
	s.metrics.lists.Inc()
	ctx, cancel := context.WithTimeout(ctx, listBudget)
	defer cancel()
	pods, err := s.pods.Live(ctx)
	if err != nil {
		f.Unlisted = true
		klog.FromContext(ctx).Error(err, "Cannot list the pods of the node")
		return
	}
	f.Take(s.viewer.of(pods))
}
