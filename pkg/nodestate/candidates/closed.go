// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1"
)

// Closure is why a node is closed: it is kept for a gang that has waited for long. Immutable.
type Closure struct {
	Gang     string    // as messages name it
	Priority int32     // of the gang: who has a higher one may use the node
	Complete time.Time // when the gang became complete: who is not younger may use the node, too
	Since    time.Time // when the node was closed
	Why      string    // what those are told that are kept out; Filter makes no text for each node
}

// KeepsOut reports whether somebody of that priority, who was made then, is kept off.
func (c *Closure) KeepsOut(priority int32, made time.Time) bool {
	return c != nil && priority <= c.Priority && made.After(c.Complete)
}

// Closed are the nodes that are closed now, and the places that are kept. It may be used at any
// time and under any lock; nobody waits, and nothing is allocated. The zero value is none.
type Closed struct {
	nodes atomic.Pointer[map[string]*Closure]
	kept  atomic.Pointer[map[string][]*Kept]
}

// Set replaces the closed nodes, by name. The map is not to be changed any more.
func (c *Closed) Set(nodes map[string]*Closure) { c.nodes.Store(&nodes) }

// Any reports whether a node is closed, or a place kept.
func (c *Closed) Any() bool { return len(c.All())+len(c.Kept()) > 0 }

// All returns the closed nodes, which are not to be changed.
func (c *Closed) All() map[string]*Closure {
	if c == nil {
		return nil
	}
	if nodes := c.nodes.Load(); nodes != nil {
		return *nodes
	}
	return nil
}

// To returns why the node is closed to a pod that is in no gang, nil if it is not. Pods of
// DaemonSets belong to every node. A pod that is nominated may have had pods evicted there.
func (c *Closed) To(pod *v1.Pod, node string) *Closure {
	nodes := c.All()
	if len(nodes) == 0 {
		return nil
	}
	x := nodes[node]
	if !x.KeepsOut(corev1.PodPriority(pod), pod.CreationTimestamp.Time) || exempt(pod, node) {
		return nil
	}
	return x
}

// exempt reports whether no node is closed to the pod, or not this one.
func exempt(pod *v1.Pod, node string) bool {
	if pod.Status.NominatedNodeName == node {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}
