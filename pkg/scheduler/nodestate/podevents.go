// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// effectKind is one kind of change that the event of a pod causes.
type effectKind string

const (
	stopRetrying effectKind = "stop retrying" // its next cycle need not consider all nodes
	stopWaiting  effectKind = "stop waiting"  // it leaves the list of waiting pods
	isThere      effectKind = "is there"      // it exists, even if an earlier event reported it gone
	isBound      effectKind = "is bound"      // its node and allocation settle its reservations
	isGone       effectKind = "is gone"       // its assumed and nominated allocations are void
	lookAgain    effectKind = "look again"    // the node may have changed
	wakeOthers   effectKind = "wake others"   // devices may have become free
	leavesRoom   effectKind = "leaves room"   // capacity of its node has become free
)

// effect is one change, of one pod or node.
type effect struct {
	kind effectKind
	uid  types.UID // of the first three and isGone
	pod  *v1.Pod   // of isBound
	node string    // of lookAgain
}

// podEffects returns the effects of a pod's event, in the order in which they are to be applied. before
// is nil for a new pod, and after for a deleted one. The two have different UIDs if the pod was made
// again under its name while the watch was broken: no other event reports the deletion then.
func podEffects(before, after *v1.Pod) []effect {
	var out []effect
	if before != nil && (after == nil || after.UID != before.UID) {
		out = goneEffects(before.UID)
	}
	switch {
	case after == nil:
	case after.Status.Phase == v1.PodSucceeded || after.Status.Phase == v1.PodFailed:
		out = append(out, goneEffects(after.UID)...)
	case after.Spec.NodeName != "":
		out = append(out, effect{kind: stopRetrying, uid: after.UID}, effect{kind: stopWaiting, uid: after.UID},
			effect{kind: isThere, uid: after.UID}, effect{kind: isBound, pod: after})
	case after.DeletionTimestamp != nil: // it is not scheduled any more
		out = append(out, effect{kind: stopWaiting, uid: after.UID}, effect{kind: isThere, uid: after.UID})
	default:
		out = append(out, effect{kind: isThere, uid: after.UID})
	}
	for _, node := range nodesOf(before, after) {
		out = append(out, effect{kind: lookAgain, node: node})
	}
	switch {
	case corrected(before, after):
		out = append(out, effect{kind: wakeOthers})
	case leaves(before, after):
		out = append(out, effect{kind: leavesRoom})
	}
	return out
}

// leaves reports whether a pod that had a node, or was nominated for one, has ended, is no longer
// nominated, or has other requests than before because it was resized in place. A nomination that ends
// because the pod is bound to that node frees nothing: since Kubernetes 1.35 the API server clears it
// then.
func leaves(before, after *v1.Pod) bool {
	switch {
	case before == nil || len(nodesOf(before)) == 0:
		return false
	case after == nil || after.UID != before.UID || after.Status.Phase == v1.PodSucceeded || after.Status.Phase == v1.PodFailed:
		return true
	}
	nominated := before.Status.NominatedNodeName
	return nominated != "" && nominated != after.Status.NominatedNodeName && nominated != after.Spec.NodeName ||
		before.Spec.NodeName != "" && after.Generation != before.Generation
}

// goneEffects returns the effects of the end of a pod, which was deleted or has finished.
func goneEffects(uid types.UID) []effect {
	return []effect{{kind: stopRetrying, uid: uid}, {kind: stopWaiting, uid: uid}, {kind: isGone, uid: uid}}
}

// nodesOf lists, once each, the nodes that the pods are bound to or nominated for. The scheduling queue
// keeps, or no longer keeps, capacity of the latter for the pod.
func nodesOf(pods ...*v1.Pod) []string {
	var out []string
	for _, pod := range pods {
		if pod == nil {
			continue
		}
		for _, node := range []string{pod.Spec.NodeName, pod.Status.NominatedNodeName} {
			if node != "" && !slices.Contains(out, node) {
				out = append(out, node)
			}
		}
	}
	return out
}

// corrected reports whether a bound pod's allocation was rewritten, as happens when kubelet gave it other
// devices: the old devices may be free now.
func corrected(before, after *v1.Pod) bool {
	return before != nil && after != nil && before.Spec.NodeName != "" && before.Annotations[allocation.Key] != after.Annotations[allocation.Key]
}

// carryOut applies effects, each under the lock of its own table.
func (eh *eventHandlers) carryOut(effects []effect) {
	for _, e := range effects {
		switch e.kind {
		case stopRetrying:
			eh.retries.Remove(e.uid)
		case stopWaiting:
			eh.waker.Remove(e.uid)
		case isThere:
			eh.table.reservations.PodThere(e.uid)
		case isBound:
			eh.table.podBound(e.pod)
		case isGone:
			eh.table.podGone(e.uid)
		case lookAgain:
			eh.table.changes.touchNode(e.node)
		case leavesRoom:
			eh.table.changes.listeners.tell()
		case wakeOthers:
			eh.table.changes.freed()
		}
	}
}

func (eh *eventHandlers) podEvent(before, after *v1.Pod) { eh.carryOut(podEffects(before, after)) }

// podHandler applies the events of pods. The scheduler's informer has no finished pods.
func (eh *eventHandlers) podHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*v1.Pod); ok {
				eh.podEvent(nil, pod)
			}
		},
		UpdateFunc: func(old, obj any) {
			before, wasPod := old.(*v1.Pod)
			if after, ok := obj.(*v1.Pod); ok && wasPod {
				eh.podEvent(before, after)
			}
		},
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			if pod, ok := obj.(*v1.Pod); ok {
				eh.podEvent(pod, nil)
			}
		},
	}
}
