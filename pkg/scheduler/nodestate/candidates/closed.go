// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Closed are the places that are kept now. It may be used at any time and under any lock; nobody
// waits, and nothing is allocated. The zero value is none.
type Closed struct {
	kept atomic.Pointer[map[string][]*Kept]
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

// Any reports whether something is kept.
func (c *Closed) Any() bool { return len(c.Kept()) > 0 }

// Use is what a node has, and what is used of it.
type Use struct {
	Have, Used fwk.Resource
	Pods       []fwk.PodInfo       // Used is of these
	Reserved   []usage.Reservation // of these and of others, which use what is reserved for them, too
	Own        types.UID           // whose reservation does not count: it is in doubt, and may be taken again
}

// free is how much of a resource nobody uses.
func (u *Use) free(name v1.ResourceName) int64 {
	return AmountIn(u.Have, name) - AmountIn(u.Used, name) - ReservedBeside(u.Pods, u.Reserved, u.Own, name)
}

// ReservedBeside is how much of a resource is reserved for others than some pods and own.
func ReservedBeside(pods []fwk.PodInfo, reserved []usage.Reservation, own types.UID, name v1.ResourceName) (amount int64) {
	for i := range reserved {
		r := &reserved[i]
		if r.Request != nil && r.UID != own && !slices.ContainsFunc(pods, func(pi fwk.PodInfo) bool { return pi.GetPod().UID == r.UID }) {
			amount += AmountOf(r.Request, name)
		}
	}
	return amount
}

// KeptFrom returns what a pod that is in no gang would take of what is kept on a node; nil if
// nothing. A pod that asks for none of the resources that are kept takes nothing, nor does one that
// leaves enough of them free. Pods of DaemonSets belong to every node. A pod that is nominated may
// have had pods evicted there. never: it would not even if nobody used anything of the node.
func (c *Closed) KeptFrom(pod *v1.Pod, request *podrequest.Request, node string, use *Use) (k *Kept, never bool) {
	places := c.Kept()[node]
	if len(places) == 0 || request == nil || exempt(pod, node) {
		return nil, false
	}
	priority, made := corev1.PodPriority(pod), pod.CreationTimestamp.Time
	for _, k := range places {
		asks := AmountOf(request, k.Resource)
		if asks == 0 || !k.keepsOut(priority, made) {
			continue
		}
		needs := asks
		for _, o := range places {
			if o.Resource == k.Resource && o.keepsOut(priority, made) {
				needs += o.Count
			}
		}
		if use.free(k.Resource) < needs {
			return k, AmountIn(use.Have, k.Resource) < needs
		}
	}
	return nil, false
}

// KeptFromGang returns what is kept on a node from a gang of that key and priority, which was complete
// then. What is kept for the gang itself is not.
func (c *Closed) KeptFromGang(gang string, priority int32, complete time.Time, node string) (places []*Kept) {
	for _, k := range c.Kept()[node] {
		if k.Gang != gang && k.keepsOut(priority, complete) {
			places = append(places, k)
		}
	}
	return places
}

// exempt reports whether nothing is kept from the pod, or not on this node.
func exempt(pod *v1.Pod, node string) bool {
	if pod.Status.NominatedNodeName == node {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}
