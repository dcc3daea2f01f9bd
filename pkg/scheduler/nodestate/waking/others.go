// SPDX-License-Identifier: Apache-2.0

package waking

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
)

const (
	// othersInterval is the time between two activations of pods that the waker does not check, and
	// othersAtOnce their number each: an activation skips their backoff, and must not delay other pods.
	othersInterval = time.Second
	othersAtOnce   = 64
)

// WakeOthers activates the pods that are not gated, those without GPUs for instance, after one of the
// rare changes without a cluster event: a graph changed, an unknown outcome was resolved, an exporter
// came back. Members of gangs are woken by their gangs. It may be called under any lock, and does not
// block.
func (k *Waker) WakeOthers() {
	select {
	case k.othersDue <- struct{}{}:
	default: // a wake-up is due already
	}
}

// WakeAllOthers is WakeOthers for the case that none of the pods could be tried before: all are activated
// at once.
func (k *Waker) WakeAllOthers() {
	k.allOthers.Store(true)
	k.WakeOthers()
}

// RunOthers carries out WakeOthers until ctx ends. All pods are activated once for the changes before it,
// a few at a time.
func (k *Waker) RunOthers(ctx context.Context, pods corelisters.PodLister, activate Activate) {
	var turns []*v1.Pod
	for {
		if len(turns) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-k.othersDue:
			}
			if !k.cluster.Synced() {
				continue // they would fail again; WakeAllOthers is called once it is
			}
			k.list.wantAll()
			turns = k.others(ctx, pods)
		}
		n := min(len(turns), othersAtOnce)
		if k.allOthers.Swap(false) {
			turns = k.others(ctx, pods)
			n = len(turns) // they have no backoff to skip
		}
		if n > 0 {
			activate(klog.FromContext(ctx), byName(turns[:n]))
		}
		turns = turns[n:]
		select {
		case <-ctx.Done():
			return
		case <-k.clock.After(othersInterval):
		}
	}
}

// others lists the unbound pods of the served profiles that are neither gated nor in a gang, by priority,
// then the oldest first.
func (k *Waker) others(ctx context.Context, pods corelisters.PodLister) []*v1.Pod {
	all, err := pods.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Listing the pods to wake failed")
		return nil
	}
	all = slices.DeleteFunc(all, func(pod *v1.Pod) bool {
		return pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || !k.cluster.Serves(pod.Spec.SchedulerName) || k.cluster.InGang(pod) || k.list.isGated(pod.UID)
	})
	slices.SortFunc(all, func(a, b *v1.Pod) int {
		return cmp.Or(
			cmp.Compare(corev1.PodPriority(b), corev1.PodPriority(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		)
	})
	return all
}
