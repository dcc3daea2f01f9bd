// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// effectKind is one thing that the event of a pod changes.
type effectKind string

const (
	stopRetrying effectKind = "stop retrying" // its next cycle need not look at all nodes
	stopWaiting  effectKind = "stop waiting"  // it leaves the list of waiting pods
	isThere      effectKind = "is there"      // it has not gone, whatever an earlier event said
	isBound      effectKind = "is bound"      // its node and choice settle its reservations
	isGone       effectKind = "is gone"       // its reservations and what was held for it are void
	lookAgain    effectKind = "look again"    // something about the node may have changed
	wakeOthers   effectKind = "wake others"   // devices may have come free
	leavesRoom   effectKind = "leaves room"   // something of its node is free that was not
)

// effect is one of them, of one pod or node.
type effect struct {
	kind effectKind
	uid  types.UID // of the first three and isGone
	pod  *v1.Pod   // of isBound
	node string    // of lookAgain
}

// podEffects says what a pod's event means, in the order in which it is to be applied.
// before is nil for a new pod, and after for one that is deleted. The two have different
// UIDs if the pod was made anew under its name while the watch was broken: nothing else
// tells of the deletion then.
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
	case after.DeletionTimestamp != nil: // it is not tried any more
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

// leaves reports whether a pod that had a node, or was nominated for one, has ended, is nominated
// no more, or asks for something else than before: it was resized in place. A nomination that ends
// because the pod is bound to that node leaves nothing: since Kubernetes 1.35 the API server takes it
// back then.
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

// goneEffects is what the end of a pod means: it was deleted, or has finished.
func goneEffects(uid types.UID) []effect {
	return []effect{{kind: stopRetrying, uid: uid}, {kind: stopWaiting, uid: uid}, {kind: isGone, uid: uid}}
}

// nodesOf lists each node once that one of the pods is bound to or nominated for. The
// scheduling queue keeps some of the latter for the pod, or does so no more.
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

// corrected reports whether a bound pod's allocation was written anew, as is done
// when kubelet gave it other devices: those of the old one may be free now.
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

// podHandler passes the events of pods on. The scheduler's informer has no finished pods.
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
