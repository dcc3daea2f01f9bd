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

	"github.com/nvtopo/nvtopo/pkg/allocation"
)

const (
	// unprovenInterval is how often the bound pods are looked at.
	unprovenInterval = 15 * time.Second
	// unprovenFor is how long nobody may have spoken for an allocation before it is said
	// that it is not proven: all agents come back within it after an outage of the API
	// server, and publish what they could not.
	unprovenFor = time.Minute
	// maxUnproven bounds the corrections of one look.
	maxUnproven = 50

	eventUnproven = "GPUsUnproven"
)

// Unproven is what the marker needs of the scheduler's view of the nodes.
type Unproven interface {
	Unproven(pod *v1.Pod) *allocation.Allocation
}

// UnprovenMarker takes back the word "enforced" where it was given for a node agent
// that went before it could say what kubelet did: after a roll-back the device plugin
// serves kubelet by itself, and nobody tells which GPUs the pods got that were bound
// until then. The GPUs stay in the annotation, as for every pod on a node without an
// agent. Run it while this process leads.
type UnprovenMarker struct {
	state    Unproven
	client   kubernetes.Interface
	pods     corelisters.PodLister
	recorder events.EventRecorder
	clock    clock.WithTicker

	since map[types.UID]time.Time // when the pod was first seen so in this term
}

// NewUnprovenMarker returns an UnprovenMarker that reads pods from a synced lister.
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
		klog.FromContext(ctx).Error(err, "Allocations that nobody proves are not marked, will retry")
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
			klog.FromContext(ctx).Error(err, "Marking an allocation that nobody proves failed, will retry")
		}
	}
	u.since = seen
}

// claimed returns the unproven allocation of a pod that kubelet has admitted. One that
// it has not may still be admitted by an agent that comes back.
func (u *UnprovenMarker) claimed(pod *v1.Pod) *allocation.Allocation {
	if pod.Status.StartTime == nil || pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return nil
	}
	return u.state.Unproven(pod)
}

func (u *UnprovenMarker) mark(ctx context.Context, pod *v1.Pod, a *allocation.Allocation) error {
	// What else is on the pod says nothing of enforcement, and the node's graph, of which
	// it would be made again, may be gone.
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
		return nil // it needs no annotation any more
	case err != nil:
		return fmt.Errorf("correcting the annotations of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	u.recorder.Eventf(pod, nil, v1.EventTypeWarning, eventUnproven, actionRepair,
		"no node agent is heard of on node %s, and none said which GPUs kubelet gave this pod: they may be others than its annotations say", a.Node)
	return nil
}
