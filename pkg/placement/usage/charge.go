// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// charging is one computation of a node's usage: every pod is charged for its devices, CPUs and memory on
// the NUMA nodes where these are known to be. The input is passed to each call and not kept, so that
// neither has to be allocated.
type charging struct {
	u *Usage
	// unadmitted are pods with exclusive CPUs or memory that may not be in kubelet's published account yet.
	unadmitted []unadmitted
	// counted is the number of exclusive CPUs of the pods that should be in it.
	counted int
	// returned are the exclusive CPUs of pods that a dry run took out.
	returned []nvtopo.CPUSet
}

// unadmitted is a pod that kubelet will admit like a new one.
type unadmitted struct {
	pod   *kubeletadmission.Pod
	alloc *allocation.Allocation // nil if none was chosen for it
	names []string               // of its containers
	since time.Time
	// begun: kubelet has admitted it, so it is in the account unless the account is old.
	begun bool
	cpus  int
}

// addPod charges one pod of the node: its assumed allocations and the annotation of this copy of it, or
// else of the one in the informer's store, in union with kubelet's record; a pod with none of them is
// untracked.
func (c *charging) addPod(in *Input, pods Pods, at int) {
	u, pod := c.u, pods.Pod(at)
	// A pod that is being resized is charged for the amounts that it still holds, as in the scheduler, which
	// computed this when it put the pod on the node.
	requests := pods.Requests(at)
	p := share{milliCPU: podrequest.BoundedAmount(requests.GetMilliCPU()), memory: podrequest.BoundedAmount(requests.GetMemory())}
	p.wanted = p.milliCPU
	for i := range in.Reservations {
		if r := &in.Reservations[i]; r.UID == pod.UID {
			p.alloc = r.Allocation
		}
	}
	recs, recorded := u.Node.Records[pod.UID]
	// In addition to an assumed allocation, not instead: that may be of a second attempt, made while the
	// first, believed lost, was carried out after all.
	a := in.Reader.Allocation(pod, u.Node.Name)
	if a == nil && p.alloc == nil {
		a = c.elsewhere(in.Reader, pod)
	}
	if p.alloc == nil {
		p.alloc = a
	}
	c.expect(pod, &p, recorded)
	for i := range in.Reservations {
		if r := &in.Reservations[i]; r.UID == pod.UID {
			u.addAllocation(r.Allocation, &p)
		}
	}
	if a != nil {
		u.addAllocation(a, &p)
	}
	u.addRecorded(recs)
	if !p.known {
		u.chargeRecorded(recs, &p)
	}
	for i, accel := range u.Node.Accels {
		n := podrequest.BoundedCount(requests.GetScalarResources()[v1.ResourceName(accel.Resource)])
		// An annotation may name fewer devices than the pod has: the rest may be in a field of a later release.
		n -= max(p.alloc.Count(accel.Resource), a.Count(accel.Resource))
		if n > 0 {
			n -= RecordedGPUs(recs, accel.Resource)
		}
		if n <= 0 {
			continue
		}
		u.Counted[i] += n
		// A nominated pod has no node yet; it will choose when its turn comes.
		u.Foreign[i] = u.Foreign[i] || pod.Spec.NodeName != ""
	}
}

// elsewhere returns the allocation of a pod that has none in the snapshot: the nominated one if it is only
// nominated, else that of the informer's store.
func (c *charging) elsewhere(r Reader, pod *v1.Pod) *allocation.Allocation {
	if pod.Spec.NodeName == "" {
		return r.Nominated(pod.UID)
	}
	c.u.FromStore = true
	stored := r.Stored(pod)
	if stored == nil {
		return nil
	}
	return r.Allocation(stored, c.u.Node.Name)
}

// share is the part of a pod that is still to be charged.
type share struct {
	milliCPU, memory int64
	wanted           int64                  // the pod's whole CPU request
	alloc            *allocation.Allocation // the allocation chosen for it, or nil
	known            bool                   // some of it has been charged
}

