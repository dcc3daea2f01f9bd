// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// podBook holds the pods that kubelet's record may be about, including those that the API server no
// longer has. Only the round uses it.
type podBook struct {
	node  string
	pages map[types.UID]*page // kubelet's UID -> pod
}

// page is the state of one pod.
type page struct {
	view podView
	text string // the annotation view.want was read from
	bad  string // text that was reported as unusable
	// alive is true if the API server has the pod, and the pod has not ended.
	alive bool
	// named is true if the pod's name is known, so kubelet can be queried about it.
	named   bool
	since   time.Time // when the record was first seen without a living pod; zero while it lives
	askNext time.Time
	asked   int // number of queries to kubelet since it ended
	// released is true once kubelet reported that it no longer knows the pod.
	released bool
}

func newPodBook(node string) *podBook { return &podBook{node: node, pages: map[types.UID]*page{}} }

// update adopts the informer's pods. report is called once for each annotation that is about another pod
// or node, or cannot be read.
func (b *podBook) update(pods []*v1.Pod, report func(*v1.Pod, error)) {
	for _, pg := range b.pages {
		pg.alive = false
	}
	own := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		own[pod.UID] = true
	}
	for _, pod := range pods {
		uid := recordedUID(pod)
		if own[uid] {
			uid = pod.UID // any user can claim that a pod is another pod's mirror
		}
		pg := b.pages[uid]
		if pg == nil {
			pg = &page{}
			b.pages[uid] = pg
		}
		pg.alive = !terminal(pod)
		pg.named = true
		pg.view.uid, pg.view.namespace, pg.view.name = pod.UID, pod.Namespace, pod.Name
		if pg.alive {
			pg.since, pg.asked, pg.released, pg.view.states = time.Time{}, 0, false, nil
		}
		b.readAnnotation(pg, pod, report)
	}
}

func (b *podBook) readAnnotation(pg *page, pod *v1.Pod, report func(*v1.Pod, error)) {
	text, ok := pod.Annotations[allocation.Key]
	if !ok {
		pg.view.want, pg.text = nil, ""
		return
	}
	if text == pg.text {
		return
	}
	pg.text = text
	var err error
	if pg.view.want, err = choiceOf(pod, text, b.node); err != nil && pg.bad != text {
		pg.bad = text
		if pg.alive {
			report(pod, err)
		}
	}
}

// recordedUID is the UID under which kubelet keeps a pod. For a static pod this is the
// hash of its manifest, which is an annotation of its mirror in the API server.
func recordedUID(pod *v1.Pod) types.UID {
	if hash, ok := pod.Annotations[v1.MirrorPodAnnotationKey]; ok {
		return types.UID(hash)
	}
	return pod.UID
}

func terminal(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// recall adopts the published allocations of an earlier process for pods that are gone.
func (b *podBook) recall(published []v1alpha1.Allocation) {
	for i := range published {
		a := &published[i]
		pg := b.pages[a.PodUID]
		if pg != nil && pg.alive {
			continue
		}
		if pg == nil {
			pg = &page{named: a.Pod != "", view: podView{uid: a.PodUID, namespace: a.Namespace, name: a.Pod}}
			b.pages[a.PodUID] = pg
		}
		if pg.view.states == nil {
			pg.view.states = map[slot]string{}
		}
		if knownState(a.State) { // a state of a later release is not published again
			pg.view.states[slot{a.Container, a.Resource}] = a.State
		}
	}
}

func knownState(s string) bool {
	switch s {
	case v1alpha1.StateConfirmed, v1alpha1.StateSwapped, v1alpha1.StateReassigned, v1alpha1.StateForeign:
		return true
	}
	return false
}

// counting returns the pods whose records are valid now, and when to check again those in doubt; 0 if no
// pod is in doubt. It drops pages that have neither pod nor record.
func (b *podBook) counting(ctx context.Context, records []kubelet.Record, active Active, now time.Time) (map[types.UID]*podView, time.Duration) {
	out := map[types.UID]*podView{}
	var again time.Duration
	seen := map[types.UID]bool{}
	asks := maxAsks
	for _, r := range records {
		if seen[r.PodUID] {
			continue
		}
		seen[r.PodUID] = true
		pg := b.pages[r.PodUID]
		if pg == nil {
			pg = &page{view: podView{uid: r.PodUID}}
			b.pages[r.PodUID] = pg
		}
		if pg.alive {
			out[r.PodUID] = &pg.view
			continue
		}
		if pg.since.IsZero() {
			pg.since = now
		}
		counts, wait := b.endedCounts(ctx, pg, &r, active, &asks, now)
		if counts {
			out[r.PodUID] = &pg.view
		}
		if wait > 0 && (again == 0 || wait < again) {
			again = wait
		}
	}
	for uid, pg := range b.pages {
		if !pg.alive && !seen[uid] {
			delete(b.pages, uid)
		}
	}
	return out, again
}

// endedCounts reports whether the record of a pod that is gone, ended or unknown is still valid, and when
// to query again. Once kubelet has reported that it released a pod, this is final. asks is the number of
// queries to kubelet left for this round.
func (b *podBook) endedCounts(ctx context.Context, pg *page, r *kubelet.Record, active Active, asks *int, now time.Time) (counts bool, again time.Duration) {
	age := now.Sub(pg.since)
	if !pg.named && age < unknownGrace {
		// The informer is probably behind: the pod may have been served just now.
		return false, unknownGrace - age
	}
	if !pg.named && active != nil {
		// An earlier agent may have served it, and this agent has not seen its end.
		pg.view.namespace, pg.view.name, pg.named = active.Name(ctx, r.Resource, r.PodUID)
	}
	switch {
	case pg.released:
		return false, 0
	case !pg.named || active == nil || b.renewed(pg):
		if age >= orphanGrace {
			return false, 0
		}
		return true, orphanGrace - age
	case now.Before(pg.askNext):
		return true, pg.askNext.Sub(now)
	case *asks == 0:
		return true, firstAsk
	}
	*asks--
	return pg.ask(ctx, r.PodUID, active, age, now)
}

// ask queries kubelet whether it still has the pod.
func (pg *page) ask(ctx context.Context, uid types.UID, active Active, age time.Duration, now time.Time) (counts bool, again time.Duration) {
	// Kubelet releases a pod a moment after the API server shows its end.
	wait := min(firstAsk<<min(pg.asked, 10), askInterval)
	pg.asked++
	pg.askNext = now.Add(wait)
	known, err := active.Active(ctx, uid, pg.view.namespace, pg.view.name)
	if errors.Is(err, kubelet.ErrUnsupported) {
		if age >= unaskedGrace {
			return false, 0
		}
		return true, unaskedGrace - age
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Asking kubelet about an ended pod failed; its devices count", "pod", klog.KRef(pg.view.namespace, pg.view.name), "err", err)
		return true, wait
	}
	pg.released = !known
	if pg.released {
		return false, 0
	}
	return true, wait
}

// renewed reports whether another pod has the same name now: kubelet, which is queried by name, would
// answer about that one.
func (b *podBook) renewed(pg *page) bool {
	for _, o := range b.pages {
		if o != pg && o.alive && o.view.name == pg.view.name && o.view.namespace == pg.view.namespace {
			return true
		}
	}
	return false
}
