// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// sizes are the group sizes that are counted, greatest first: what jobs ask for.
var sizes = [...]int{8, 4, 2, 1}

// Sizes are the group sizes that are counted, greatest first.
func Sizes() []int { return slices.Clone(sizes[:]) }

// counter counts slots, and remembers them: nodes in the same state share an answer.
type counter struct {
	slots   *placement.SlotCounter
	demands map[int]*placement.Demand // by GPUs
	of      string                    // the resource
}

func newCounter(of string) *counter {
	return &counter{slots: placement.NewSlotCounter(), demands: map[int]*placement.Demand{}, of: of}
}

// demand is a pod of k GPUs that asks for nothing else.
func (c *counter) demand(k int) *placement.Demand {
	if d := c.demands[k]; d != nil {
		return d
	}
	asked := v1.ResourceList{v1.ResourceName(c.of): *resource.NewQuantity(int64(k), resource.DecimalSI)}
	// A UID, since a reservation without one would be taken for that of no pod.
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "asked"}, Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: strconv.Itoa(k), Resources: v1.ResourceRequirements{Requests: asked, Limits: asked},
	}}}}
	r, err := parse(pod, []string{c.of})
	if err != nil { // a pod without annotations can always be read
		return nil
	}
	c.demands[k] = &placement.Demand{Request: r}
	return c.demands[k]
}

// group is how many pods of one size a node takes.
type group struct {
	any    int // of any links
	linked int // that are linked groups
}

// count counts the groups of k GPUs of a node on which u is used. beside is what is used once
// some pods have been given more.
func (c *counter) count(u *usage.Usage, accel, k int, now time.Time, beside placement.Beside) group {
	slots, most := c.slots.Slots(u, c.demand(k), now, beside)
	if slots == nil {
		return group{}
	}
	most = min(most, intact(u, accel)/k)
	return group{any: min(slots.Count(nodeindex.Bands-1), most), linked: min(slots.Count(nodeindex.BandBest), most)}
}

// intact is how many free GPUs may be used together with others, those that pods known by number
// may hold left out.
func intact(u *usage.Usage, accel int) int {
	free, degraded := u.FreeAt(accel), u.Node.Accels[accel].Degraded
	return max(0, min((free&^degraded).Len(), free.Len()-u.Counted[accel]))
}

// besides computes usage anew beside what members are given.
func besides(in usage.Input) placement.Beside {
	before := in.Reservations
	return func(given []usage.Reservation) *usage.Usage {
		in := in
		in.Reservations = slices.Concat(before, given)
		return usage.Compute(&in)
	}
}

// free counts the groups of k GPUs that are free on a node.
func (c *counter) free(n *Node, k int) group {
	return c.count(n.used, n.accel, k, n.input.Now, besides(n.input))
}

// capacity counts the groups of k GPUs of a node with nothing on it.
func (c *counter) capacity(empty *usage.Node, accel, k int, now time.Time) group {
	in := usage.Input{Node: empty, Now: now, Pods: usage.LivePods{}, Reader: usage.AnnotationReader{}}
	return c.count(empty.Empty, accel, k, now, besides(in))
}

// newSupply is the supply of nothing.
func newSupply() Supply {
	s := Supply{}
	for _, k := range sizes {
		s.Slots = append(s.Slots, Slots{GPUs: k})
	}
	return s
}

// supply is what one node has.
func (c *counter) supply(n *Node) Supply {
	s := newSupply()
	s.Nodes = 1
	if n.accel < 0 {
		return s
	}
	s.GPUs = len(n.GPUs)
	s.UsedGPUs = n.used.Used[n.accel].Len() + n.CountedGPUs
	for i := range n.GPUs {
		if state := n.GPUs[i].State; state != Used && state != Free {
			s.BadGPUs++
		}
	}
	if !n.Open() {
		return s
	}
	s.FreeGPUs = max(0, n.FreeMask().Len()-n.CountedGPUs)
	n.empty = n.known.Emptied()
	for i := range s.Slots {
		at := &s.Slots[i]
		k := at.GPUs
		now, most := c.free(n, k), c.capacity(n.empty, n.accel, k, n.input.Now)
		at.Free, at.Capacity = now.any, most.any
		if class, ok := bestClass(n.Tables(), k); ok && most.any > 0 {
			at.Linked = []Linked{{Class: class.String(), class: class, FreeGPUs: intact(n.used, n.accel), Free: now.linked, Capacity: most.linked}}
		}
		at.settle()
	}
	return s
}

// bestClass is the link class of the best ring of k GPUs of a machine; ok is false for one GPU
// and if the machine has not so many.
func bestClass(t *nvtopo.Tables, k int) (class nvtopo.Class, ok bool) {
	all := nvtopo.FullMask(t.Graph().Len())
	if k < 2 || k > all.Len() {
		return class, false
	}
	set, ok := t.Pick(all, all, k, nvtopo.Constraint{AllowMixedModels: true})
	return t.RingClass(set), ok
}

// settle works out what follows from the numbers.
func (s *Slots) settle() {
	for i := range s.Linked {
		l := &s.Linked[i]
		l.Ideal, l.Fragmentation = min(l.Capacity, l.FreeGPUs/s.GPUs), 0
		if l.Ideal > 0 {
			l.Fragmentation = 1 - float64(l.Free)/float64(l.Ideal)
		}
	}
}

// add takes in the supply of another part of the cluster.
func (s *Supply) add(o *Supply) {
	s.Nodes += o.Nodes
	s.GPUs += o.GPUs
	s.UsedGPUs += o.UsedGPUs
	s.FreeGPUs += o.FreeGPUs
	s.BadGPUs += o.BadGPUs
	for i := range s.Slots {
		s.Slots[i].add(&o.Slots[i])
	}
}

func (s *Slots) add(o *Slots) {
	s.Free += o.Free
	s.Capacity += o.Capacity
	for _, l := range o.Linked {
		at := slices.IndexFunc(s.Linked, func(mine Linked) bool { return mine.class == l.class })
		if at < 0 {
			s.Linked = append(s.Linked, l)
			continue
		}
		mine := &s.Linked[at]
		mine.Free += l.Free
		mine.Capacity += l.Capacity
		mine.FreeGPUs += l.FreeGPUs
	}
	slices.SortStableFunc(s.Linked, func(a, b Linked) int {
		switch {
		case a.class == b.class:
			return 0
		case a.class.AtLeast(b.class):
			return -1
		}
		return 1
	})
	s.settle()
}

// rings are the best rings there are now of the sizes that are counted, and the largest free
// linked group. Among GPUs that pods known by number may hold there are none.
func (c *counter) rings(n *Node) (best []Ring, largest *Ring) {
	t := n.Tables()
	free := n.FreeMask() &^ n.known.Accels[n.accel].Degraded
	if n.used.Foreign[n.accel] {
		return nil, nil
	}
	con := c.demand(2).Constraint
	for _, k := range sizes {
		if set, ok := t.Pick(free, free, k, con); ok && k > 1 {
			best = append(best, *ringOf(t, set))
		}
	}
	for k := free.Len(); k > 1 && largest == nil; k-- {
		if set, ok := t.Pick(free, free, k, con); ok && nodeindex.BandOf(t, set) == nodeindex.BandBest {
			largest = ringOf(t, set)
		}
	}
	return best, largest
}
