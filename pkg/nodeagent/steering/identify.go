// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/nodeagent/kubelet"
)

// facts gathers what is known without a request to kubelet or the API server.
func (s *Steering) facts(ctx context.Context, sh *shelf, q question) *facts {
	f := &facts{
		q: q, now: s.clock.Now(), pods: s.viewer.of(s.pods.Pods()), fresh: map[types.UID]bool{},
		recorded: s.recorded.of(ctx, sh.resource), answers: map[types.UID]answer{},
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.learn(f.recorded, f.pods, f.now)
	sh.recall(f)
	return f
}

// identify finds out who asks. It gets the answers that resolve wants from kubelet and,
// if needed, the API server, as long as the context allows.
func (s *Steering) identify(ctx context.Context, sh *shelf, f *facts) *asker {
	defer func() { sh.learnActive(f.answers) }()
	for {
		v := resolve(f)
		switch {
		case v.ask != nil:
			s.ask(ctx, f, v.ask)
		case v.survey:
			s.survey(ctx, f)
		case v.list:
			if !s.await(ctx, f) {
				s.list(ctx, f)
			}
		default:
			s.count(ctx, f, v.who)
			sh.learnOrder(f, v.who)
			return v.who
		}
	}
}

func (s *Steering) count(ctx context.Context, f *facts, who *asker) {
	if who == nil {
		s.metrics.identity.WithLabelValues(sourceNone).Inc()
		return
	}
	s.metrics.identity.WithLabelValues(who.source).Inc()
	if who.ambiguous {
		s.metrics.ambiguous.Inc()
		klog.FromContext(ctx).Info("Several containers could be the one that asks; took the likeliest", "resource", f.q.resource, "size", f.q.size,
			"pod", who.pod.key(), "container", who.container.name, "source", who.source)
	}
}

// ask asks kubelet about one pod. If no answer comes, or kubelet cannot answer, it is
// not asked again for this question: what is known must be enough.
func (s *Steering) ask(ctx context.Context, f *facts, p *podView) {
	s.metrics.gets.Inc()
	devices, err := s.kubelet.Get(ctx, p.namespace, p.name)
	switch {
	case errors.Is(err, kubelet.ErrUnknownPod):
		f.answers[p.uid] = answer{unknown: true}
	case err != nil:
		klog.FromContext(ctx).V(2).Info("Kubelet does not answer who holds which devices", "err", err)
		f.mute = true
	default:
		a := answer{holds: make(map[string][]string, len(devices))}
		for container, byResource := range devices {
			a.holds[container] = byResource[f.q.resource]
		}
		f.answers[p.uid] = a
	}
}

// await waits a moment for the watch to deliver a pod that kubelet already knows, and
// reports whether one came. A new pod proves nothing: kubelet is asked about it like
// about any other, and if it is not the one that asks, the pods are listed when the
// wait is over. await does not help if kubelet does not answer, because then the new
// pod cannot be checked.
func (s *Steering) await(ctx context.Context, f *facts) bool {
	if f.mute {
		return false
	}
	if f.patient.IsZero() {
		f.patient = s.clock.Now().Add(watchWait)
	}
	timer := s.clock.NewTimer(f.patient.Sub(s.clock.Now()))
	defer timer.Stop()
	for {
		changed := s.pods.Changed()
		if pods := s.viewer.of(s.pods.Pods()); f.lacks(pods) {
			f.take(pods)
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
func (s *Steering) list(ctx context.Context, f *facts) {
	f.listed = true
	s.metrics.lists.Inc()
	ctx, cancel := context.WithTimeout(ctx, listBudget)
	defer cancel()
	pods, err := s.pods.Live(ctx)
	if err != nil {
		f.unlisted = true
		klog.FromContext(ctx).Error(err, "Cannot list the pods of the node")
		return
	}
	f.take(s.viewer.of(pods))
}
