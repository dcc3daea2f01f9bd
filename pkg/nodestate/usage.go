// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/admission"
)

// maxNUMA bounds the NUMA nodes one usage tracks: the width of a node mask.
const maxNUMA = 64

// Usage is what is used on one node, as one consistent answer. It is immutable
// and remembered by (graph, NodeInfo generation, claim revision).
type Usage struct {
	node       *Node
	generation int64
	rev        uint64

	used    []nvtopo.Mask    // in the order of Node.Accels
	counted []int            // devices held by pods known only by count, same order
	foreign []bool           // some of those pods run already, so nobody knows their GPUs
	numa    []numaFree       // in the order of Node.NUMA.NUMANodes
	taken   []nvtopo.CPUSet  // CPUs of pods of ours
	held    *admission.State // as kubelet has it; nil where there is nothing to predict
	// waiting are pods bound to the node whose kubelet, which may refuse some, has not
	// admitted them yet, and before is what it has until then.
	waiting []*admission.Pod
	before  *admission.State
	// hearsay: of some pods only the informer's store could tell what they hold, and
	// what it says may change without a sign.
	hearsay bool
	// leftovers: a pod that is gone still has GPUs by the agent's word, which is
	// believed while the agent lives. agentLived is what was found.
	leftovers, agentLived bool
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
func (u *Usage) freeCPUs() nvtopo.CPUSet {
	if len(u.taken) == 0 {
		return u.node.cpus
	}
	return u.node.cpus.Minus(u.taken...)
}

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
	if u := s.remembered(x, n, info); u != nil {
		return u
	}
	s.mu.Lock()
	u := s.computeUsage(x, n, info.GetGeneration(), info.GetPods(), snapshot)
	s.mu.Unlock()
	x.usage.Store(u)
	return u
}

// remembered returns the node's usage if nothing it was computed from has changed,
// but for what the informer's store had (see Usage.hearsay); else nil.
func (s *State) remembered(x *cell, n *Node, info fwk.NodeInfo) *Usage {
	u := x.usage.Load()
	if u == nil || u.node != n || u.generation != info.GetGeneration() || u.rev != x.rev.Load() || s.outlived(u) {
		return nil
	}
	return u
}

// outlived reports whether the agent died or came back since, and that matters.
func (s *State) outlived(u *Usage) bool {
	return u.leftovers && u.agentLived != u.node.enforced(s.clock.Now())
}

// computeUsage is the usage of a node with the pods of here. It needs s.mu.
func (s *State) computeUsage(x *cell, n *Node, generation int64, here []fwk.PodInfo, snapshot fwk.NodeInfoLister) *Usage {
	return s.compute(charging{s: s, x: x}, n, generation, here, snapshot)
}

// computeRetried is the usage for a pod that is tried again: its own claims do not count.
func (s *State) computeRetried(uid types.UID, x *cell, n *Node, generation int64, here []fwk.PodInfo, snapshot fwk.NodeInfoLister) *Usage {
	return s.compute(charging{s: s, x: x, retried: uid}, n, generation, here, snapshot)
}

// computeWithout leaves out what kubelet has not released yet of pods that are gone,
// if forgiven says so.
func (s *State) computeWithout(forgiven func(types.UID) bool, x *cell, n *Node, generation int64, here []fwk.PodInfo, snapshot fwk.NodeInfoLister) *Usage {
	return s.compute(charging{s: s, x: x, forgiven: forgiven}, n, generation, here, snapshot)
}

func (s *State) compute(c charging, n *Node, generation int64, here []fwk.PodInfo, snapshot fwk.NodeInfoLister) *Usage {
	x := c.x
	if len(here) == 0 && len(x.claims) == 0 && len(n.allocations) == 0 {
		idle := *n.idle // what it refers to never changes
		idle.generation, idle.rev = generation, x.rev.Load()
		return &idle
	}
	u := &Usage{
		node: n, generation: generation, rev: x.rev.Load(),
		used: make([]nvtopo.Mask, len(n.Accels)), counted: make([]int, len(n.Accels)), foreign: make([]bool, len(n.Accels)),
		numa: slices.Clone(n.idle.numa),
	}
	c.u = u
	for _, pi := range here {
		c.addPod(pi)
	}
	if len(x.claims) > 0 || len(n.allocations) > 0 {
		var listed []fwk.PodInfo
		if info, err := snapshot.Get(n.Name); err == nil {
			listed = info.GetPods()
		}
		c.addUnlisted(here, listed)
	}
	c.settle()
	return u
}

// addUnlisted charges the claims and records of pods that are not on the node, and
// were not taken out of here by a dry run.
func (c *charging) addUnlisted(here, listed []fwk.PodInfo) {
	u, n := c.u, c.u.node
	gone := func(uid types.UID) bool {
		is := func(pi fwk.PodInfo) bool { return pi.GetPod().UID == uid }
		return !slices.ContainsFunc(here, is) && !slices.ContainsFunc(listed, is)
	}
	for _, cl := range c.x.claims {
		if cl.uid != c.retried && gone(cl.uid) {
			c.addClaim(cl)
		}
	}
	u.agentLived = n.enforced(c.s.clock.Now())
	for uid, recs := range n.allocations {
		if !gone(uid) {
			c.victim(uid, recs, here)
			continue
		}
		u.leftovers = true
		if c.forgiven != nil && c.forgiven(uid) {
			continue
		}
		if u.agentLived { // a dead one would keep them used for ever
			u.addRecorded(recs)
		}
	}
}

// emptyUsage is the node with nothing running on it.
func emptyUsage(n *Node) *Usage {
	u := &Usage{
		node: n, used: make([]nvtopo.Mask, len(n.Accels)), counted: make([]int, len(n.Accels)),
		foreign: make([]bool, len(n.Accels)), numa: n.capacity,
	}
	if n.kubelet != nil {
		u.hold(n.kubelet.empty)
	}
	return u
}

// idleUsage is the node with nothing on it but what kubelet's own account says.
func idleUsage(n *Node) *Usage {
	u := emptyUsage(n)
	if n.kubelet != nil {
		u.numa = n.kubelet.left(n)
		u.hold(n.kubelet.account)
	}
	return u
}

// hold makes a state that of the node, with the GPUs that are free here.
func (u *Usage) hold(state admission.State) {
	for i := range u.node.Accels {
		state.Free[i] = u.free(i)
	}
	u.held = &state
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
