// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/klog/v2"
)

// PreStart keeps a container from starting that holds other devices than were
// chosen for it; see interposer.Steering. Whatever cannot be found out lets it start: a
// container that ran well must not stay down because the agent knows too little.
func (s *Steering) PreStart(ctx context.Context, resource string, ids []string) error {
	defer s.enter()()
	err, ok := within(s.clock, answerBudget, func() error { return s.startable(ctx, resource, ids) })
	switch {
	case !ok:
		klog.FromContext(ctx).Info("Not checked whether a container holds what was chosen for it: what would tell does not answer in time",
			"resource", resource, "devices", ids)
		return nil
	case err != nil:
		s.metrics.decisions.WithLabelValues(resultRefused).Inc()
	}
	return err
}

// startable is PreStart for as long as it takes.
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

// wrongHolder is the container that holds ids although others were chosen for it;
// nil if there is none, or if kubelet does not confirm it: records may be of a pod
// of before. Of two containers of one pod with the same ids, such as an init
// container and its heir, either may be about to start.
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

// havers are the containers that were given exactly ids.
func (f *facts) havers(ids []string) []*asker {
	var out []*asker
	for _, p := range f.pods {
		if p.terminal {
			continue
		}
		for i := range p.containers {
			c := &p.containers[i]
			if c.limits[f.q.resource] == len(ids) && slices.Equal(f.held(p.uid, c.name), ids) {
				out = append(out, &asker{pod: p, container: c, want: c.want[f.q.resource]})
			}
		}
	}
	return out
}

// confirmed reports whether kubelet still shows the container with ids; of a plain
// init container it shows only that the pod is there.
func (s *Steering) confirmed(ctx context.Context, f *facts, who *asker, ids []string) bool {
	s.metrics.gets.Inc()
	devices, err := s.kubelet.Get(ctx, who.pod.namespace, who.pod.name)
	if err != nil {
		return false
	}
	return who.container.plain || slices.Equal(devices[who.container.name][f.q.resource], ids)
}
