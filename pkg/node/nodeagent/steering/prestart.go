// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/answer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// PreStart prevents the start of a container that holds other devices than were chosen for it; see
// interposer.Steering. If a fact is unknown, the container may start: one that ran well must not stay
// down because the agent knows too little.
func (s *Steering) PreStart(ctx context.Context, resource string, ids []string) error {
	defer s.enter()()
	err, ok := within(s.clock, answerBudget, func() error { return s.startable(ctx, resource, ids) })
	switch {
	case !ok:
		klog.FromContext(ctx).Info("Allowed a container to start without checking its devices: the check took too long",
			"resource", resource, "devices", ids)
		return nil
	case err != nil:
		s.metrics.decisions.WithLabelValues(answer.ResultRefused).Inc()
	}
	return err
}

// startable does PreStart's work without a time limit.
func (s *Steering) startable(ctx context.Context, resource string, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, askBudget)
	defer cancel()
	logger := klog.FromContext(ctx)
	sh := s.shelf(logger, resource)
	ids = question.SetOf(ids).Sorted()
	f := s.facts(ctx, sh, question.NewFinal(resource, ids))
	wrong := s.wrongHolder(ctx, f, ids)
	if wrong == nil {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "%s: container %s of pod %s holds %v, but %v was chosen for it",
		resource, wrong.Container.Name, wrong.Pod.Key(), ids, wrong.Want)
}

// wrongHolder returns a container that holds ids although others were chosen for it. It returns nil if
// none does, or if kubelet does not confirm it, because records may be of an earlier pod. If two
// containers of one pod have the same ids, such as an init container and the one that it passes them on
// to, either may be about to start.
func (s *Steering) wrongHolder(ctx context.Context, f *podfinder.Facts, ids []string) *podfinder.Asker {
	havers := f.Havers(ids)
	for _, who := range havers {
		strict := s.cfg.Strict || who.Pod.Trusts()
		excused := slices.ContainsFunc(havers, func(o *podfinder.Asker) bool { return o.Pod == who.Pod && o.Right(f.Question.Resource, ids) })
		if strict && !excused && s.confirmed(ctx, f, who, ids) {
			return who
		}
	}
	return nil
}

// confirmed reports whether kubelet still reports that the container holds ids. For a plain init
// container kubelet reports only that the pod is active.
func (s *Steering) confirmed(ctx context.Context, f *podfinder.Facts, who *podfinder.Asker, ids []string) bool {
	s.metrics.gets.Inc()
	devices, err := s.kubelet.Get(ctx, who.Pod.Namespace, who.Pod.Name)
	if err != nil {
		return false
	}
	return who.Container.Plain || slices.Equal(devices[who.Container.Name][f.Question.Resource], ids)
}
