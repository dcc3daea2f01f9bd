// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/cluster"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
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
// Nodes with GPUs were rated by best, which those that are not listed count in, too.
//
// The scheduling queue answers under its own lock, so the index is not locked while it is
// asked. A pass lists nodes as if no pod were nominated for them, and notes which it took
// that for granted of. If the queue says otherwise of one, another pass leaves it out. A
// nomination that comes or goes after the question does no harm: the list is advice, Filter
// is given the nominated pods of the moment, and a list that is refused is taken back.
func (s *State) Candidates(d *Demand, pod *v1.Pod, how *Narrowing, h fwk.Handle, nodes []fwk.NodeInfo) (names sets.Set[string], best cluster.Best) {
	best = cluster.NoBest()
	x := s.index
	if !x.begin(s, d, how, h, nodes) || how.Limit == 0 || nodeKnown(pod) || s.widened.begin(pod.UID) {
		return nil, best
	}
	l := newLister(s, d, pod)
	l.how, l.handle, l.nodes, l.wide = how, h, nodes, hasWishes(pod)
	x.lend(l)
	for pass := 1; ; pass++ {
		names = l.find(x)
		if len(names) == 0 || !l.askQueue(pass == passesByList) {
			break
		}
	}
	x.takeBack(l)
	if len(names) == 0 {
		return nil, best
	}
	s.listed.Add(1)
	return names, l.ratedBy
}

// begin brings the index up to the cycle's snapshot where this pod needs it, and reports
// whether it does.
func (x *index) begin(s *State, d *Demand, how *Narrowing, h fwk.Handle, nodes []fwk.NodeInfo) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !d.HasGPUs() && (!how.KeepOff || x.oneSort(nodes) && s.clock.Now().Sub(x.looked) < plainRefresh) {
		return false
	}
	x.refresh(s, nodes, h.SnapshotSharedLister().NodeInfos()) // SignPod needs it too
	return true
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
	start    int              // where a list of plain nodes begins
	asked    []int            // nodes that this pass took for nobody's
	kept     map[int]struct{} // nodes that the queue keeps for other pods
	ratedBy  cluster.Best     // what scores are relative to, once there is a list
}

// find makes the list once, given which nodes are kept for other pods.
func (l *lister) find(x *index) sets.Set[string] {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.same(l.nodes) {
		return nil // another cycle began meanwhile
	}
	l.now, l.ratedBy, l.checks, l.asked = l.s.clock.Now(), cluster.NoBest(), 0, l.asked[:0]
	if name := l.tried(x); name != "" {
		return sets.New(name)
	}
	switch {
	case !l.d.HasGPUs():
		return l.plain(x)
	case l.d.NeedsNUMAFit() || len(l.d.Resources) > 1 || l.d.Admission.Pinned() && x.pinning > 0:
		return l.bestByNode(x)
	default:
		return l.best(x)
	}
}

// tried returns the node on which the pod may take a choice again that is in doubt; empty
// if there is none.
func (l *lister) tried(x *index) string {
	name := l.s.triedOn(l.pod.UID)
	if name == "" {
		return ""
	}
	i := slices.IndexFunc(l.nodes, func(info fwk.NodeInfo) bool { return info.Node().Name == name })
	if i < 0 || !l.admits(x, i) {
		return ""
	}
	e := &x.entries[i]
	if l.s.usageAgain(l.d, e.cell, e.node, l.nodes[i], l.handle.SnapshotSharedLister().NodeInfos()) == nil {
		return ""
	}
	return name
}

// newLister reads what of a pod decides where it may go at all.
func newLister(s *State, d *Demand, pod *v1.Pod) *lister {
	return &lister{
		s: s, d: d, pod: pod, required: nodeaffinity.GetRequiredNodeAffinity(pod),
		selects: pod.Spec.NodeSelector != nil || requiredAffinity(pod) != nil,
	}
}

// best lists the best nodes of the best band that has any.
func (l *lister) best(x *index) sets.Set[string] {
	machines := x.byName[l.d.Resources[0].Name]
	if machines == nil {
		return nil
	}
	r := l.d.Request
	demand := cluster.Demand{GPUs: r.Resources[0].Count, Constraint: r.Constraint, KnownOnly: r.LinkSensitive()}
	if r.Picky() {
		demand.Suitable = r.Suitable
	}
	x.later = x.later[:0]
	for band := cluster.BandBest; band < cluster.Bands; band++ {
		x.found = machines.Candidates(&demand, band, x.found[:0])
		if band = nextBand(x.found, x.later); band == cluster.Bands {
			return nil
		}
		usable := l.usable(x, band)
		if l.checks > maxChecks {
			return nil
		}
		if len(usable) > 0 {
			return l.list(x, usable)
		}
	}
	return nil
}

// nextBand is the best band of any candidate.
func nextBand(found, later []cluster.Candidate) int {
	band := cluster.Bands
	for _, cs := range [][]cluster.Candidate{found, later} {
		for i := range cs {
			band = min(band, cs[i].Offer.Band)
		}
	}
	return band
}

// usable returns the candidates of a band that have a node which the pod may use:
// scores are relative to the best candidate, so others must not take part. What
// kubelets make of a set can only be worse than what the index knows: buckets that
// fall into a later band for it are kept for that.
func (l *lister) usable(x *index, band int) []cluster.Candidate {
	out := x.usable[:0]
	for _, c := range x.found {
		if c.Offer.Band > band {
			break // all of them are of one band, and it is not its turn
		}
		i := slices.IndexFunc(c.Bucket.Nodes(), func(i int) bool { return l.admits(x, i) })
		if i < 0 {
			continue
		}
		e := &x.entries[c.Bucket.Nodes()[i]]
		if e.node.Kubelet == nil {
			out = append(out, c)
			continue
		}
		// What is on a node of the bucket decides alike on all of them.
		u := l.s.usage(e.cell, e.node, l.nodes[c.Bucket.Nodes()[i]], l.handle.SnapshotSharedLister().NodeInfos())
		o, ok := placement.Rate(u, l.d.Request)
		if !ok {
			continue
		}
		c.Offer = &o
		if o.Band > band {
			x.later = append(x.later, c)
		} else {
			out = append(out, c)
		}
	}
	x.later = slices.DeleteFunc(x.later, func(c cluster.Candidate) bool {
		if c.Offer.Band == band {
			out = append(out, c)
			return true
		}
		return false
	})
	x.usable = out
	return out
}

// list takes nodes from the best candidates on.
func (l *lister) list(x *index, cs []cluster.Candidate) sets.Set[string] {
	limit, tolerance := l.how.Limit, l.how.Tolerance
	if l.wide {
		limit, tolerance = len(l.nodes), maxTolerance
	}
	cs, l.ratedBy = cluster.Top(cs, &l.how.Weights, tolerance)
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
// CPUs and memory beside the GPUs, exclusive ones where kubelet gives such, or
// other accelerators: every node is rated.
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
		o, ok := placement.Rate(l.s.usage(x.entries[i].cell, x.entries[i].node, l.nodes[i], snapshot), l.d.Request)
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
	l.ratedBy = best
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
		i := (l.start + step) % n
		if x.entries[i].plain && l.fits(i) {
			names.Insert(l.nodes[i].Node().Name)
			if len(names) == limit {
				x.next = (i + 1) % n
				break
			}
		}
	}
	return names
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
func (s *State) TakesWholeNodes(r *podrequest.Request) bool {
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
