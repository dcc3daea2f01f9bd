// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/admission"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// charging is one computation of a node's usage: every pod is charged for its
// devices, CPUs and memory where these are known to be.
type charging struct {
	u *Usage
	s *State
	x *cell
	// late are pods with exclusive CPUs or memory that kubelet's published account
	// may not have yet.
	late []latecomer
	// counted are the exclusive CPUs of those that it should have.
	counted int
	// forgiven, if not nil, names pods that are gone and count no more.
	forgiven func(types.UID) bool
	// retried is the pod whose own claims do not count; empty for none.
	retried types.UID
	// returned are those of pods that a dry run took out.
	returned []nvtopo.CPUSet
}

// latecomer is one of them; kubelet will admit it as it does a new pod.
type latecomer struct {
	pod   *admission.Pod
	alloc *allocation.Allocation // nil if nobody chose for it
	names []string               // of its containers
	since time.Time
	// begun: kubelet has admitted it, so the account has it unless it is old.
	begun bool
	cpus  int
}

// addPod charges one pod of the node: its claims and the annotation the snapshot
// shows, else the one in the informer's store, in union with kubelet's record; a
// pod that has none of them is only counted.
func (c *charging) addPod(pi fwk.PodInfo) {
	u, pod := c.u, pi.GetPod()
	// A pod that is being resized counts with what it still holds, as it does for
	// the scheduler, which computed this when it put the pod on the node.
	requests := pi.CalculateResource().Resource
	p := share{milliCPU: podrequest.BoundedAmount(requests.GetMilliCPU()), memory: podrequest.BoundedAmount(requests.GetMemory())}
	p.wanted = p.milliCPU
	for _, cl := range c.x.claims {
		if cl.uid == pod.UID {
			p.alloc = cl.alloc
		}
	}
	recs, recorded := u.node.allocations[pod.UID]
	// Beside a claim, not instead: the claim may be of a second attempt, made
	// while the first, believed lost, was carried out after all.
	a := c.s.allocationOf(pod, u.node.Name)
	if a == nil && p.alloc == nil {
		a = c.elsewhere(pod)
	}
	if p.alloc == nil {
		p.alloc = a
	}
	c.expect(pod, &p, recorded)
	for _, cl := range c.x.claims {
		if cl.uid == pod.UID {
			u.addAllocation(cl.alloc, &p)
		}
	}
	if a != nil {
		u.addAllocation(a, &p)
	}
	u.addRecorded(recs)
	if !p.known {
		u.chargeRecorded(recs, &p)
	}
	for i, accel := range u.node.Accels {
		n := podrequest.BoundedCount(requests.GetScalarResources()[v1.ResourceName(accel.Resource)])
		// An annotation may name fewer than the pod has: the rest may stand in a field
		// of a later release.
		n -= max(p.alloc.Count(accel.Resource), a.Count(accel.Resource))
		if n > 0 {
			n -= recordedGPUs(recs, accel.Resource)
		}
		if n <= 0 {
			continue
		}
		u.counted[i] += n
		// A nominated pod has no node yet; it will choose when its turn comes.
		u.foreign[i] = u.foreign[i] || pod.Spec.NodeName != ""
	}
}

// elsewhere finds the allocation of a pod of which the snapshot shows none: what is
// held for it if it is nominated only, else what the informer's store has.
func (c *charging) elsewhere(pod *v1.Pod) *allocation.Allocation {
	if pod.Spec.NodeName == "" {
		if h := c.x.holdOf(pod.UID); h != nil {
			return h.alloc
		}
		return nil
	}
	c.u.hearsay = true
	stored := c.s.pods.pod(pod.Namespace, pod.Name, pod.UID)
	if stored == nil {
		return nil
	}
	return c.s.allocationOf(stored, c.u.node.Name)
}

// share is what of a pod is still to be charged.
type share struct {
	milliCPU, memory int64
	wanted           int64                  // CPU the pod asks for in all
	alloc            *allocation.Allocation // what was chosen for it, if anything
	known            bool                   // some of it has been charged
}

// addClaim charges a claim whose pod the snapshot does not have.
func (c *charging) addClaim(cl *claim) {
	p := share{milliCPU: cl.request.MilliCPU, memory: cl.request.Memory, wanted: cl.request.MilliCPU, alloc: cl.alloc}
	if k := c.u.node.kubelet; k != nil {
		pod := c.u.admittedHere(cl.request)
		if pod != nil && pod.Pinned() && k.pins() {
			k.exclude(pod, &p)
			c.late = append(c.late, latecomer{pod: pod, alloc: cl.alloc, names: cl.request.ContainerNames, since: cl.alloc.Assumed})
		}
		if pod != nil && k.mayRefuse() && k.machine.Concerns(pod) {
			c.u.waiting = append(c.u.waiting, pod)
		}
	}
	c.u.addAllocation(cl.alloc, &p)
}

