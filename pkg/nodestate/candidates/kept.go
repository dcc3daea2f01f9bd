// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Kept is what a gang's member that is gone leaves free of one resource of its node, for its
// replacement. Others may use what the node has free beside it. Immutable.
type Kept struct {
	Gang     string    // as messages name it
	Priority int32     // of the gang: who has a higher one may use it
	Made     time.Time // when the gang's first member was made: who is not younger may use it, too
	Resource v1.ResourceName
	Count    int64 // of devices
}

// keepsOut reports whether somebody of that priority, who was made then, is to leave it free.
func (k *Kept) keepsOut(priority int32, made time.Time) bool {
	return priority <= k.Priority && made.After(k.Made)
}

// Keep replaces what is kept, by node. The map is not to be changed any more.
func (c *Closed) Keep(places map[string][]*Kept) { c.kept.Store(&places) }

// Kept returns what is kept, which is not to be changed.
func (c *Closed) Kept() map[string][]*Kept {
	if c == nil {
		return nil
	}
	if places := c.kept.Load(); places != nil {
		return *places
	}
	return nil
}

// KeptFrom returns what a pod that is in no gang, and requests so much, would take of what is
// kept on a node that has so much, of which so much is used; nil if nothing.
func (c *Closed) KeptFrom(pod *v1.Pod, requests map[v1.ResourceName]int64, node string, have, used fwk.Resource) *Kept {
	places := c.Kept()[node]
	if len(places) == 0 || exempt(pod, node) {
		return nil
	}
	priority, made := corev1.PodPriority(pod), pod.CreationTimestamp.Time
	for _, k := range places {
		if requests[k.Resource] == 0 || !k.keepsOut(priority, made) {
			continue
		}
		free := have.GetScalarResources()[k.Resource] - used.GetScalarResources()[k.Resource] - requests[k.Resource]
		for _, o := range places {
			if o.Resource == k.Resource && o.keepsOut(priority, made) {
				free -= o.Count
			}
		}
		if free < 0 {
			return k
		}
	}
	return nil
}

// KeptFromGang reports whether something is kept on a node from a gang of that priority, which
// was complete then, for another gang.
func (c *Closed) KeptFromGang(gang string, priority int32, complete time.Time, node string) bool {
	for _, k := range c.Kept()[node] {
		if k.Gang != gang && k.keepsOut(priority, complete) {
			return true
		}
	}
	return false
}
