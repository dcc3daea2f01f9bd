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

// facts gathers the facts that need no request to kubelet or the API server.
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

// identify returns the requesting container, or nil. It makes the requests to kubelet and, if needed, the
// API server that podfinder.Resolve wants, as long as the context allows.
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

// ask requests one pod from kubelet. If kubelet does not respond or cannot, it gets no further request
// for this question.
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

// await waits briefly for the watch to deliver a pod that kubelet already knows, and reports whether one
// came. A new pod proves nothing: it is looked up at kubelet like any other, and if it is not the
// requesting one, the pods are listed when the wait is over. await does not help if kubelet does not
// respond, because then the new pod cannot be checked.
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

// list replaces the pods by the API server's list: kubelet may know pods that the watch has not
// delivered.
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
