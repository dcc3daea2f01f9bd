// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

const (
	// plainSample is how many nodes without accelerators are listed for a pod that needs none:
	// kube-scheduler's own sample has at least 100.
	plainSample = 128
	// maxChecks bounds the nodes checked one by one for one pod; a pod that needs more checks is scheduled
	// without a list.
	maxChecks = 8192
	// maxTolerance is greater than any difference of two scores.
	maxTolerance = 101
)

// finder makes one pod's list. Its passes hold Index.mu.
type finder struct {
	Query
	rules   Rules
	wide    bool             // list all nodes that the score may choose from
	start   int              // position at which a list of plain nodes begins
	kept    map[int]struct{} // nodes that the queue keeps for other pods
	now     time.Time        // time of this pass
	checks  int              // nodes checked in this pass
	asked   []int            // nodes that this pass assumed to have no nominated pods
	ratedBy nodeindex.Best   // the best offer, which scores are relative to, once there is a list
}

// find makes the list once, without the nodes known to be kept for other pods.
func (f *finder) find(x *Index) sets.Set[string] {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.same(f.Nodes) {
		return nil // another cycle began meanwhile
	}
	f.now, f.ratedBy, f.checks, f.asked = x.clock.Now(), nodeindex.Best{}, 0, f.asked[:0]
	if f.Again != "" && f.admitsAgain(x) {
		return sets.New(f.Again)
	}
	switch {
	case !f.HasGPUs():
		return f.plain(x)
	case f.Hardware != nil || f.NeedsNUMAFit() || len(f.Resources) > 1 || f.Admission.Pinned() && x.pinning > 0:
		return f.bestByNode(x)
	default:
		return f.best(x)
	}
}

// admitsAgain reports whether the node where the pod may take its allocation with unknown outcome again
// is worth listing.
func (f *finder) admitsAgain(x *Index) bool {
	i := slices.IndexFunc(f.Nodes, func(info fwk.NodeInfo) bool { return info.Node().Name == f.Again })
	return i >= 0 && f.mayTake(x, i)
}

// admits reports whether a node is worth listing: it may take the pod, and its kubelet does not
// repeatedly refuse pods.
func (f *finder) admits(x *Index, i int) bool {
	return f.mayTake(x, i) && (f.Refuses == nil || !f.Refuses(f.Nodes[i].Node().Name))
}

// mayTake reports whether a node's graph is valid, and no rule that is cheap to check keeps the pod away.
func (f *finder) mayTake(x *Index, i int) bool {
	if f.checks++; f.checks > maxChecks {
		return false
	}
	e := &x.entries[i]
	n := e.topology
	return n != nil && placement.CheckNode(f.Demand, n, e.of.source.CheckExporter(n, f.now), f.now) == placement.Fits && f.fits(i)
}

// fits reports whether a node has room for the pod, admits it and is not kept for other pods.
func (f *finder) fits(i int) bool {
	info := f.Nodes[i]
	return f.rules.Admit(info.Node(), info.GetAllocatable(), info.GetRequested(), len(info.GetPods())) && !f.keptForOthers(i)
}

// demand returns the pod's demand on one machine.
func (f *finder) demand() nodeindex.Demand {
	r := f.Request
	d := nodeindex.Demand{GPUs: r.Resources[0].Count, Bytes: r.MessageBytes, Constraint: r.Constraint, KnownOnly: r.LinkSensitive()}
	if r.Picky() {
		d.Suitable = r.Suitable
	}
	return d
}

// best lists the best of the nodes that the pod may use.
func (f *finder) best(x *Index) sets.Set[string] {
	machines := x.byName[f.Request.Resources[0].Name]
	if machines == nil {
		return nil
	}
	demand := f.demand()
	x.found = machines.Candidates(&demand, x.found[:0])
	usable := f.usable(x)
	if f.checks > maxChecks || len(usable) == 0 {
		return nil
	}
	return f.list(x, machines, &demand, usable)
}

// usable returns the candidates that have a node which the pod may use: scores are relative to the best
// candidate, so others must not take part. Kubelet's admission of a set can give worse results than the
// index knows.
func (f *finder) usable(x *Index) []nodeindex.Candidate {
	out := x.usable[:0]
	for _, c := range x.found {
		i, ok := f.admitted(x, c.Bucket)
		if !ok {
			continue
		}
		c.Node = i
		if e := &x.entries[i]; e.topology.Kubelet != nil {
			// The usage of any node of the bucket gives the same result.
			o, ok := placement.Rate(e.of.source.Usage(e.topology, f.Nodes[i], f.Snapshot), f.Request)
			if !ok {
				continue
			}
			c.Offer = &o
		}
		out = append(out, c)
	}
	x.usable = out
	return out
}

