// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/cluster"
)

const (
	// plainSample is how many nodes without accelerators are listed for a pod that
	// needs none: kube-scheduler's own sample has at least 100.
	plainSample = 128
	// maxChecks bounds the nodes looked at one by one for one pod; who needs more
	// is scheduled without a list.
	maxChecks = 8192
	// maxTolerance is more than two scores can differ.
	maxTolerance = 101
	// plainRefresh is how old the index may be for pods that need no accelerator.
	plainRefresh = time.Second
)

// Narrowing is how a profile wants the nodes of a cycle narrowed.
type Narrowing struct {
	Limit     int     // most nodes to list; 0: never narrow
	Tolerance float64 // points below the best score that are still listed
	Weights   cluster.Weights
	KeepOff   bool // pods without accelerators are kept off nodes that have some
}

// Candidates lists the nodes that the pod does best on, or nil where the list
// would be empty or the pod is not to be narrowed: nominated, pinned by name, or
// marked by Widen. Pods with wishes that the index cannot see get the whole band.
func (s *State) Candidates(d *Demand, pod *v1.Pod, how *Narrowing, h fwk.Handle, nodes []fwk.NodeInfo) sets.Set[string] {
	x := s.index
	x.mu.Lock()
	defer x.mu.Unlock()
	now := s.clock.Now()
	if !d.HasGPUs() && (!how.KeepOff || x.oneSort(nodes) && now.Sub(x.looked) < plainRefresh) {
		return nil
	}
	x.refresh(s, nodes, h.SnapshotSharedLister().NodeInfos()) // SignPod needs it too
	if how.Limit == 0 || nodeKnown(pod) || s.widened.begin(pod.UID) {
		return nil
	}
	l := &lister{
		s: s, d: d, pod: pod, how: how, handle: h, nodes: nodes, now: now,
		wide: hasWishes(pod), required: nodeaffinity.GetRequiredNodeAffinity(pod),
		selects: pod.Spec.NodeSelector != nil || requiredAffinity(pod) != nil,
	}
	var names sets.Set[string]
	switch {
	case !d.HasGPUs():
		names = l.plain(x)
	case d.needsNUMAFit() || len(d.Resources) > 1:
		names = l.bestByNode(x)
	default:
		names = l.best(x)
	}
	if len(names) == 0 {
		return nil
	}
	s.listed.Add(1)
	return names
}

// lister makes one pod's list.
type lister struct {
	s        *State
	d        *Demand
	pod      *v1.Pod
	how      *Narrowing
	handle   fwk.Handle
	nodes    []fwk.NodeInfo
	now      time.Time
	wide     bool // list the whole band
	selects  bool // the pod names labels of nodes
	required nodeaffinity.RequiredNodeAffinity
	checks   int
}

// best lists the best nodes of the best band that has any.
func (l *lister) best(x *index) sets.Set[string] {
	machines := x.byName[l.d.Resources[0].Name]
	if machines == nil {
		return nil
	}
	r := l.d.Request
	demand := cluster.Demand{GPUs: r.Resources[0].Count, Constraint: r.Constraint, KnownOnly: r.linkSensitive()}
	if r.picky() {
		demand.Suitable = r.suitable
	}
	for band := cluster.BandBest; band < cluster.Bands; band++ {
		x.found = machines.Candidates(&demand, band, x.found[:0])
		if len(x.found) == 0 {
			return nil
		}
		band = x.found[0].Offer.Band
		// Scores are relative to the best candidate, so who has no node that the pod
		// may use must not take part.
		usable := slices.DeleteFunc(x.found, func(c cluster.Candidate) bool {
			return !slices.ContainsFunc(c.Bucket.Nodes(), func(i int) bool { return l.admits(x, i) })
		})
		if l.checks > maxChecks {
			return nil
		}
		if len(usable) > 0 {
			return l.list(x, usable)
		}
	}
	return nil
}

// list takes nodes from the best candidates on.
func (l *lister) list(x *index, cs []cluster.Candidate) sets.Set[string] {
	limit, tolerance := l.how.Limit, l.how.Tolerance
	if l.wide {
		limit, tolerance = len(l.nodes), maxTolerance
	}
	cs = cluster.Top(cs, &l.how.Weights, tolerance)
	names := make(sets.Set[string], min(limit, len(cs[0].Bucket.Nodes())))
	for _, c := range cs {
		for _, i := range c.Bucket.Nodes() {
			if len(names) == limit {
				return names
			}
			if l.admits(x, i) {
				names.Insert(l.nodes[i].Node().Name)
			}
		}
	}
	if l.checks > maxChecks {
		return nil
	}
	return names
}

// bestByNode is best for pods whose place depends on more than buckets are made of,
// CPUs and memory beside the GPUs or other accelerators: every node is rated.
func (l *lister) bestByNode(x *index) sets.Set[string] {
	type rated struct {
		node  int
		offer cluster.Offer
		raw   int64
	}
	var all []rated
	band, best := cluster.Bands, cluster.NoBest()
	snapshot := l.handle.SnapshotSharedLister().NodeInfos()
	for i := range x.entries {
		if !l.admits(x, i) {
			continue
		}
		o, ok := l.s.usage(x.entries[i].cell, x.entries[i].node, l.nodes[i], snapshot).Rate(l.d.Request)
		if !ok || o.Band > band {
			continue
		}
		if o.Band < band {
			band, best, all = o.Band, cluster.NoBest(), all[:0]
		}
		best.Add(&o)
		all = append(all, rated{node: i, offer: o})
	}
	if l.checks > maxChecks {
		return nil
	}
	for i := range all {
		all[i].raw = l.how.Weights.Raw(&all[i].offer, &best)
	}
	slices.SortStableFunc(all, func(a, b rated) int { return cmp.Compare(b.raw, a.raw) })
	names := sets.Set[string]{}
	for _, r := range all {
		if !l.wide && (len(names) == l.how.Limit || r.raw < all[0].raw-int64(l.how.Tolerance*cluster.Point)) {
			break
		}
		names.Insert(l.nodes[r.node].Node().Name)
	}
	return names
}

