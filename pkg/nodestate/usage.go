// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// maxNUMA bounds the NUMA nodes one usage tracks: the width of a node mask.
const maxNUMA = 64

// Usage is what is used on one node, as one consistent answer. It is immutable
// and remembered by (graph, NodeInfo generation, claim revision).
type Usage struct {
	node       *Node
	generation int64
	rev        uint64

	used    []nvtopo.Mask   // in the order of Node.Accels
	counted []int           // devices held by pods known only by count, same order
	foreign []bool          // some of those pods run already, so nobody knows their GPUs
	numa    []numaFree      // in the order of Node.NUMA.NUMANodes
	taken   []nvtopo.CPUSet // CPUs of pods of ours
	// hearsay: of some pods only the informer's store could tell what they hold, and
	// what it says may change without a sign.
	hearsay bool
}

// numaFree is what one NUMA node has left.
type numaFree struct {
	milliCPU int64
	memory   int64
}

// free returns the GPUs of an accelerator kind a pod may be given.
func (u *Usage) free(i int) nvtopo.Mask { return u.node.Accels[i].Healthy &^ u.used[i] }

// Free returns the free healthy GPUs of a resource, by position.
func (u *Usage) Free(resource string) nvtopo.Mask {
	for i, a := range u.node.Accels {
		if a.Resource == resource {
			return u.free(i)
		}
	}
	return 0
}

// freeCPUs are the CPUs that no other pod of ours was given.
func (u *Usage) freeCPUs() nvtopo.CPUSet { return u.node.cpus.Minus(u.taken...) }

// podLister finds a pod in the informer's store; nil when it is not there.
type podLister interface {
	pod(namespace, name string, uid types.UID) *v1.Pod
}

