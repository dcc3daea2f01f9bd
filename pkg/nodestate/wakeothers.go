// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	// othersInterval is how often some of the pods are tried again that the waker does
	// not judge, and othersAtOnce how many: an activation skips their backoff, and must
	// not keep others from their turn.
	othersInterval = time.Second
	othersAtOnce   = 64
)

// wakeOthers wakes the pods that are not shut out, those without GPUs for instance, after the
// rare changes that no cluster event announces: a graph changed, a doubt resolved, an
// exporter back. All have one turn for the changes before it, a few at a time.
func (s *State) wakeOthers(ctx context.Context, h fwk.Handle, lister corelisters.PodLister, freed <-chan struct{}) {
	var turns []*v1.Pod
	for {
		if len(turns) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-freed:
			}
			if !s.Synced() {
				continue // they would fail again; AwaitSync wakes them
			}
			s.waiting.turnAll()
			turns = s.others(ctx, lister)
		}
		n := min(len(turns), othersAtOnce)
		if s.untried.Swap(false) {
			turns = s.others(ctx, lister)
			n = len(turns) // they have no backoff to skip
		}
		if n > 0 {
			h.Activate(klog.FromContext(ctx), byName(turns[:n]))
		}
		turns = turns[n:]
		select {
		case <-ctx.Done():
			return
		case <-s.clock.After(othersInterval):
		}
	}
}

// others lists the pods of our profiles that have no node and are not shut out, the most
// important first, then the oldest.
func (s *State) others(ctx context.Context, lister corelisters.PodLister) []*v1.Pod {
	all, err := lister.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Listing the pods to wake failed")
		return nil
	}
	all = slices.DeleteFunc(all, func(pod *v1.Pod) bool {
		return pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || !s.serves(pod.Spec.SchedulerName) || s.waiting.shuts(pod.UID)
	})
	slices.SortFunc(all, func(a, b *v1.Pod) int {
		return cmp.Or(
			cmp.Compare(corev1.PodPriority(b), corev1.PodPriority(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		)
	})
	return all
}