// plain lists nodes without accelerators, beginning where the last pod's list
// ended, so that every one has its turn.
func (l *lister) plain(x *index) sets.Set[string] {
	if x.plain == 0 || x.plain == len(l.nodes) {
		return nil
	}
	limit := plainSample
	if l.wide {
		limit = len(l.nodes)
	}
	names := make(sets.Set[string], min(limit, x.plain))
	n := len(l.nodes)
	for step := range n {
		i := (x.next + step) % n
		if x.entries[i].plain && l.fits(l.nodes[i]) {
			names.Insert(l.nodes[i].Node().Name)
			if len(names) == limit {
				x.next = (i + 1) % n
				break
			}
		}
	}
	return names
}

// admits reports whether a node is worth listing: its graph counts, and nothing
// that is cheap to see keeps the pod away.
func (l *lister) admits(x *index, i int) bool {
	if l.checks++; l.checks > maxChecks {
		return false
	}
	n := x.entries[i].node
	if n == nil || !n.exporter.fresh(l.now) || l.s.enforcement(l.d, n) != Fits || !l.fits(l.nodes[i]) {
		return false
	}
	return true
}

// fits sees what keeps most pods off a node: cordons, taints, labels, too little of
// what the pod requests, and what was promised to others. Filter plugins have the
// last word.
func (l *lister) fits(info fwk.NodeInfo) bool {
	node := info.Node()
	return l.tolerates(node) && (!l.selects || l.selected(node)) && l.hasRoom(info) && !l.promised(node.Name)
}

func (l *lister) tolerates(node *v1.Node) bool {
	if node.Spec.Unschedulable {
		cordon := v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}
		if !corev1.TolerationsTolerateTaint(klog.Background(), l.pod.Spec.Tolerations, &cordon, true) {
			return false
		}
	}
	if len(node.Spec.Taints) == 0 {
		return true
	}
	_, bad := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, l.pod.Spec.Tolerations, helper.DoNotScheduleTaintsFilterFunc(), true)
	return !bad
}

func (l *lister) selected(node *v1.Node) bool {
	ok, err := l.required.Match(node)
	return ok && err == nil
}

func (l *lister) hasRoom(info fwk.NodeInfo) bool {
	have, used := info.GetAllocatable(), info.GetRequested()
	if have.GetMilliCPU()-used.GetMilliCPU() < l.d.MilliCPU || have.GetMemory()-used.GetMemory() < l.d.Memory ||
		have.GetAllowedPodNumber() <= len(info.GetPods()) {
		return false
	}
	if have.GetEphemeralStorage()-used.GetEphemeralStorage() < l.d.all.EphemeralStorage {
		return false
	}
	for name, n := range l.d.all.ScalarResources {
		if have.GetScalarResources()[name]-used.GetScalarResources()[name] < n {
			return false
		}
	}
	return true
}

// promised reports whether a pod of at least this priority is nominated for the node.
func (l *lister) promised(node string) bool {
	for _, p := range l.handle.NominatedPodsForNode(node) {
		if p.GetPod().UID != l.pod.UID && corev1.PodPriority(p.GetPod()) >= corev1.PodPriority(l.pod) {
			return true
		}
	}
	return false
}

// picky reports whether the pod asks for certain models or memory.
func (r *Request) picky() bool { return len(r.models) > 0 || r.minGPUMemory > 0 }

func requiredAffinity(pod *v1.Pod) *v1.NodeSelector {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// nodeKnown reports whether the pod's node is as good as known: it is nominated, or
// the pod names it, as those of a DaemonSet do.
func nodeKnown(pod *v1.Pod) bool {
	if pod.Status.NominatedNodeName != "" {
		return true
	}
	required := requiredAffinity(pod)
	return required != nil && slices.ContainsFunc(required.NodeSelectorTerms, func(t v1.NodeSelectorTerm) bool { return len(t.MatchFields) > 0 })
}

// hasWishes reports whether the pod's place depends on what the index does not
// know: other pods, volumes, claims, ports, or preferred labels.
func hasWishes(pod *v1.Pod) bool {
	spec := &pod.Spec
	if len(spec.TopologySpreadConstraints) > 0 || len(spec.ResourceClaims) > 0 {
		return true
	}
	if a := spec.Affinity; a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil ||
		a.NodeAffinity != nil && len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) > 0) {
		return true
	}
	if slices.ContainsFunc(spec.Volumes, func(v v1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }) {
		return true
	}
	hasHostPort := func(c v1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p v1.ContainerPort) bool { return p.HostPort > 0 })
	}
	return slices.ContainsFunc(spec.Containers, hasHostPort) || slices.ContainsFunc(spec.InitContainers, hasHostPort)
}

// HasBoth reports whether some nodes of the last cycle had accelerators and some
// had none.
func (s *State) HasBoth() bool {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	return s.index.plain > 0 && s.index.plain < len(s.index.entries)
}

// TakesWholeNodes reports whether the pod takes all devices of any node it could be
// placed on, so that no other place on the node is left to be rated.
func (s *State) TakesWholeNodes(r *Request) bool {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	for _, res := range r.Resources {
		machines := s.index.byName[res.Name]
		if machines == nil || machines.Largest() == 0 || res.Count < machines.Largest() {
			return false
		}
	}
	return r.HasGPUs()
}