// addReservation charges an assumed allocation whose pod is not on the node yet.
func (c *charging) addReservation(r *Reservation) {
	p := share{milliCPU: r.Request.MilliCPU, memory: r.Request.Memory, wanted: r.Request.MilliCPU, alloc: r.Allocation}
	if k := c.u.Node.Kubelet; k != nil {
		pod := c.u.AdmissionOf(r.Request)
		if pod != nil && pod.Pinned() && k.Pins() {
			k.exclude(pod, &p)
			c.unadmitted = append(c.unadmitted, unadmitted{pod: pod, alloc: r.Allocation, names: r.Request.ContainerNames, since: r.Allocation.Assumed})
		}
		if pod != nil && k.mayRefuse() && k.Machine.Concerns(pod) {
			c.u.ToAdmit = append(c.u.ToAdmit, pod)
		}
	}
	c.u.addAllocation(r.Allocation, &p)
}

// expect removes from a pod's share the amounts in kubelet's account, now or later, and records a pod that
// kubelet has yet to admit.
func (c *charging) expect(pod *v1.Pod, p *share, recorded bool) {
	k := c.u.Node.Kubelet
	pinned := k.Pins() && podrequest.GetsExclusive(pod)
	if k == nil || !pinned && (recorded || p.alloc == nil || !k.mayRefuse()) {
		return
	}
	r := podrequest.ForAdmission(pod, c.u.Node.Resources)
	admitted := c.u.AdmissionOf(r)
	switch {
	case admitted == nil:
	case pinned && admitted.Pinned():
		c.expectPinned(pod, r, admitted, p, recorded)
	case !recorded && p.alloc != nil && k.Machine.Concerns(admitted):
		c.u.ToAdmit = append(c.u.ToAdmit, admitted)
	}
}

func (c *charging) expectPinned(pod *v1.Pod, r *podrequest.Request, admitted *kubeletadmission.Pod, p *share, recorded bool) {
	k := c.u.Node.Kubelet
	k.exclude(admitted, p)
	l := unadmitted{pod: admitted, alloc: p.alloc, names: r.ContainerNames, since: pod.CreationTimestamp.Time, cpus: admitted.CPUs()}
	if p.alloc != nil {
		l.since = p.alloc.Assumed
	}
	switch {
	case recorded:
		c.counted += l.cpus // the record was written together with the account
		return
	case len(r.Resources) == 0 && pod.Status.StartTime != nil:
		l.begun, l.since = true, pod.Status.StartTime.Time
		c.counted += l.cpus
	default:
		c.u.ToAdmit = append(c.u.ToAdmit, admitted)
	}
	c.unadmitted = append(c.unadmitted, l)
}

// victim returns the exclusive CPUs of a pod that is recorded but was taken out by a dry run.
func (c *charging) victim(here Pods, uid types.UID, recs []Record) {
	if k := c.u.Node.Kubelet; k == nil || !k.pinsCPUs || has(here, uid) {
		return
	}
	for _, r := range recs {
		c.returned = append(c.returned, r.CPUs)
	}
}

// settle ends the computation: it takes the resources that kubelet will set aside for unadmitted pods, as
// kubelet would, in the order of their arrival.
func (c *charging) settle() {
	u, k := c.u, c.u.Node.Kubelet
	if k == nil {
		return
	}
	state := k.account
	if len(c.returned) > 0 {
		state = k.Machine.NewState(k.exclusive.Minus(c.returned...), k.memory)
	}
	for i, a := range u.Node.Accels {
		state.Free[i] = a.Healthy &^ c.recordedMask(i)
	}
	slices.SortStableFunc(c.unadmitted, func(a, b unadmitted) int { return a.since.Compare(b.since) })
	// An account with fewer CPUs than those of its pods is old: the last pods are not in it.
	missing := 0
	if k.pinsCPUs {
		missing = c.counted - len(k.exclusive)
	}
	old := map[int]bool{}
	for i := len(c.unadmitted) - 1; i >= 0 && missing > 0; i-- {
		if c.unadmitted[i].begun && c.unadmitted[i].cpus > 0 {
			old[i] = true
			missing -= c.unadmitted[i].cpus
		}
	}
	if len(u.ToAdmit) > 0 {
		before := state
		u.Before = &before
	}
	for i := range c.unadmitted {
		if l := &c.unadmitted[i]; !l.begun || old[i] {
			k.replay(u.Node, &state, l)
		}
	}
	u.hold(state)
	for i := range u.NUMA {
		id := u.Node.NUMA.NUMANodes[i].ID
		u.NUMA[i].MilliCPU -= 1000 * int64(k.Machine.FreeCPUs(&k.account, id)-k.Machine.FreeCPUs(&state, id))
		if k.pinsMemory {
			u.NUMA[i].Memory -= k.Machine.FreeMemory(&k.account, id) - k.Machine.FreeMemory(&state, id)
		}
	}
}