// admitted returns a node of the bucket that is worth listing.
func (f *finder) admitted(x *Index, b *nodeindex.Bucket) (node int, ok bool) {
	for i := range b.Nodes() {
		if f.admits(x, i) {
			return i, true
		}
	}
	return 0, false
}

// list lists nodes, from the best candidates on.
func (f *finder) list(x *Index, machines *nodeindex.Index, d *nodeindex.Demand, cs []nodeindex.Candidate) sets.Set[string] {
	limit, tolerance := f.Narrowing.Limit, f.Narrowing.Tolerance
	if f.wide {
		limit, tolerance = len(f.Nodes), maxTolerance
	}
	cs, f.ratedBy = machines.Top(cs, d, &f.Narrowing.Order, tolerance)
	names := make(sets.Set[string], min(limit, cs[0].Bucket.Len()))
	for tied := range machines.InOrder(cs) {
		for i := range tied.Nodes() {
			if len(names) == limit {
				return names
			}
			if f.admits(x, i) {
				names.Insert(f.Nodes[i].Node().Name)
			}
		}
		if len(names) > 0 && tolerance == 0 {
			break // the others are equal, except for the spare capacity of their leaves
		}
	}
	if f.checks > maxChecks {
		return nil
	}
	return names
}

// bestByNode is best for pods whose place depends on more than the buckets distinguish: CPUs and memory
// beside the GPUs, exclusive ones where kubelet assigns such, other accelerators, or labels of hardware.
// It rates every node.
func (f *finder) bestByNode(x *Index) sets.Set[string] {
	type rated struct {
		node  int
		offer nodeindex.Offer
		raw   int64
		spare nodeindex.Spare
	}
	machines := x.of(f.Request.Resources[0].Name)
	order, demand := &f.Narrowing.Order, f.demand()
	best := nodeindex.NoBest(nodeindex.TermsOf(&demand, order, machines.Reserved(demand.GPUs, order.Headroom)))
	var all []rated
	for i := range x.entries {
		if !f.admits(x, i) {
			continue
		}
		o, ok := placement.Rate(x.entries[i].of.source.Usage(x.entries[i].topology, f.Nodes[i], f.Snapshot), f.Request)
		if !ok {
			continue
		}
		o.Preference = f.Prefers(f.Nodes[i].Node())
		best.Lead(&o, i)
		all = append(all, rated{node: i, offer: o, spare: machines.Spare(i)})
	}
	if f.checks > maxChecks {
		return nil
	}
	all = slices.DeleteFunc(all, func(r rated) bool { return !best.Among(&r.offer) })
	for i := range all {
		best.Add(&all[i].offer)
	}
	f.ratedBy = best
	for i := range all {
		all[i].raw = order.Weights.Raw(&all[i].offer, &best)
	}
	slices.SortStableFunc(all, func(a, b rated) int { return cmp.Or(cmp.Compare(b.raw, a.raw), cmp.Compare(a.spare, b.spare)) })
	names := sets.Set[string]{}
	for _, r := range all {
		if !f.wide && (len(names) == f.Narrowing.Limit || r.raw < all[0].raw-int64(f.Narrowing.Tolerance*nodeindex.Point) ||
			f.Narrowing.Tolerance == 0 && r.spare > all[0].spare) {
			break
		}
		names.Insert(f.Nodes[r.node].Node().Name)
	}
	return names
}

// plain lists nodes without accelerators, beginning where the last pod's list ended, so that each is used
// in turn.
func (f *finder) plain(x *Index) sets.Set[string] {
	if x.plain == 0 || x.plain == len(f.Nodes) {
		return nil
	}
	limit := plainSample
	if f.wide {
		limit = len(f.Nodes)
	}
	names := make(sets.Set[string], min(limit, x.plain))
	n := len(f.Nodes)
	for step := range n {
		i := (f.start + step) % n
		if x.entries[i].plain && f.fits(i) {
			names.Insert(f.Nodes[i].Node().Name)
			if len(names) == limit {
				x.next = (i + 1) % n
				break
			}
		}
	}
	return names
}
