// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// sight is what the informers' stores show of one node. Unlike a cycle's snapshot they
// may be read at any time.
type sight interface {
	node(name string) *v1.Node // nil: there is none
	podsOn(node string) []*v1.Pod
}

// podsByNode is the name of the pod informer's index for it.
const podsByNode = "nvtopo-node"

type informerSight struct {
	nodes corelisters.NodeLister
	pods  cache.Indexer
}

func (i informerSight) node(name string) *v1.Node {
	node, err := i.nodes.Get(name)
	if err != nil {
		return nil
	}
	return node
}

func (i informerSight) podsOn(node string) []*v1.Pod {
	objs, err := i.pods.ByIndex(podsByNode, node)
	if err != nil {
		return nil // the index is not there, which Connect would have said
	}
	out := make([]*v1.Pod, 0, len(objs))
	for _, obj := range objs {
		if pod, ok := obj.(*v1.Pod); ok {
			out = append(out, pod)
		}
	}
	return out
}

// nodeOfPod is what that index is by.
func nodeOfPod(obj any) ([]string, error) {
	if pod, ok := obj.(*v1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

// noSight is a cluster without nodes, before the informers are connected.
type noSight struct{}

func (noSight) node(string) *v1.Node    { return nil }
func (noSight) podsOn(string) []*v1.Pod { return nil }

// oneNode is a lister of one node.
type oneNode struct {
	fwk.NodeInfoLister
	info fwk.NodeInfo
}

func (o oneNode) Get(string) (fwk.NodeInfo, error) { return o.info, nil }

// glance is one node as the informers, the reservations and the plans for woken pods have it
// now. It is immutable. The scheduler's cache may be a moment behind it or ahead, so
// what it says wakes pods and decides nothing: Filter judges.
type glance struct {
	cell      *cell
	node      *v1.Node
	topology  *usage.Node      // nil without a graph
	freshness placement.Reason // of the graph
	enforced  bool
	usage     *usage.Usage // nil without a graph

	allocatable, requested fwk.Resource
	pods                   int         // with those that are planned
	tenants                []types.UID // in order: pods, and who has a reservation
	nominated              []fwk.PodInfo
	nominatedReservations  []*nominatedReservation
	// grew is when there was last more for anybody than before, as far as is known.
	grew time.Time
}

// plan is what a woken pod is expected to take.
type plan struct {
	pod     *v1.Pod
	request *podrequest.Request
	alloc   *allocation.Allocation // nil where only a number is known
}

// glance looks at a node; nil if there is none. Pods that are nominated for the node
// count if also says so, and what own has in doubt does not: that pod may take it again.
func (s *State) glance(x *cell, plans []*plan, also func(*v1.Pod) bool, own types.UID) *glance {
	node := s.sight.node(x.name)
	if node == nil {
		return nil
	}
	nominated := s.nominated(x.name) // before any lock of ours: the queue has its own
	pods := s.sight.podsOn(x.name)
	info := framework.NewNodeInfo(pods...)
	info.SetNode(node)
	n := x.topology.Node()
	g := &glance{
		cell: x, node: node, topology: n, freshness: s.topologies.Freshness(x.topology, n, node.UID), enforced: n != nil && n.Enforced(s.clock.Now()),
		allocatable: info.GetAllocatable(), requested: info.GetRequested(), nominated: nominated,
	}
	for _, pi := range nominated {
		if also(pi.GetPod()) {
			info.AddPodInfo(pi)
		}
	}
	for _, p := range plans {
		info.AddPod(p.pod)
	}
	g.pods = len(info.GetPods())
	for _, pi := range info.GetPods() {
		g.tenants = append(g.tenants, pi.GetPod().UID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g.nominatedReservations = slices.Clone(x.nominatedReservations)
	now := cell{name: x.name, nominatedReservations: g.nominatedReservations}
	for _, c := range x.reservations {
		if c.phase != void && (c.uid != own || c.phase != doubtful) { // nothing here can be older than what ended it
			now.reservations = append(now.reservations, c)
			g.tenants = append(g.tenants, c.uid)
		}
	}
	slices.Sort(g.tenants)
	if n == nil {
		return g
	}
	for _, p := range plans {
		if p.alloc != nil {
			now.reservations = append(now.reservations, &reservation{uid: p.pod.UID, node: x.name, alloc: p.alloc, request: p.request})
		}
	}
	g.usage = s.computeUsage(&now, n, info.GetGeneration(), info.GetPods(), oneNode{info: info})
	return g
}

// outgrows reports whether the node may now take a pod that it did not take before.
func (g *glance) outgrows(old *glance) bool {
	if g.topology != old.topology || g.freshness != old.freshness || g.enforced != old.enforced || !sameRules(g.node, old.node) {
		return true
	}
	if slices.ContainsFunc(old.nominatedReservations, func(h *nominatedReservation) bool { return !slices.Contains(g.nominatedReservations, h) }) {
		return true
	}
	if !subset(old.tenants, g.tenants) || !slices.EqualFunc(g.nominated, old.nominated, samePod) {
		return true
	}
	return g.roomier(old) || g.usage != nil && g.usage.Freer(old.usage)
}

// subset reports whether all of a, which is in order, is in b, which is too.
func subset(a, b []types.UID) bool {
	for _, uid := range a {
		if _, ok := slices.BinarySearch(b, uid); !ok {
			return false
		}
	}
	return true
}

func samePod(a, b fwk.PodInfo) bool { return a.GetPod().UID == b.GetPod().UID }

// sameRules reports whether a node keeps the same pods off as before.
func sameRules(a, b *v1.Node) bool {
	if a == b {
		return true
	}
	sameTaint := func(x, y v1.Taint) bool { return x.Key == y.Key && x.Value == y.Value && x.Effect == y.Effect }
	return a.UID == b.UID && a.Spec.Unschedulable == b.Spec.Unschedulable && slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, sameTaint) &&
		equalLabels(a.Labels, b.Labels)
}

func equalLabels(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// roomier reports whether more is left of what pods request.
func (g *glance) roomier(old *glance) bool {
	left := func(g *glance) [4]int64 {
		have, used := g.allocatable, g.requested
		return [...]int64{
			have.GetMilliCPU() - used.GetMilliCPU(), have.GetMemory() - used.GetMemory(),
			have.GetEphemeralStorage() - used.GetEphemeralStorage(), int64(have.GetAllowedPodNumber() - g.pods),
		}
	}
	now, before := left(g), left(old)
	for i := range now {
		if now[i] > before[i] {
			return true
		}
	}
	for name, n := range g.allocatable.GetScalarResources() {
		if n-g.requested.GetScalarResources()[name] > old.allocatable.GetScalarResources()[name]-old.requested.GetScalarResources()[name] {
			return true
		}
	}
	return false
}

// full reports whether the node has no device left for anybody. One whose graph does not
// count is not known to be.
func (g *glance) full() bool {
	if g.usage == nil || g.freshness != placement.Fits {
		return false
	}
	for i := range g.usage.Node.Accels {
		if g.usage.FreeAt(i).Len() > g.usage.Counted[i] {
			return false
		}
	}
	return len(g.usage.Node.Accels) > 0
}

// admits reports whether nothing but devices keeps the pod off the node, as far as we can
// tell: taints, labels and what it requests.
func (g *glance) admits(r *candidates.Rules) bool {
	return r.Admit(g.node, g.allocatable, g.requested, g.pods)
}

// offers reports whether the node has devices for the pod.
func (s *State) offers(g *glance, d *Demand) bool {
	switch d.Basis(g.topology, s.topologies.Freshness(g.cell.topology, g.topology, g.node.UID)) {
	case placement.ByGraph:
		return s.enforcement(d, g.topology) == placement.Fits && placement.Check(g.usage, d.Request) == placement.Fits
	case placement.ByCount:
		return placement.CheckCount(g.usage, d, s.clock.Now()) == placement.Fits
	case placement.Unchecked:
		return true
	case placement.Refused:
	}
	return false
}

// yieldsTo reports whether a pod that is nominated for a node comes before one of this demand.
func yieldsTo(d *Demand, pod *v1.Pod) bool {
	return pod.UID != d.UID && corev1.PodPriority(pod) >= d.Priority
}