// recordedMask returns the GPUs of an accelerator in kubelet's records.
func (c *charging) recordedMask(i int) (m nvtopo.Mask) {
	a := c.u.Node.Accels[i]
	for _, recs := range c.u.Node.Records {
		for _, r := range recs {
			if r.Resource == a.Resource {
				found, _ := a.Graph.Positions(r.GPUs)
				m |= found
			}
		}
	}
	return m & c.u.Used[i]
}

// addAllocation charges one allocation of a pod. A cpuset wider than the pod's request is the agent's,
// which all pods of its NUMA nodes share.
func (u *Usage) addAllocation(a *allocation.Allocation, p *share) {
	for i, accel := range u.Node.Accels {
		u.Used[i] |= a.Mask(accel.Resource, accel.Graph)
	}
	cpus := a.CPUs()
	if int64(len(cpus)) > (p.wanted+999)/1000 {
		cpus = nil
	}
	if len(cpus) > 0 {
		u.Taken = append(u.Taken, cpus)
	}
	u.charge(a.NUMANodes, cpus, p.milliCPU, p.memory)
	p.milliCPU, p.memory = 0, 0 // several allocations of one pod hold its CPUs once
	p.known = true
}

func (u *Usage) addRecorded(recs []Record) {
	for _, r := range recs {
		for i, accel := range u.Node.Accels {
			if accel.Resource == r.Resource {
				m, _ := accel.Graph.Positions(r.GPUs)
				u.Used[i] |= m
			}
		}
	}
}

// RecordedGPUs counts the distinct GPUs in kubelet's records of a pod.
func RecordedGPUs(recs []Record, resource string) int {
	var all []string
	for _, r := range recs {
		if r.Resource == resource {
			all = append(all, r.GPUs...)
		}
	}
	slices.Sort(all)
	return len(slices.Compact(all))
}

// chargeRecorded charges the CPU and memory of a pod without an allocation to the NUMA nodes that its
// containers are confined to, or else to every NUMA node.
func (u *Usage) chargeRecorded(recs []Record, p *share) {
	var nodes []int
	for _, r := range recs {
		if len(r.CPUs) == 0 {
			nodes = nil
			break
		}
		for _, cpu := range r.CPUs {
			if i := u.Node.numaOf(cpu); i >= 0 && !slices.Contains(nodes, u.Node.NUMA.NUMANodes[i].ID) {
				nodes = append(nodes, u.Node.NUMA.NUMANodes[i].ID)
			}
		}
	}
	u.charge(nodes, nil, p.milliCPU, p.memory)
}

// leastLeft is the lower bound of a negative balance: sums stay inside an int64.
const leastLeft = -1 << 60

func spend(left *int64, n int64) { *left = max(*left-podrequest.BoundedAmount(n), leastLeft) }

// charge charges a pod's CPU and memory to its own NUMA nodes: CPU according to its cpuset, the rest in
// equal parts, rounded up; without own nodes to all.
func (u *Usage) charge(nodes []int, cpus nvtopo.CPUSet, milliCPU, memory int64) {
	if len(nodes) == 0 {
		u.chargeEverywhere(milliCPU, memory)
		return
	}
	for _, c := range cpus {
		if i := u.Node.numaOf(c); i >= 0 {
			spend(&u.NUMA[i].MilliCPU, 1000)
		}
	}
	n := int64(len(nodes))
	for i := range u.NUMA {
		if !slices.Contains(nodes, u.Node.NUMA.NUMANodes[i].ID) {
			continue
		}
		if len(cpus) == 0 {
			spend(&u.NUMA[i].MilliCPU, (milliCPU+n-1)/n)
		}
		spend(&u.NUMA[i].Memory, (memory+n-1)/n)
	}
}

// chargeEverywhere charges every NUMA node: it is not known on which the pod runs.
func (u *Usage) chargeEverywhere(milliCPU, memory int64) {
	for i := range u.NUMA {
		spend(&u.NUMA[i].MilliCPU, milliCPU)
		spend(&u.NUMA[i].Memory, memory)
	}
}
