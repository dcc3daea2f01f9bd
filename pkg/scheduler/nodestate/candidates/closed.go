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

// Closed has the places that are kept for gangs now. It may be used at any time and under any lock; no
// method blocks or allocates memory. The zero value has none.
type Closed struct {
	kept atomic.Pointer[map[string][]*Kept]
}

// Keep replaces the kept places, by node. The map must not be changed afterwards.
func (c *Closed) Keep(places map[string][]*Kept) { c.kept.Store(&places) }

// Kept returns the kept places, which must not be changed.
func (c *Closed) Kept() map[string][]*Kept {
	if c == nil {
		return nil
	}
	if places := c.kept.Load(); places != nil {
		return *places
	}
	return nil
}

// Any reports whether any place is kept.
func (c *Closed) Any() bool { return len(c.Kept()) > 0 }

// Use has the resources of a node and their use.
type Use struct {
	Have, Used fwk.Resource
	Pods       []fwk.PodInfo       // the pods that Used includes
	Reserved   []usage.Reservation // of these pods and of others, whose reservations are used in addition
	Own        types.UID           // the pod whose reservation is ignored: its outcome is unknown, and the pod may take it again
}

// free returns how much of a resource is unused and not reserved.
func (u *Use) free(name v1.ResourceName) int64 {
	return AmountIn(u.Have, name) - AmountIn(u.Used, name) - ReservedBeside(u.Pods, u.Reserved, u.Own, name)
}

// ReservedBeside returns how much of a resource is reserved for pods other than the given ones and own.
func ReservedBeside(pods []fwk.PodInfo, reserved []usage.Reservation, own types.UID, name v1.ResourceName) (amount int64) {
	for i := range reserved {
		r := &reserved[i]
		if r.Request != nil && r.UID != own && !slices.ContainsFunc(pods, func(pi fwk.PodInfo) bool { return pi.GetPod().UID == r.UID }) {
			amount += AmountOf(r.Request, name)
		}
	}
	return amount
}

// KeptFrom returns the kept place on a node that a pod outside of gangs would use, or nil. A pod that
// requests none of the kept resources uses none, nor does one that leaves enough of them free. Pods of
// DaemonSets are exempt, because every node gets one, and so is a pod that is nominated for the node, for
// which pods may have been evicted there. never: the pod would use the place even if nothing of the node
// were used.
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

// KeptFromGang returns the places on a node that are kept from a gang of that key and priority, which
// became complete at the given time. Places kept for the gang itself are left out.
func (c *Closed) KeptFromGang(gang string, priority int32, complete time.Time, node string) (places []*Kept) {
	for _, k := range c.Kept()[node] {
		if k.Gang != gang && k.keepsOut(priority, complete) {
			places = append(places, k)
		}
	}
	return places
}

// exempt reports whether no place on this node is kept from the pod.
func exempt(pod *v1.Pod, node string) bool {
	if pod.Status.NominatedNodeName == node {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}
