// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
)

// leaving is a pod that leaves its node without a new eviction.
type leaving struct {
	fwk.PodInfo
	within time.Duration // rest of its grace period
}

// leavers returns the pods that leave the node without a new eviction, the soonest first. soon are those
// that leave within a time that is reasonable to wait. slow are the others: their owners chose such a long
// grace period that other pods may have to be evicted instead.
func (p *preemptor) leavers(info fwk.NodeInfo, pod *v1.Pod) (soon, slow []leaving) {
	told := p.nominator.Leaving(info.Node().Name, pod.UID, corev1.PodPriority(pod))
	for _, pi := range info.GetPods() {
		other := pi.GetPod()
		var l leaving
		switch {
		case other.DeletionTimestamp != nil && !eviction.Stuck(other, p.clock.Now()):
			l = leaving{pi, max(0, other.DeletionTimestamp.Sub(p.clock.Now()))}
		case other.DeletionTimestamp == nil && slices.Contains(told, other.UID):
			l = leaving{pi, eviction.GraceOf(other)}
		default:
			continue
		}
		if l.within <= p.patience {
			soon = append(soon, l)
		} else {
			slow = append(slow, l)
		}
	}
	sooner := func(a, b leaving) int { return cmp.Compare(a.within, b.within) }
	slices.SortStableFunc(soon, sooner)
	slices.SortStableFunc(slow, sooner)
	return soon, slow
}

// deserves reports whether a preemptor still waits for its own victim, which it chose although the victim
// may take long. It waits for patience plus eviction.Overdue after the victim's deletion.
func (p *preemptor) deserves(victim *v1.Pod) bool {
	if victim.DeletionTimestamp == nil || eviction.Stuck(victim, p.clock.Now()) {
		return false
	}
	told := victim.DeletionTimestamp.Add(-eviction.GraceOf(victim))
	return p.clock.Now().Before(told.Add(p.patience + eviction.Overdue))
}

// late is the number of further waits of the length of patience that a pod needs to end after its
// deletion.
func (p *preemptor) late(pod *v1.Pod) int {
	return int((max(1, eviction.GraceOf(pod)) - 1) / p.patience)
}
