// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// node is one node and everything on it.
type node struct {
	object *v1.Node
	graph  *usage.Node      // nil: there is none, or it cannot be read
	counts placement.Reason // Fits: the graph counts
	fault  error            // why it cannot be read
	// listed are the live pods on the node, and here those that are left in a thought.
	listed, here usage.LivePods

	used *usage.Usage // of graph and here; nil until somebody asks
}

// without is the node without some pods: itself if none of them is on it.
func (n *node) without(gone map[types.UID]bool) *node {
	if !slices.ContainsFunc(n.here, func(p usage.LivePod) bool { return gone[p.Object.UID] }) {
		return n
	}
	out := *n
	out.here = slices.DeleteFunc(slices.Clone(n.here), func(p usage.LivePod) bool { return gone[p.Object.UID] })
	out.used = nil
	return &out
}

// emptied is the node with nothing on it but the pods of DaemonSets.
func (n *node) emptied() *node {
	out := *n
	out.here = slices.DeleteFunc(slices.Clone(n.here), func(p usage.LivePod) bool { return !belongsHere(p.Object) })
	out.listed, out.used = out.here, nil
	if n.graph != nil {
		out.graph = n.graph.Emptied()
	}
	return &out
}

// belongsHere reports whether a pod is part of its node: static, or of a DaemonSet.
func belongsHere(p *v1.Pod) bool {
	if _, mirror := p.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	o := metav1.GetControllerOf(p)
	return o != nil && o.Kind == "DaemonSet"
}

func (n *node) usage(now time.Time) *usage.Usage { return n.beside(now, nil) }

// beside is the usage once some more is given.
func (n *node) beside(now time.Time, given []usage.Reservation) *usage.Usage {
	if len(given) == 0 && n.used != nil {
		return n.used
	}
	u := usage.Compute(&usage.Input{
		Node: n.graph, Now: now, Pods: n.here, Listed: n.listed, Reservations: given, Reader: usage.AnnotationReader{},
		Allocatable: n.allocatable(),
	})
	if len(given) == 0 {
		n.used = u
	}
	return u
}

// allocatable is what the node's kubelet offers.
func (n *node) allocatable() *usage.Amounts { return new(usage.AmountsOf(n.object.Status.Allocatable)) }

// room is what is left of all that the scheduler counts.
func (n *node) room() placement.Room {
	allocatable := n.allocatable()
	room := placement.NewRoom(allocatable, allocatable.Pods())
	for i := range n.here {
		room.TakeAll(n.here[i].Amounts(), 1)
	}
	return room
}

// free is how many devices of a resource nobody has.
func (n *node) free(now time.Time, resource string) int {
	if n.graph != nil {
		if u := n.usage(now); u.AccelIndex(resource) >= 0 {
			i := u.AccelIndex(resource)
			return max(0, u.FreeAt(i).Len()-u.Counted[i])
		}
	}
	left := n.object.Status.Allocatable[v1.ResourceName(resource)]
	total := left.Value()
	for i := range n.here {
		total -= n.here[i].Amounts().GetScalarResources()[v1.ResourceName(resource)]
	}
	return int(max(0, total))
}

// offers is how many devices of a resource the node has for pods.
func (n *node) offers(resource string) int {
	q := n.object.Status.Allocatable[v1.ResourceName(resource)]
	return int(q.Value())
}

// obstacles are all that keeps the pod off the node, none if the node takes it.
func (n *node) obstacles(q *question, now time.Time) (out []Obstacle) {
	if why, taint := q.shape.Eligible.Judge(n.object); why != placement.Eligible {
		out = append(out, ineligible(q, n.object, why, taint))
	}
	out = append(out, n.shortages(q, now)...)
	if !q.demand.Placed() {
		return out
	}
	var u *usage.Usage
	if n.graph != nil {
		u = n.usage(now)
	}
	basis := q.demand.Basis(n.graph, n.counts)
	placement.Reasons(u, q.demand, basis, n.counts, now, func(reason placement.Reason) bool {
		switch {
		case reason == n.counts:
			out = append(out, refused(q, reason, n.why()))
		case reason == placement.NotEnforced, basis == placement.ByCount:
			out = add(out, refused(q, reason, ""))
		default:
			out = n.byGraph(q, reason, now, out)
		}
		return true
	})
	return out
}

