// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/klog/v2"
)

// PreStart prevents the start of a container that holds other devices than were chosen
// for it; see interposer.Steering. If something cannot be found out, the container may
// start: one that ran well must not stay down because the agent knows too little.
func (s *Steering) PreStart(ctx context.Context, resource string, ids []string) error {
	defer s.enter()()
	err, ok := within(s.clock, answerBudget, func() error { return s.startable(ctx, resource, ids) })
	switch {
	case !ok:
		klog.FromContext(ctx).Info("Allowed a container to start without checking its devices: the check took too long",
			"resource", resource, "devices", ids)
		return nil
	case err != nil:
		s.metrics.decisions.WithLabelValues(resultRefused).Inc()
	}
	return err
}

// startable does PreStart's work without a time limit.
func (s *Steering) startable(ctx context.Context, resource string, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, askBudget)
	defer cancel()
	logger := klog.FromContext(ctx)
	sh := s.shelf(logger, resource)
	ids = newSet(ids).sorted()
	f := s.facts(ctx, sh, finalQuestion(resource, ids))
	wrong := s.wrongHolder(ctx, f, ids)
	if wrong == nil {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "%s: container %s of pod %s holds %v, but %v was chosen for it",
		resource, wrong.container.name, wrong.pod.key(), ids, wrong.want)
}

// wrongHolder returns a container that holds ids although others were chosen for it. It
// returns nil if there is none, or if kubelet does not confirm it, because records may
// be of an earlier pod. If two containers of one pod have the same ids, such as an init
// container and the one that it passes them on to, either may be about to start.
func (s *Steering) wrongHolder(ctx context.Context, f *facts, ids []string) *asker {
	havers := f.havers(ids)
	for _, who := range havers {
		strict := s.cfg.Strict || who.pod.trusts()
		excused := slices.ContainsFunc(havers, func(o *asker) bool { return o.pod == who.pod && o.right(f.q.resource, ids) })
		if strict && !excused && s.confirmed(ctx, f, who, ids) {
			return who
		}
	}
	return nil
}

// confirmed reports whether kubelet still shows that the container holds ids. For a
// plain init container kubelet shows only that the pod is there.
func (s *Steering) confirmed(ctx context.Context, f *facts, who *asker, ids []string) bool {
	s.metrics.gets.Inc()
	devices, err := s.kubelet.Get(ctx, who.pod.namespace, who.pod.name)
	if err != nil {
		return false
	}
	return who.container.plain || slices.Equal(devices[who.container.name][f.q.resource], ids)
}
