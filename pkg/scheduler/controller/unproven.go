// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const (
	// unprovenInterval is how often the bound pods are checked.
	unprovenInterval = 15 * time.Second
	// unprovenFor is how long an allocation must be without an agent that confirms it before it is marked as
	// unproven. After an outage of the API server, all agents come back within this time and publish their
	// pending records.
	unprovenFor = time.Minute
	// maxUnproven bounds the corrections of one check.
	maxUnproven = 50

	eventUnproven = "GPUsUnproven"
)

// Unproven is the part of the scheduler's view of the nodes that the marker needs.
type Unproven interface {
	Unproven(pod *v1.Pod) *allocation.Allocation
}

// UnprovenMarker removes the mark "enforced" from allocations whose node agent went away before it could
// publish kubelet's record. After a roll-back the device plugin serves kubelet directly, and no record
// shows the GPUs of the pods bound until then. The GPUs stay in the annotation, as for every pod on a
// node without an agent. Call Run while this process leads.
type UnprovenMarker struct {
	state    Unproven
	client   kubernetes.Interface
	pods     corelisters.PodLister
	recorder events.EventRecorder
	clock    clock.WithTicker

	since map[types.UID]time.Time // when the pod was first seen as unproven in this term
}

// NewUnprovenMarker returns an UnprovenMarker. It reads pods from a synced lister.
func NewUnprovenMarker(state Unproven, client kubernetes.Interface, pods corelisters.PodLister, recorder events.EventRecorder,
	clk clock.WithTicker,
) *UnprovenMarker {
	return &UnprovenMarker{state: state, client: client, pods: pods, recorder: recorder, clock: clk}
}

// Run marks until ctx ends. Call it for each term, one at a time.
func (u *UnprovenMarker) Run(ctx context.Context) {
	u.since = nil
	ticker := u.clock.NewTicker(unprovenInterval)
	defer ticker.Stop()
	for {
		u.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

func (u *UnprovenMarker) look(ctx context.Context) {
	pods, err := u.pods.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot mark unproven allocations, will retry")
		return
	}
	now, left := u.clock.Now(), maxUnproven
	seen := map[types.UID]time.Time{}
	for _, pod := range pods {
		a := u.claimed(pod)
		if a == nil {
			continue
		}
		since, ok := u.since[pod.UID]
		if !ok {
			since = now
		}
		seen[pod.UID] = since
		if now.Sub(since) < unprovenFor || left == 0 || ctx.Err() != nil {
			continue
		}
		left--
		if err := u.mark(ctx, pod, a); err != nil {
			klog.FromContext(ctx).Error(err, "Marking an unproven allocation failed, will retry")
		}
	}
	u.since = seen
}

// claimed returns the unproven allocation of a pod that kubelet has admitted. A pod
// that is not admitted yet may still be admitted by an agent that comes back.
func (u *UnprovenMarker) claimed(pod *v1.Pod) *allocation.Allocation {
	if pod.Status.StartTime == nil || pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return nil
	}
	return u.state.Unproven(pod)
}

func (u *UnprovenMarker) mark(ctx context.Context, pod *v1.Pod, a *allocation.Allocation) error {
	// Only the allocation is written again. The other annotations do not depend on enforcement, and
	// computing them needs the node's graph, which may be gone.
	annotations := maps.Clone(pod.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool { return !allocation.IsOutputKey(key) })
	text, err := (&allocation.Allocation{
		Version: a.Version, Node: a.Node, PodUID: a.PodUID, Assumed: a.Assumed, Enforced: false, Unconfirmed: a.Unconfirmed,
		NUMANodes: a.NUMANodes, CPUSet: a.CPUSet, Containers: a.Containers,
	}).Encode()
	if err != nil {
		return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	annotations[allocation.Key] = text
	body, err := allocation.CorrectionBody(pod, annotations)
	if err != nil {
		return fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	opts := metav1.PatchOptions{FieldManager: allocation.CorrectionManager}
	_, err = u.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, opts)
	switch {
	case apierrors.IsNotFound(err):
		return nil // the pod is gone
	case err != nil:
		return fmt.Errorf("correcting the annotations of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	u.recorder.Eventf(pod, nil, v1.EventTypeWarning, eventUnproven, actionRepair,
		"the node agent of node %s is silent, and none has said which GPUs kubelet gave this pod: they may differ from its annotations", a.Node)
	return nil
}
