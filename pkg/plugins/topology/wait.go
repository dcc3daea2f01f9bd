// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

const (
	// alike is a difference in time that does not matter: if one node is free sooner than another by less
	// than this, the better GPUs decide. A kubelet takes about this long anyway to end a pod.
	alike = 30 * time.Second
	// afterYield is the longest time until a pod that took the places of a gang is tried again.
	afterYield = time.Second
	releasing  = "waiting for a kubelet to release the devices of pods that are gone"
)

// wait is a node where a pod will fit without any eviction, after pods that leave anyway have ended and
// kubelet has released their devices.
type wait struct {
	plan
	node    string
	at      int // index of the node in the list that was searched
	behind  bool
	pending bool        // the API server does not show yet that some of awaited will end
	yields  []types.UID // members of gangs of a lower priority, whose places on the node are released
}

// waits returns the node that is best to wait for. If there is none, late is the node with the shortest
// wait beyond a reasonable time.
func (p *preemptor) waits(ctx context.Context, state fwk.CycleState, pod *v1.Pod, m fwk.NodeToStatusReader) (soonest, late *wait) {
	c := lifecycle.ReadCycle(state)
	nodes, err := m.NodesForStatusCode(p.handle.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if c == nil || err != nil {
		return nil, nil
	}
	var mu sync.Mutex
	p.handle.Parallelizer().Until(ctx, len(nodes), func(i int) {
		w := p.waitOn(ctx, state, c, pod, nodes[i])
		if w == nil {
			return
		}
		w.at = i
		mu.Lock()
		defer mu.Unlock()
		switch {
		case w.within > p.patience:
			if late == nil || cmp.Or(cmp.Compare(w.within, late.within), cmp.Compare(w.at, late.at)) < 0 {
				late = w
			}
		case soonest == nil || w.compare(soonest, pod.Status.NominatedNodeName) < 0:
			soonest = w
		}
	}, Name)
	return soonest, late
}

// compare returns a negative number if w is better to wait for than o: the node that the pod already waits
// for, then the one that is free sooner, then the one with the better GPUs.
func (w *wait) compare(o *wait, nominated string) int {
	if stays := w.node == nominated; stays != (o.node == nominated) {
		if stays {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(w.within/alike, o.within/alike), cmp.Compare(len(w.yields), len(o.yields)), w.quality.Compare(o.quality),
		cmp.Compare(w.within, o.within), cmp.Compare(w.at, o.at))
}

// waitOn finds the first pods to end on a node that make room for the pod. If even all of them together do
// not, gangs of a lower priority give back the places planned for them on it: none of their pods runs. It
// returns nil if that is not enough either.
func (p *preemptor) waitOn(ctx context.Context, state fwk.CycleState, c *lifecycle.Cycle, pod *v1.Pod, info fwk.NodeInfo) *wait {
	if w := p.waitFor(ctx, state, c, pod, info, nil); w != nil || never(pod) || p.profile.Yield == nil {
		return w
	}
	if yields := p.nodes.Yielding(info.Node().Name, c.Demand.Priority); len(yields) > 0 {
		return p.waitFor(ctx, state, c, pod, info, yields)
	}
	return nil
}

// waitFor is waitOn after the places of some members of gangs are released.
func (p *preemptor) waitFor(ctx context.Context, state fwk.CycleState, c *lifecycle.Cycle, pod *v1.Pod, info fwk.NodeInfo, yields []types.UID) *wait {
	soon, slow := p.leavers(info, pod)
	behind := p.nodes.KubeletBehind(&c.Demand, info, p.handle.SnapshotSharedLister().NodeInfos())
	if len(soon)+len(slow)+len(yields) == 0 && !behind {
		return nil
	}
	ahead := *c
	ahead.Demand.Ahead, ahead.Demand.Yield = true, len(yields) > 0
	s := &site{p: p, ctx: ctx, state: state.Clone(), pod: pod, info: info.Snapshot(), logger: klog.FromContext(ctx)}
	s.state.Write(lifecycle.CycleKey, &ahead)
	if (behind || len(yields) > 0) && s.filter().IsSuccess() {
		return s.wait(&ahead.Demand, behind, yields)
	}
	for _, group := range [][]leaving{soon, slow} {
		for len(group) > 0 {
			n := 1
			for n < len(group) && group[n].within/alike == group[0].within/alike {
				n++
			}
			s.leave(group[:n])
			group = group[n:]
			if s.filter().IsSuccess() {
				return s.wait(&ahead.Demand, behind, yields)
			}
		}
	}
	return nil
}

func (s *site) wait(d *placement.Demand, behind bool, yields []types.UID) *wait {
	w := &wait{plan: s.plan(d, nil), node: s.info.Node().Name, behind: behind, yields: yields}
	w.pending = slices.ContainsFunc(w.awaited, func(pod *v1.Pod) bool { return pod.DeletionTimestamp == nil })
	return w
}

// await nominates the pod for a node that becomes free without an eviction, and keeps the planned devices
// for it.
func (p *preemptor) await(pod *v1.Pod, w *wait) (*fwk.PostFilterResult, *fwk.Status) {
	slack := reservations.ReleaseWithin
	if len(w.awaited) > 0 {
		slack += eviction.Overdue
	}
	p.hold(pod, &w.plan, slack)
	if len(w.yields) > 0 {
		p.profile.Yield(w.yields, fmt.Sprintf("gang: places on node %s are taken by a pod of a higher priority", w.node))
		p.waiting.TryAgainBy(p.clock.Now().Add(afterYield))
	}
	switch {
	case w.pending:
		p.waiting.TryAgainBy(p.clock.Now().Add(reservations.EvictWithin)) // in case they are not evicted
	case w.alloc == nil:
		p.waiting.TryAgainBy(p.clock.Now().Add(w.within + slack)) // without a hold nothing else would wake the pod
	}
	return framework.NewPostFilterResultWithNominatedNode(w.node), fwk.NewStatus(fwk.Success, w.text(pod.Namespace, p.nodes.Unreleased(w.node)))
}

// text returns the status of a waiting pod with the names that its namespace may see.
func (w *wait) text(namespace string, unreleased []string) string {
	var parts []string
	if len(w.awaited) > 0 {
		parts = append(parts, fmt.Sprintf("waiting on node %s for %s to end%s", w.node, eviction.NamesFor(namespace, w.awaited), w.by()))
	}
	if len(w.yields) > 0 {
		parts = append(parts, "taking places on node "+w.node+" that were held for a gang of a lower priority")
	}
	if w.behind {
		what := releasing + " on node " + w.node
		if len(unreleased) > 0 {
			what += ": " + eviction.ShortenedFor(namespace, "pod", unreleased)
		}
		parts = append(parts, what)
	}
	return strings.Join(parts, "; ")
}

// tooLate returns the reason for which a pod of a namespace does not wait.
func (w *wait) tooLate(namespace string) string {
	return fmt.Sprintf("%s on node %s end only%s, by their grace period, and nobody could be evicted who would end sooner",
		eviction.NamesFor(namespace, w.awaited), w.node, w.by())
}

// by returns when the last of the awaited pods must have ended. It is a time, not a duration, because the
// text is in the pod's condition, which is written whenever it changes.
func (w *wait) by() string {
	var last time.Time
	for _, pod := range w.awaited {
		if pod.DeletionTimestamp == nil {
			return "" // it is not evicted yet
		}
		if pod.DeletionTimestamp.After(last) {
			last = pod.DeletionTimestamp.Time
		}
	}
	return " by " + last.UTC().Format(time.RFC3339)
}