// usage returns what is used on a node as info shows it. snapshot is the cycle's:
// a pod that is on the node there but not in info was taken out by a dry run,
// so its claim does not count.
//
// The order of reading is the guarantee: the claims first, then annotations and
// the informer's store. A claim is dropped only once a cycle's snapshot shows
// what replaces it (see Sweep), so a pod that moves from one place to the other
// while this runs is seen at least once.
func (s *State) usage(x *cell, n *Node, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *Usage {
	if u := x.remembered(n, info); u != nil {
		return u
	}
	s.mu.Lock()
	u := s.computeUsage(x, n, info, snapshot)
	s.mu.Unlock()
	x.usage.Store(u)
	return u
}

// remembered returns the node's usage if nothing it was computed from has changed,
// but for what the informer's store had (see Usage.hearsay); else nil.
func (x *cell) remembered(n *Node, info fwk.NodeInfo) *Usage {
	if u := x.usage.Load(); u != nil && u.node == n && u.generation == info.GetGeneration() && u.rev == x.rev.Load() {
		return u
	}
	return nil
}

// computeUsage needs s.mu.
func (s *State) computeUsage(x *cell, n *Node, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *Usage {
	here := info.GetPods()
	if len(here) == 0 && len(x.claims) == 0 && len(n.allocations) == 0 {
		empty := *n.empty // what it refers to never changes
		empty.generation, empty.rev = info.GetGeneration(), x.rev.Load()
		return &empty
	}
	u := &Usage{
		node: n, generation: info.GetGeneration(), rev: x.rev.Load(),
		used: make([]nvtopo.Mask, len(n.Accels)), counted: make([]int, len(n.Accels)), foreign: make([]bool, len(n.Accels)),
		numa: slices.Clone(n.capacity),
	}
	for _, pi := range here {
		u.addPod(s, x, pi)
	}
	if len(x.claims) == 0 && len(n.allocations) == 0 {
		return u
	}
	var listed []fwk.PodInfo
	if info, err := snapshot.Get(n.Name); err == nil {
		listed = info.GetPods()
	}
	gone := func(uid types.UID) bool { // known here, and not taken out by a dry run
		is := func(pi fwk.PodInfo) bool { return pi.GetPod().UID == uid }
		return !slices.ContainsFunc(here, is) && !slices.ContainsFunc(listed, is)
	}
	for _, c := range x.claims {
		if gone(c.uid) {
			u.addAllocation(c.alloc, c.milliCPU, c.memory)
		}
	}
	for uid, recs := range n.allocations {
		if gone(uid) {
			u.addRecorded(recs)
		}
	}
	return u
}

// addPod charges one pod of the node: its claims and the annotation the snapshot
// shows, else the one in the informer's store, in union with kubelet's record; a
// pod that has none of them is only counted.
func (u *Usage) addPod(s *State, x *cell, pi fwk.PodInfo) {
	pod := pi.GetPod()
	// A pod that is being resized counts with what it still holds, as it does for
	// the scheduler, which computed this when it put the pod on the node.
	requests := pi.CalculateResource().Resource
	milliCPU, memory := requests.GetMilliCPU(), requests.GetMemory()
	known := false
	add := func(a *Allocation) {
		u.addAllocation(a, milliCPU, memory)
		milliCPU, memory = 0, 0 // several choices for one pod hold its CPUs once
		known = true
	}
	for _, c := range x.claims {
		if c.uid == pod.UID {
			add(c.alloc)
		}
	}
	// Beside a claim, not instead: the claim may be of a second attempt, made
	// while the first, believed lost, was carried out after all.
	a := s.allocationOf(pod, u.node.Name)
	if a == nil && !known && pod.Spec.NodeName != "" {
		u.hearsay = true
		if stored := s.pods.pod(pod.Namespace, pod.Name, pod.UID); stored != nil {
			a = s.allocationOf(stored, u.node.Name)
		}
	}
	if a != nil {
		add(a)
	}
	if recs, ok := u.node.allocations[pod.UID]; ok {
		u.addRecorded(recs)
		if !known {
			u.chargeEverywhere(milliCPU, memory)
		}
		return
	}
	if known {
		return
	}
	u.chargeEverywhere(milliCPU, memory)
	for i, a := range u.node.Accels {
		n := int(requests.GetScalarResources()[v1.ResourceName(a.Resource)])
		if n == 0 {
			continue
		}
		u.counted[i] += n
		// A nominated pod has no node yet; it will choose when its turn comes.
		u.foreign[i] = u.foreign[i] || pod.Spec.NodeName != ""
	}
}

func (u *Usage) addAllocation(a *Allocation, milliCPU, memory int64) {
	for i, accel := range u.node.Accels {
		u.used[i] |= a.mask(accel)
	}
	if len(a.cpus) > 0 {
		u.taken = append(u.taken, a.cpus)
	}
	u.charge(a.NUMANodes, a.cpus, milliCPU, memory)
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

// charge puts a pod's CPU and memory on its own NUMA nodes: CPU where its
// cpuset lies, the rest in equal parts, rounded up; without own nodes on all.
func (u *Usage) charge(nodes []int, cpus nvtopo.CPUSet, milliCPU, memory int64) {
	if len(nodes) == 0 {
		u.chargeEverywhere(milliCPU, memory)
		return
	}
	for _, c := range cpus {
		if i := u.node.numaOf(c); i >= 0 {
			u.numa[i].milliCPU -= 1000
		}
	}
	n := int64(len(nodes))
	for i := range u.numa {
		if !slices.Contains(nodes, u.node.NUMA.NUMANodes[i].ID) {
			continue
		}
		if len(cpus) == 0 {
			u.numa[i].milliCPU -= (milliCPU + n - 1) / n
		}
		u.numa[i].memory -= (memory + n - 1) / n
	}
}

// chargeEverywhere charges every NUMA node: nobody knows where the pod sits.
func (u *Usage) chargeEverywhere(milliCPU, memory int64) {
	for i := range u.numa {
		u.numa[i].milliCPU -= milliCPU
		u.numa[i].memory -= memory
	}
}

func capacity(n *Node) []numaFree {
	nodes := n.NUMA.NUMANodes
	out := make([]numaFree, min(len(nodes), maxNUMA))
	for i := range out {
		cpus := nodes[i].CPUs.Minus(n.ReservedCPUs)
		out[i] = numaFree{milliCPU: int64(len(cpus)) * 1000, memory: nodes[i].Memory}
	}
	return out
}

func allCPUs(n *Node) nvtopo.CPUSet {
	var all []int
	for i := range n.NUMA.NUMANodes {
		all = append(all, n.NUMA.NUMANodes[i].CPUs...)
	}
	return nvtopo.NewCPUSet(all...)
}

// numaByCPU maps each CPU to its NUMA node's position, or -1.
func numaByCPU(nodes []nvtopo.NUMANode) []int16 {
	var out []int16
	for i := range nodes[:min(len(nodes), maxNUMA)] {
		for _, c := range nodes[i].CPUs {
			for c >= len(out) {
				out = append(out, -1)
			}
			out[c] = int16(i)
		}
	}
	return out
}

// numaOf returns the position of a CPU's NUMA node, -1 if it is not known.
func (n *Node) numaOf(cpu int) int {
	if cpu >= len(n.byCPU) {
		return -1
	}
	return int(n.byCPU[cpu])
}
