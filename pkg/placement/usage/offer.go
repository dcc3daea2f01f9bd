// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// withhold subtracts from the graph's free devices those beyond kubelet's number: kubelet offers fewer
// than the graph has, or pods that hold lost GPUs are subtracted in kubelet and not in the graph.
func (u *Usage) withhold(in *Input) {
	u.Withheld = make([]int, len(u.Node.Accels))
	for i, a := range u.Node.Accels {
		left := in.Allocatable.scalars[v1.ResourceName(a.Resource)]
		for at := range in.Pods.Len() {
			left -= in.Pods.Requests(at).GetScalarResources()[v1.ResourceName(a.Resource)]
		}
		for at := range in.Reservations {
			if r := &in.Reservations[at]; r.UID != in.Retried && !has(in.Pods, r.UID) && !has(in.Listed, r.UID) {
				left -= r.Request.Scalars[v1.ResourceName(a.Resource)]
			}
		}
		u.Withheld[i] = max(0, u.FreeAt(i).Len()-u.Counted[i]-podrequest.BoundedCount(left))
		u.Counted[i] += u.Withheld[i]
	}
}

// Lost are the GPUs of one resource that a pod holds and that can no longer be used. kubelet counts them
// as given until the pod is gone.
type Lost struct {
	Unhealthy []int // by index
	Absent    int   // no longer part of the node
}

// Len is the number of lost GPUs.
func (l *Lost) Len() int { return len(l.Unhealthy) + l.Absent }

// String describes the lost GPUs, such as "holds GPU 0, which is unhealthy".
func (l *Lost) String() string {
	var parts []string
	switch len(l.Unhealthy) {
	case 0:
	case 1:
		parts = append(parts, fmt.Sprintf("GPU %d, which is unhealthy", l.Unhealthy[0]))
	default:
		var all []string
		for _, i := range l.Unhealthy {
			all = append(all, strconv.Itoa(i))
		}
		parts = append(parts, "GPUs "+strings.Join(all, ",")+", which are unhealthy")
	}
	switch l.Absent {
	case 0:
	case 1:
		parts = append(parts, "1 GPU that is no longer part of the node")
	default:
		parts = append(parts, fmt.Sprintf("%d GPUs that are no longer part of the node", l.Absent))
	}
	return "holds " + strings.Join(parts, " and ")
}

// LostBy returns the lost GPUs of Accels[i] that a pod of the node holds: according to kubelet's record,
// or else to its annotation.
func (n *Node) LostBy(i int, pod LivePod, r Reader) (out Lost) {
	a, held := n.Accels[i], []string(nil)
	for _, record := range n.Records[pod.Object.UID] {
		if record.Resource == a.Resource {
			held = append(held, record.GPUs...)
		}
	}
	if len(held) == 0 {
		if chosen := r.Allocation(pod.Object, n.Name); chosen != nil {
			held = chosen.GPUs(a.Resource)
		}
	}
	slices.Sort(held)
	held = slices.DeleteFunc(slices.Compact(held), isPart)
	found, absent := a.Graph.Positions(held)
	for at := range found.All() {
		if a.Graph.GPUs[at].Unhealthy != "" {
			out.Unhealthy = append(out.Unhealthy, a.Graph.GPUs[at].Index)
		}
	}
	slices.Sort(out.Unhealthy)
	// A tenant may have written the annotation: more than the pod requests is ignored.
	out.Absent = min(len(absent), podrequest.BoundedCount(pod.requests.scalars[v1.ResourceName(a.Resource)]))
	return out
}

// isPart reports whether a device is a part of a GPU, by its ID: a MIG device, or a replica of a shared
// GPU.
func isPart(id string) bool { return strings.HasPrefix(id, "MIG-") || strings.Contains(id, "::") }

// WholeOnly returns why kubelet offers devices of Accels[i] that no pod is given: GPUs are partitioned or
// shared, and only whole ones are chosen. It is empty if they are not.
func (n *Node) WholeOnly(i int, allocatable *Amounts) string {
	g := n.Accels[i].Graph
	offered := podrequest.BoundedCount(allocatable.scalars[v1.ResourceName(n.Accels[i].Resource)])
	partitioned := nvtopo.Mask(0)
	for at := range g.GPUs {
		if g.GPUs[at].MIG {
			partitioned |= nvtopo.MaskOf(at)
		}
	}
	switch {
	case offered > g.Len()-partitioned.Len() && partitioned != 0:
		return fmt.Sprintf("%d of %d GPUs are partitioned (MIG): whole GPUs only", partitioned.Len(), g.Len())
	case offered > g.Len() && partitioned == 0:
		return fmt.Sprintf("kubelet offers %d devices of %d GPUs, which are shared: whole GPUs only", offered, g.Len())
	}
	return ""
}

// Short returns a text if kubelet offers fewer devices of Accels[i] than the graph has healthy GPUs, and
// else "".
func (n *Node) Short(i int, allocatable *Amounts) string {
	a := n.Accels[i]
	offered := podrequest.BoundedCount(allocatable.scalars[v1.ResourceName(a.Resource)])
	if offered >= a.Healthy.Len() {
		return ""
	}
	return fmt.Sprintf("kubelet offers %d of %d GPUs", offered, a.Graph.Len())
}