// expect leaves out of a pod's share what kubelet's account has or will have, and
// notes a pod that kubelet has yet to admit.
func (c *charging) expect(pod *v1.Pod, p *share, recorded bool) {
	k := c.u.node.kubelet
	pinned := k.pins() && podrequest.GetsExclusive(pod)
	if k == nil || !pinned && (recorded || p.alloc == nil || !k.mayRefuse()) {
		return
	}
	r := podrequest.ForAdmission(pod, c.u.node.resources)
	admitted := c.u.admittedHere(r)
	switch {
	case admitted == nil:
	case pinned && admitted.Pinned():
		c.expectPinned(pod, r, admitted, p, recorded)
	case !recorded && p.alloc != nil && k.machine.Concerns(admitted):
		c.u.waiting = append(c.u.waiting, admitted)
	}
}

func (c *charging) expectPinned(pod *v1.Pod, r *podrequest.Request, admitted *admission.Pod, p *share, recorded bool) {
	k := c.u.node.kubelet
	k.exclude(admitted, p)
	l := latecomer{pod: admitted, alloc: p.alloc, names: r.ContainerNames, since: pod.CreationTimestamp.Time, cpus: admitted.CPUs()}
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
		c.u.waiting = append(c.u.waiting, admitted)
	}
	c.late = append(c.late, l)
}

// victim gives back the exclusive CPUs of a pod that is recorded but not here.
func (c *charging) victim(uid types.UID, recs []recorded, here []fwk.PodInfo) {
	if k := c.u.node.kubelet; k == nil || !k.pinsCPUs || slices.ContainsFunc(here, func(pi fwk.PodInfo) bool { return pi.GetPod().UID == uid }) {
		return
	}
	for _, r := range recs {
		c.returned = append(c.returned, r.cpus)
	}
}

// settle ends the computation: what kubelet will set aside for latecomers is taken
// as it would, in the order in which they came.
func (c *charging) settle() {
	u, k := c.u, c.u.node.kubelet
	if k == nil {
		return
	}
	state := k.account
	if len(c.returned) > 0 {
		state = k.machine.NewState(k.exclusive.Minus(c.returned...), k.memory)
	}
	for i, a := range u.node.Accels {
		state.Free[i] = a.Healthy &^ c.recordedMask(i)
	}
	slices.SortStableFunc(c.late, func(a, b latecomer) int { return a.since.Compare(b.since) })
	// An account that has fewer CPUs than the pods it should have is old: the last of
	// them are not in it.
	missing := 0
	if k.pinsCPUs {
		missing = c.counted - len(k.exclusive)
	}
	old := map[int]bool{}
	for i := len(c.late) - 1; i >= 0 && missing > 0; i-- {
		if c.late[i].begun && c.late[i].cpus > 0 {
			old[i] = true
			missing -= c.late[i].cpus
		}
	}
	if len(u.waiting) > 0 {
		before := state
		u.before = &before
	}
	for i := range c.late {
		if l := &c.late[i]; !l.begun || old[i] {
			k.replay(u.node, &state, l)
		}
	}
	u.hold(state)
	for i := range u.numa {
		id := u.node.NUMA.NUMANodes[i].ID
		u.numa[i].milliCPU -= 1000 * int64(k.machine.FreeCPUs(&k.account, id)-k.machine.FreeCPUs(&state, id))
		if k.pinsMemory {
			u.numa[i].memory -= k.machine.FreeMemory(&k.account, id) - k.machine.FreeMemory(&state, id)
		}
	}
}

// recordedMask are the GPUs of an accelerator that kubelet has recorded.
func (c *charging) recordedMask(i int) (m nvtopo.Mask) {
	a := c.u.node.Accels[i]
	for _, recs := range c.u.node.allocations {
		for _, r := range recs {
			if r.resource == a.Resource {
				found, _ := a.Graph.Positions(r.gpus)
				m |= found
			}
		}
	}
	return m & c.u.used[i]
}

// pins reports whether the account says which CPUs or memory Guaranteed pods have.
func (k *kubelet) pins() bool { return k != nil && (k.pinsCPUs || k.pinsMemory) }

// mayRefuse reports whether the order in which pods come may matter for whom kubelet
// admits.
func (k *kubelet) mayRefuse() bool { return k.pins() || k.machine.Strict() }

// exclude takes out of a pod's share what the account covers.
func (k *kubelet) exclude(pod *admission.Pod, p *share) {
	if k.pinsCPUs {
		p.milliCPU = max(0, p.milliCPU-1000*int64(pod.CPUs()))
	}
	if k.pinsMemory {
		p.memory = 0
	}
}