// byGraph adds what keeps the pod off the node by its graph. That there are too few GPUs may be there by
// number.
func (n *node) byGraph(q *question, reason placement.Reason, now time.Time, out []Obstacle) []Obstacle {
	o := refused(q, reason, n.detail(q, now))
	if reason == placement.LowBandwidth {
		o.Detail += n.fastest(q, now)
	}
	if reason == placement.FewGPUs && !tooFew(out) && n.wholeOnly(q) != "" {
		o.Cause, o.Text = WholeGPUsOnly, "fewer whole GPUs than asked: the others are partitioned or shared"
	}
	return add(out, o)
}

// fastest says how fast the best free ring is of as many devices as are asked, and how fast it has to be.
func (n *node) fastest(q *question, now time.Time) string {
	less := *q.demand.Request
	less.Constraint.MinBandwidth = 0
	a, reason := placement.Choose(n.usage(now), &less, false)
	if reason != placement.Fits {
		return ""
	}
	set := n.describe(a, q.resource())
	if set == nil {
		return ""
	}
	return fmt.Sprintf("; asks %s GB/s, the best free ring of %d has %s",
		plain(nvtopo.GBps(q.demand.Constraint.MinBandwidth)), len(set.Ring), plain(set.BandwidthGBps))
}

// plain writes a number as people do, without an exponent.
func plain(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// tooFew reports whether there are too few devices by number.
func tooFew(out []Obstacle) bool {
	return slices.ContainsFunc(out, func(o Obstacle) bool { return o.Cause == FewGPUs || o.Cause == LostGPUs })
}

// why says more about a graph that does not count.
func (n *node) why() string {
	switch {
	case n.fault != nil:
		return n.fault.Error()
	case n.counts == placement.StaleGraph && n.graph.Exporter.Until() != nil:
		return "Lease " + nodelease.ExporterPrefix + n.object.Name + " ran out at " + n.graph.Exporter.Until().Format(time.RFC3339)
	case n.counts == placement.StaleGraph:
		return "there is no Lease " + nodelease.ExporterPrefix + n.object.Name
	}
	return ""
}

// add takes an obstacle that is not there yet: too few devices are seen by count and by graph.
func add(out []Obstacle, o Obstacle) []Obstacle {
	if slices.ContainsFunc(out, func(have Obstacle) bool { return have.Cause == o.Cause }) || o.Cause == FewGPUs && tooFew(out) {
		return out
	}
	return append(out, o)
}

// shortages are the resources of which there is too little by the scheduler's count.
func (n *node) shortages(q *question, now time.Time) (out []Obstacle) {
	room := n.room()
	lacks := room.Lacks(q.demand.Request)
	// Devices first: they are what people ask about.
	slices.SortStableFunc(lacks, func(a, b placement.Shortage) int {
		return cmp.Compare(rank(q, a.Resource), rank(q, b.Resource))
	})
	for _, l := range lacks {
		o := Obstacle{Cause: CauseOf(l.Resource), Text: "less " + string(l.Resource) + " than the pod asks", kind: ofPods}
		o.Detail = fmt.Sprintf("asks %s, %s left", amount(l.Resource, l.Asks), amount(l.Resource, max(0, l.Left)))
		if string(l.Resource) == q.resource() {
			o.Cause, o.Text, o.Detail = FewGPUs, placement.FewGPUs.String(), n.detail(q, now)
			if n.lostWouldDo(q, now) {
				o.Cause, o.Text = LostGPUs, "pods hold GPUs that are lost, and they still count as given"
			}
		}
		out = append(out, o)
	}
	return out
}

func rank(q *question, name v1.ResourceName) int {
	if string(name) == q.resource() {
		return 0
	}
	return 1
}

// detail says what is free on the node.
func (n *node) detail(q *question, now time.Time) string {
	if !q.demand.HasGPUs() {
		return ""
	}
	text := fmt.Sprintf("asks %d, %d of %d free", q.demand.Resources[0].Count, n.free(now, q.resource()), n.offers(q.resource()))
	if n.graph != nil && n.counts != placement.Fits && !q.demand.CountStale {
		text = fmt.Sprintf("asks %d, none of %d counts as free without a graph that counts", q.demand.Resources[0].Count, n.offers(q.resource()))
	}
	if lost := n.losers(q); len(lost) > 0 {
		text += "; " + strings.Join(lost[:min(len(lost), maxNamed)], "; ")
	}
	if whole := n.wholeOnly(q); whole != "" {
		text += "; " + whole
	}
	return text
}

// lostBy are the GPUs that a pod of the node holds and that are lost, of the resource that is asked.
func (n *node) lostBy(q *question, p usage.LivePod) (lost usage.Lost) {
	if i := n.accelOf(q); i >= 0 {
		lost = n.graph.LostBy(i, p, usage.AnnotationReader{})
	}
	return lost
}

// losers say which pods hold lost GPUs.
func (n *node) losers(q *question) (out []string) {
	for _, p := range n.here {
		if lost := n.lostBy(q, p); lost.Len() > 0 {
			out = append(out, p.Object.Namespace+"/"+p.Object.Name+" "+lost.String())
		}
	}
	return out
}

// lostWouldDo reports whether the graph has enough GPUs free, and by number they are not only because
// pods hold lost ones.
func (n *node) lostWouldDo(q *question, now time.Time) bool {
	i := n.accelOf(q)
	if i < 0 {
		return false
	}
	u := n.usage(now)
	return u.FreeAt(i).Len()-u.Counted[i]+u.Withheld[i] >= q.demand.Resources[0].Count && len(n.losers(q)) > 0
}

// wholeOnly says why kubelet offers devices of the resource that is asked that no pod is given.
func (n *node) wholeOnly(q *question) string {
	if i := n.accelOf(q); i >= 0 {
		return n.graph.WholeOnly(i, n.allocatable())
	}
	return ""
}

// accelOf is the position of the resource that is asked in the node's graph, -1 if it has none.
func (n *node) accelOf(q *question) int {
	if n.graph == nil || !q.demand.HasGPUs() {
		return -1
	}
	return slices.IndexFunc(n.graph.Accels, func(a *usage.Accel) bool { return a.Resource == q.resource() })
}

// set is what the node would give the pod, nil if nothing is chosen there.
func (n *node) set(q *question, now time.Time) *Set {
	if n.graph == nil || n.counts != placement.Fits || !q.demand.HasGPUs() {
		return nil
	}
	a, reason := placement.Choose(n.usage(now), q.demand.Request, q.demand.WantCPUs)
	if reason != placement.Fits {
		return nil
	}
	return n.describe(a, q.resource())
}

// describe is an allocation's GPUs of one resource, by the graph of now; nil if it has none.
func (n *node) describe(a *allocation.Allocation, resource string) *Set {
	if n.graph == nil {
		return nil
	}
	accel := n.graph.Accel(resource)
	if accel == nil {
		return nil
	}
	m := a.Mask(resource, accel.Graph)
	if m == 0 {
		return nil
	}
	out := &Set{Ring: []int{}, NUMANodes: a.NUMANodes}
	for _, p := range accel.Tables.RingOrder(m) {
		out.Ring = append(out.Ring, accel.Graph.GPUs[p].Index)
	}
	if k := m.Len(); k > 1 {
		out.LinkClass, out.BandwidthGBps = accel.Tables.RingClass(m).String(), nvtopo.GBps(accel.Tables.Ring(m))
		out.BestGBps, out.Band = nvtopo.GBps(accel.Tables.Best(k)), nodeindex.BandOf(accel.Tables, m)
	}
	return out
}

// betterThan compares what two nodes would give: the faster ring, and of equally fast ones that of the
// better band.
func (s *Set) betterThan(o *Set) bool {
	switch {
	case o == nil:
		return s != nil
	case s == nil:
		return false
	}
	return cmp.Or(cmp.Compare(o.BandwidthGBps, s.BandwidthGBps), cmp.Compare(s.Band, o.Band)) < 0
}
