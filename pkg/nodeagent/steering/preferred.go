// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/nodeagent/interposer"
)

// Preferred answers GetPreferredAllocation; see interposer.Steering.
func (s *Steering) Preferred(ctx context.Context, in interposer.Question,
	inner func(context.Context, interposer.Question) ([]string, error),
) ([]string, error) {
	defer s.enter()()
	logger := klog.FromContext(ctx)
	sh := s.shelf(logger, in.Resource)
	q := newQuestion(in.Resource, slices.Concat(in.Available, in.MustInclude), in.MustInclude, in.Size)
	f := s.facts(logger, sh, q)
	o := s.findOut(ctx, sh, f)
	who, d := o.who, decide(o)
	s.metrics.decisions.WithLabelValues(d.result).Inc()
	if d.err != nil {
		sh.release(who)
		logger.Error(d.err, "Refusing to allocate", "resource", in.Resource)
		return nil, d.err
	}
	ids := d.ids
	if d.narrowed != nil && inner != nil {
		ids = s.askInner(ctx, d, inner)
	}
	sh.mu.Lock()
	sh.grant(who, ids, s.clock.Now())
	sh.mu.Unlock()
	if d.result == resultConflict || d.result == resultForced {
		reason, _ := o.complaint()
		logger.Info("A container gets other devices than were chosen for it", "resource", in.Resource, "pod", who.pod.key(),
			"container", who.container.name, "chosen", who.want, "devices", ids, "reason", reason)
	}
	return ids, nil
}

// findOut finds who asks and gathers what decide goes by. Of devices that are
// another pod's and that the answer might have to do with, kubelet is asked.
func (s *Steering) findOut(ctx context.Context, sh *shelf, f *facts) offer {
	ctx, cancel := context.WithTimeout(ctx, askBudget)
	defer cancel()
	who := s.claim(ctx, sh, f)
	o := s.offer(sh, f, who)
	asked := false
	for _, p := range f.pods {
		if _, known := f.answers[p.uid]; known || f.mute {
			continue
		}
		if o.needs(f.unrecorded(p, who)) || o.needs(f.had(p, who)) {
			s.ask(ctx, f, p)
			asked = true
		}
	}
	if asked {
		o = s.offer(sh, f, who)
	}
	return o
}

// claim identifies who asks so that of two questions at once no two are put down
// to one container: who comes second looks again.
func (s *Steering) claim(ctx context.Context, sh *shelf, f *facts) *asker {
	for {
		who := s.identify(ctx, sh, f)
		if who == nil {
			return nil
		}
		at := who.slot()
		sh.mu.Lock()
		claimed := sh.claims(s.clock.Now())
		if claimed[at] && !f.claimed[at] {
			f.claimed = claimed
			sh.mu.Unlock()
			continue
		}
		sh.grant(who, nil, s.clock.Now())
		sh.mu.Unlock()
		return who
	}
}

// askInner is the inner plugin's preference if it is a proper one, else our pick.
func (s *Steering) askInner(ctx context.Context, d decision, inner func(context.Context, interposer.Question) ([]string, error)) []string {
	n := d.narrowed
	ids, err := inner(ctx, interposer.Question{Resource: n.resource, Available: n.offered.sorted(), MustInclude: n.must, Size: n.size})
	switch {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("The device plugin tells no preference", "resource", n.resource, "err", err)
	case !n.valid(ids):
		klog.FromContext(ctx).Info("The device plugin's preference does not answer the question", "resource", n.resource, "size", n.size, "devices", ids)
	default:
		return sortedCopy(ids)
	}
	return d.ids
}

// offer gathers what decide goes by.
func (s *Steering) offer(sh *shelf, f *facts, who *asker) offer {
	o := offer{q: f.q, who: who, tables: s.graphs.Tables(f.q.resource)}
	sh.mu.Lock()
	o.reserved = sh.underway(who, f.now)
	healthy := sh.healthy
	sh.mu.Unlock()
	reserved, held := f.others(who)
	o.reserved, o.held, o.inUse = o.reserved.with(reserved), held, f.inUse(who)
	o.strict = s.cfg.Strict
	if who == nil {
		o.unseen = f.unseen(o.strict)
	} else {
		o.strict = o.strict || who.pod.trusts()
		o.own, o.later = f.own(who)
	}
	o.why = func(id string) (string, bool) { return f.why(id, who, healthy) }
	return o
}

// others tells what was chosen for other pods of the node that do not hold it yet,
// with what containers hold that kubelet has lost the record of; and what others hold,
// the asking pod's other containers included, but for what those pass on.
func (f *facts) others(who *asker) (reserved, held idSet) {
	reserved, held = idSet{}, idSet{}
	for _, p := range f.pods {
		own := who != nil && p.uid == who.pod.uid
		for i := range p.containers {
			c := &p.containers[i]
			switch {
			case p.terminal, own && c.plain:
				continue
			case f.holds(p, i):
				held.add(physicals(f.held(p.uid, c.name)))
				continue
			case own:
				continue
			}
			reserved.add(c.want[f.q.resource])
			reserved.add(physicals(f.served[p.uid][c.name].IDs))
		}
	}
	return reserved, held
}

// own is what was chosen for the asking pod and is not kept by another container
// of it, and the part of that which a container that comes later is to keep.
func (f *facts) own(who *asker) (own, later idSet) {
	own, later = who.pod.wants(f.q.resource), idSet{}
	for i := range who.pod.containers {
		c := &who.pod.containers[i]
		if c.plain || c.name == who.container.name {
			continue
		}
		if f.holds(who.pod, i) {
			own = own.without(newSet(physicals(f.held(who.pod.uid, c.name))))
		} else {
			later.add(c.want[f.q.resource])
		}
	}
	return own, later.without(newSet(who.want))
}

// held is what a container holds, by the best source there is.
func (f *facts) held(uid types.UID, container string) []string {
	if ids := f.answers[uid].holds[container]; len(ids) > 0 {
		return ids
	}
	if ids := f.recorded[uid][container]; len(ids) > 0 {
		return ids
	}
	return f.served[uid][container].IDs
}

// why tells why a chosen device is not on offer, and whether the reason is that
// kubelet decided by itself.
func (f *facts) why(id string, who *asker, healthy map[string]bool) (string, bool) {
	for _, p := range f.pods {
		for i := range p.containers {
			asks := who != nil && p.uid == who.pod.uid && p.containers[i].name == who.container.name
			if !asks && !p.terminal && newSet(physicals(f.held(p.uid, p.containers[i].name))).has(id) {
				return "is held by container " + p.containers[i].name + " of pod " + p.key(), false
			}
		}
	}
	known := healthy == nil
	for device, ok := range healthy {
		if physical(device) != id {
			continue
		}
		if !ok {
			return "is unhealthy", false
		}
		known = true
	}
	if !known {
		return "is not a device of this node", false
	}
	return "is not offered: kubelet's topology manager leaves it out, or it is not free yet", true
}

// release gives up the claim of a question that was refused.
func (s *shelf) release(who *asker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grants = slices.DeleteFunc(s.grants, func(g grant) bool { return who != nil && g.who != nil && g.who.slot() == who.slot() })
}
