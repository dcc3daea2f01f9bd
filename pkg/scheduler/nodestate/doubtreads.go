// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// doubtInterval is the time between two checks of reservations with unknown outcome, and between reads of
// one.
const doubtInterval = 2 * time.Second

// doubtReader finds out whether writes without a clear answer were carried out.
type doubtReader struct {
	clock    clock.WithTicker
	cache    *NodeCache
	table    *AllocationTable
	binder   *Binder
	handlers *eventHandlers
	waiting  *WaitingPods
}

// run decides reservations with unknown outcome by live reads that are later than any write the API
// server may still carry out. A read may take requestTimeout; the others do not wait for it. It returns
// when ctx has ended and its reads have, too.
func (d *doubtReader) run(ctx context.Context, client clientset.Interface) {
	ticker := d.clock.NewTicker(doubtInterval)
	defer ticker.Stop()
	var reads sync.WaitGroup
	defer reads.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if d.waiting.lookAgain.passed(d.clock.Now()) {
			d.table.changes.freed()
		}
		for _, r := range d.table.reservations.ToResolve() {
			reads.Go(func() {
				defer d.table.reservations.Resolved(r)
				d.readDoubtful(ctx, client, r)
			})
		}
	}
}

// readDoubtful reads the pod of a reservation with unknown outcome and decides the outcome.
func (d *doubtReader) readDoubtful(ctx context.Context, client clientset.Interface, r *reservations.Reservation) {
	ctx, cancel := d.binder.Bounded(ctx)
	defer cancel()
	pod, err := client.CoreV1().Pods(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		d.decide(r, nil)
		return
	case err != nil:
		klog.FromContext(ctx).V(2).Info("Reading a pod whose binding is in doubt failed", "pod", klog.KRef(r.Namespace, r.Name), "err", err)
		return
	}
	d.decide(r, pod)
	if a := d.misplaced(r, pod); a != nil {
		if err := d.correct(ctx, client, pod, a); err != nil {
			klog.FromContext(ctx).V(2).Info("Writing the choice a pod was bound with failed", "pod", klog.KObj(pod), "err", err)
		}
	}
}

// decide settles a reservation with unknown outcome by a live read of its pod; pod is nil if it does not
// exist any more.
func (d *doubtReader) decide(r *reservations.Reservation, pod *v1.Pod) {
	if pod == nil {
		d.table.changes.tell(d.table.reservations.Decide(r, false, nil))
		return
	}
	if pod.UID == r.UID && pod.Spec.NodeName != "" {
		d.handlers.podEvent(nil, pod)
		return
	}
	text := pod.Annotations[allocation.Key]
	choice, err := allocation.Parse(text)
	if err != nil {
		choice = nil
	}
	d.table.changes.tell(d.table.reservations.Decide(r, pod.UID == r.UID && text != "", choice))
}

// misplaced returns the allocation that a pod was bound with and does not carry, or nil. In mode PreBind
// the annotation and the node name are two writes: a Binding believed lost may be carried out after the
// PATCH of the next attempt, for another node. The reservation of the first attempt then has the pod's
// real allocation.
func (d *doubtReader) misplaced(r *reservations.Reservation, pod *v1.Pod) *allocation.Allocation {
	node := r.Node.Name()
	if pod.UID == r.UID && pod.Spec.NodeName == node && d.cache.podDevices.allocationOf(pod, node) == nil && d.table.reservations.Undisputed(r) {
		return r.Allocation
	}
	return nil
}

// correct rewrites a pod's annotations with the allocation that it was bound with. The reservation stays
// until the informer shows the result.
func (d *doubtReader) correct(ctx context.Context, client clientset.Interface, pod *v1.Pod, a *allocation.Allocation) error {
	wanted, err := d.cache.Annotations(a, allocation.HasAliases(pod))
	if err != nil {
		return err
	}
	body, err := allocation.CorrectionBody(pod, wanted)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}
