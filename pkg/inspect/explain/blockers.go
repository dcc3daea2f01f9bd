// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"

	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// maxTries bounds how often one node is asked for the fewest pods in the way.
const maxTries = 400

// candidates are the nearest nodes: those from which the fewest pods have to go, and then those
// that a change of another kind would open.
func (x *podAsk) candidates(all []judged) (out []Candidate) {
	order := slices.DeleteFunc(slices.Clone(all), func(j judged) bool {
		return len(j.obstacles) == 0 || j.first(never) != nil || slices.ContainsFunc(j.obstacles, func(o Obstacle) bool { return o.Cause == NotSelected })
	})
	slices.SortStableFunc(order, func(a, b judged) int {
		return cmp.Or(cmp.Compare(others(&a), others(&b)), cmp.Compare(b.free(x.now, x.q.resource()), a.free(x.now, x.q.resource())))
	})
	for i := range order[:min(len(order), maxSearched)] {
		j := &order[i]
		c := Candidate{Node: j.object.Name, Free: j.free(x.now, x.q.resource()), Obstacles: j.obstacles, Exact: true}
		if j.is(ofPods) {
			x.unblock(j.node, &c)
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b Candidate) int { return cmp.Compare(distance(&a), distance(&b)) })
	out = out[:min(len(out), maxCandidates)]
	for i := range out {
		x.relocate(&out[i])
	}
	return out
}

// others counts the obstacles that are none of pods.
func others(j *judged) (n int) {
	for i := range j.obstacles {
		if j.obstacles[i].kind != ofPods {
			n++
		}
	}
	return n
}

// distance is smaller for the nearer candidate.
func distance(c *Candidate) int {
	const far = 1 << 10
	switch {
	case len(c.Blockers) > 0:
		return len(c.Blockers)
	case !slices.ContainsFunc(c.Obstacles, func(o Obstacle) bool { return o.kind != ofFault || o.Cause == UnhealthyGPUs }):
		return 0
	case slices.ContainsFunc(c.Obstacles, func(o Obstacle) bool { return o.kind == ofWish }):
		return far + 1
	}
	return far
}

// unblock finds the fewest pods whose going lets the pod in, and what it would get then. Of as
// many it takes those that hold lost GPUs, then those that may be moved, and then those of the lowest
// priority.
func (x *podAsk) unblock(n *node, c *Candidate) {
	var inTheWay []usage.LivePod
	whole := map[types.UID]int{} // 0: it holds lost GPUs
	stay := map[types.UID]int{}  // 1: the pod is not to be moved
	for _, p := range n.here {
		if belongsHere(p.Object) || p.Object.UID == x.q.pod.UID {
			continue
		}
		inTheWay = append(inTheWay, p)
		if lost := n.lostBy(x.q, p); lost.Len() == 0 {
			whole[p.Object.UID] = 1
		}
		if x.unmovable(n, p) != "" {
			stay[p.Object.UID] = 1
		}
	}
	slices.SortStableFunc(inTheWay, func(a, b usage.LivePod) int {
		return cmp.Or(cmp.Compare(whole[a.Object.UID], whole[b.Object.UID]), cmp.Compare(stay[a.Object.UID], stay[b.Object.UID]), cmp.Compare(corev1.PodPriority(a.Object), corev1.PodPriority(b.Object)), strings.Compare(a.Object.Name, b.Object.Name))
	})
	search := &search{podAsk: x, n: n, pods: inTheWay, gone: map[types.UID]bool{}, left: maxTries}
	found, exact := search.fewest()
	c.Exact = exact
	if found == nil {
		return
	}
	gone := map[types.UID]bool{}
	for _, i := range found {
		gone[inTheWay[i].Object.UID] = true
	}
	c.Gets = n.without(gone).set(x.q, x.now)
	for _, i := range found {
		b := x.blocker(n, inTheWay[i])
		if lost := n.lostBy(x.q, inTheWay[i]); lost.Len() > 0 {
			b.Lost = lost.String()
		}
		c.Blockers = append(c.Blockers, b)
	}
}

// blocker describes a pod in the way of another, or of a member of a gang.
func (x *podAsk) blocker(n *node, p usage.LivePod) Blocker {
	return Blocker{Pod: p.Object.Namespace + "/" + p.Object.Name, Priority: corev1.PodPriority(p.Object), GPUs: n.gpusOf(p), Stays: x.unmovable(n, p)}
}

// unmovable is why nobody should be advised to move a pod of a node; empty if it may be moved.
func (c *cluster) unmovable(n *node, p usage.LivePod) string {
	devices := slices.ContainsFunc(c.resources(), func(name string) bool {
		return p.Amounts().GetScalarResources()[v1.ResourceName(name)] > 0
	})
	return c.budgets.Unmovable(p.Object, !devices || usage.AnnotationReader{}.Allocation(p.Object, n.object.Name) != nil)
}

// gpusOf are the indices of the GPUs that a pod has by its annotation.
func (n *node) gpusOf(p usage.LivePod) (out []int) {
	a := usage.AnnotationReader{}.Allocation(p.Object, n.object.Name)
	if a == nil || n.graph == nil {
		return nil
	}
	for _, accel := range n.graph.Accels {
		for i := range a.Mask(accel.Resource, accel.Graph).All() {
			out = append(out, accel.Graph.GPUs[i].Index)
		}
	}
	slices.Sort(out)
	return out
}

// search looks for the fewest pods on one node.
type search struct {
	*podAsk
	n    *node
	pods []usage.LivePod // in the order in which they should go
	gone map[types.UID]bool
	left int // tries
}

// fits reports whether the node takes the pod once those that are gone are.
func (x *search) fits() bool {
	x.left--
	return len(x.n.without(x.gone).obstacles(x.q, x.now)) == 0
}

// fewest returns the positions of the pods, nil if the going of all does not do. It tries all
// sets of one, two and so on while it may, and else takes all and lets one after the other stay.
func (x *search) fewest() (found []int, exact bool) {
	for size := 1; size <= len(x.pods); size++ {
		if x.tries(size) > x.left {
			return x.greedy(), false
		}
		if found = x.among(0, size, nil); found != nil {
			return found, true
		}
	}
	return nil, true
}

// tries is how many sets of a size there are, or more than there may be.
func (x *search) tries(size int) int {
	n := 1
	for i := range size {
		if n = n * (len(x.pods) - i) / (i + 1); n > maxTries {
			break
		}
	}
	return n
}

// among tries the sets of so many more pods from one position on, the first first.
func (x *search) among(from, size int, chosen []int) []int {
	if size == 0 {
		if x.fits() {
			return slices.Clone(chosen)
		}
		return nil
	}
	for i := from; i <= len(x.pods)-size; i++ {
		uid := x.pods[i].Object.UID
		x.gone[uid] = true
		found := x.among(i+1, size-1, append(chosen, i))
		delete(x.gone, uid)
		if found != nil {
			return found
		}
	}
	return nil
}

// greedy lets all go, and then the one after the other stay, the last first.
func (x *search) greedy() (found []int) {
	for i := range x.pods {
		x.gone[x.pods[i].Object.UID] = true
	}
	if !x.fits() {
		return nil
	}
	for i := len(x.pods) - 1; i >= 0; i-- {
		uid := x.pods[i].Object.UID
		delete(x.gone, uid)
		if !x.fits() {
			x.gone[uid] = true
			found = append(found, i)
		}
	}
	slices.Reverse(found)
	return found
}