// replay takes what kubelet will set aside for a pod it has yet to admit.
func (k *kubelet) replay(n *Node, state *admission.State, l *latecomer) {
	wish := &admission.Wish{}
	if l.alloc != nil {
		wish.Parts = make([]admission.Part, len(l.pod.Containers))
		for i := range l.alloc.Containers {
			ca := &l.alloc.Containers[i]
			at := slices.Index(l.names, ca.Name)
			ai := slices.IndexFunc(n.Accels, func(a *Accel) bool { return a.Resource == ca.Resource })
			if at >= 0 && ai >= 0 {
				wish.Parts[at][ai], _ = n.Accels[ai].Graph.Positions(ca.GPUs)
			}
		}
	}
	if k.machine.Replay(state, l.pod, wish) || l.alloc == nil {
		return
	}
	// It was not chosen by this forecast; whatever its GPUs, its CPUs count.
	k.machine.Replay(state, l.pod, &admission.Wish{})
}

// left is what NUMA nodes have by the account.
func (k *kubelet) left(n *Node) []numaFree {
	out := slices.Clone(n.capacity)
	for i := range out {
		nn := &n.NUMA.NUMANodes[i]
		if k.pinsCPUs {
			out[i].milliCPU = 1000 * int64(k.machine.FreeCPUs(&k.account, nn.ID))
		}
		if m, ok := k.memory[nn.ID]; ok && k.pinsMemory {
			out[i].memory = m.Free
		}
	}
	return out
}

// addAllocation charges one choice for a pod. A cpuset wider than the pod's request
// is the agent's, which all pods of its NUMA nodes share.
func (u *Usage) addAllocation(a *allocation.Allocation, p *share) {
	for i, accel := range u.node.Accels {
		u.used[i] |= a.Mask(accel.Resource, accel.Graph)
	}
	cpus := a.CPUs()
	if int64(len(cpus)) > (p.wanted+999)/1000 {
		cpus = nil
	}
	if len(cpus) > 0 {
		u.taken = append(u.taken, cpus)
	}
	u.charge(a.NUMANodes, cpus, p.milliCPU, p.memory)
	p.milliCPU, p.memory = 0, 0 // several choices for one pod hold its CPUs once
	p.known = true
}

func (u *Usage) addRecorded(recs []recorded) {
	for _, r := range recs {
		for i, accel := range u.node.Accels {
			if accel.Resource == r.resource {
				m, _ := accel.Graph.Positions(r.gpus)
				u.used[i] |= m
			}
		}
	}
}

// recordedGPUs counts the distinct GPUs that kubelet recorded for a pod.
func recordedGPUs(recs []recorded, resource string) int {
	var all []string
	for _, r := range recs {
		if r.resource == resource {
			all = append(all, r.gpus...)
		}
	}
	slices.Sort(all)
	return len(slices.Compact(all))
}

// chargeRecorded puts the CPU and memory of a pod that nobody of ours chose for
// where its containers are confined to, or else on every NUMA node.
func (u *Usage) chargeRecorded(recs []recorded, p *share) {
	var nodes []int
	for _, r := range recs {
		if len(r.cpus) == 0 {
			nodes = nil
			break
		}
		for _, cpu := range r.cpus {
			if i := u.node.numaOf(cpu); i >= 0 && !slices.Contains(nodes, u.node.NUMA.NUMANodes[i].ID) {
				nodes = append(nodes, u.node.NUMA.NUMANodes[i].ID)
			}
		}
	}
	u.charge(nodes, nil, p.milliCPU, p.memory)
}

// leastLeft stands for any debt: sums stay inside an int64.
const leastLeft = -1 << 60

func spend(left *int64, n int64) { *left = max(*left-podrequest.BoundedAmount(n), leastLeft) }

// charge puts a pod's CPU and memory on its own NUMA nodes: CPU where its
// cpuset lies, the rest in equal parts, rounded up; without own nodes on all.
func (u *Usage) charge(nodes []int, cpus nvtopo.CPUSet, milliCPU, memory int64) {
	if len(nodes) == 0 {
		u.chargeEverywhere(milliCPU, memory)
		return
	}
	for _, c := range cpus {
		if i := u.node.numaOf(c); i >= 0 {
			spend(&u.numa[i].milliCPU, 1000)
		}
	}
	n := int64(len(nodes))
	for i := range u.numa {
		if !slices.Contains(nodes, u.node.NUMA.NUMANodes[i].ID) {
			continue
		}
		if len(cpus) == 0 {
			spend(&u.numa[i].milliCPU, (milliCPU+n-1)/n)
		}
		spend(&u.numa[i].memory, (memory+n-1)/n)
	}
}

// chargeEverywhere charges every NUMA node: nobody knows where the pod sits.
func (u *Usage) chargeEverywhere(milliCPU, memory int64) {
	for i := range u.numa {
		spend(&u.numa[i].milliCPU, milliCPU)
		spend(&u.numa[i].memory, memory)
	}
}
