// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// groupSizes are the sizes that are counted for people, greatest first: what jobs ask for.
var groupSizes = [...]int{8, 4, 2, 1}

// GroupSizes are the sizes of groups that are counted for people, greatest first.
func GroupSizes() []int { return slices.Clone(groupSizes[:]) }

// GroupCounter counts groups of GPUs for people: room for pods that ask for nothing but GPUs, and
// where it is told so for a least link between any two of them. It remembers what it worked out:
// nodes in the same state share an answer. It is not safe for concurrent use.
type GroupCounter struct {
	slots      *SlotCounter
	demands    map[int]*Demand // by GPUs
	of         string          // the resource
	minLink    nvtopo.Class    // between any two GPUs of a group; the zero Class is any
	capacities map[stateKey]Groups
	classes    map[bestKey]bestClass
}

// bestKey is a question of BestClass, and bestClass its answer.
type bestKey struct {
	class nvtopo.ClassID
	gpus  int
}

type bestClass struct {
	class nvtopo.Class
	ok    bool
}

// NewGroupCounter returns a counter of groups of one extended resource, of which any two GPUs have
// such a link or a better one.
func NewGroupCounter(of string, minLink nvtopo.Class) *GroupCounter {
	return &GroupCounter{
		slots: NewSlotCounter(), demands: map[int]*Demand{}, of: of, minLink: minLink, capacities: map[stateKey]Groups{}, classes: map[bestKey]bestClass{},
	}
}

// Groups is how many groups of one size a node takes.
type Groups struct {
	Any    int // of any links
	Linked int // whose best ring is as fast as the best of as many GPUs on the empty machine
}

// Demand is a pod of k GPUs under the shipped profile's defaults that asks for the least link and
// nothing else.
func (c *GroupCounter) Demand(k int) *Demand {
	if d := c.demands[k]; d != nil {
		return d
	}
	asked := v1.ResourceList{v1.ResourceName(c.of): *resource.NewQuantity(int64(k), resource.DecimalSI)}
	// A UID, since a reservation without one would be taken for that of no pod.
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "asked"}, Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: strconv.Itoa(k), Resources: v1.ResourceRequirements{Requests: asked, Limits: asked},
	}}}}
	if k > 1 && c.minLink != (nvtopo.Class{}) {
		pod.Annotations = map[string]string{podrequest.MinLinkKey: c.minLink.String()}
	}
	r, err := podrequest.Parse(pod, &podrequest.Options{
		Resources: []string{c.of}, DefaultPolicy: nvtopo.PolicyBestEffort, Supported: podrequest.AllPolicies(),
	})
	if err != nil { // the name of a class can always be read
		return nil
	}
	c.demands[k] = &Demand{Request: r}
	return c.demands[k]
}

// Count counts the groups of k GPUs of a node on which u is used, accel being the position of the
// resource there. beside is what is used once some pods have been given more.
func (c *GroupCounter) Count(u *usage.Usage, accel, k int, now time.Time, beside Beside) Groups {
	slots, most := c.slots.Slots(u, c.Demand(k), now, beside)
	if slots == nil {
		return Groups{}
	}
	most = min(most, Intact(u, accel)/k)
	return Groups{Any: min(slots.Count(nodeindex.Bands-1), most), Linked: min(slots.Count(nodeindex.BandBest), most)}
}

// Capacity counts the groups of k GPUs that a node would have with nothing on it; see
// usage.Node.Emptied.
func (c *GroupCounter) Capacity(n *usage.Node, accel, k int, now time.Time) Groups {
	key := keyOf(n.Empty, c.Demand(k), accel)
	if known, ok := c.capacities[key]; ok {
		return known
	}
	if len(c.capacities) >= maxTried {
		clear(c.capacities)
	}
	empty := n.Emptied()
	in := usage.Input{Node: empty, Now: now, Pods: usage.LivePods{}, Reader: usage.AnnotationReader{}}
	c.capacities[key] = c.Count(empty.Empty, accel, k, now, BesideInput(in))
	return c.capacities[key]
}

// Intact is how many free GPUs may be used together with others, those that pods known by number
// may hold left out.
func Intact(u *usage.Usage, accel int) int {
	free, degraded := u.FreeAt(accel), u.Node.Accels[accel].Degraded
	return max(0, min((free&^degraded).Len(), free.Len()-u.Counted[accel]))
}

// BesideInput computes usage anew from in and what members are given.
func BesideInput(in usage.Input) Beside {
	before := in.Reservations
	return func(given []usage.Reservation) *usage.Usage {
		in := in
		in.Reservations = slices.Concat(before, given)
		return usage.Compute(&in)
	}
}

// BestClass is the link class of the best ring of k GPUs of a machine; ok is false for one GPU and
// if the machine has not so many.
func (c *GroupCounter) BestClass(t *nvtopo.Tables, k int) (class nvtopo.Class, ok bool) {
	key := bestKey{t.Class(), k}
	known, ok := c.classes[key]
	if !ok {
		if len(c.classes) >= maxTried {
			clear(c.classes)
		}
		known.class, known.ok = classOfBest(t, k)
		c.classes[key] = known
	}
	return known.class, known.ok
}

func classOfBest(t *nvtopo.Tables, k int) (class nvtopo.Class, ok bool) {
	all := nvtopo.FullMask(t.Graph().Len())
	if k < 2 || k > all.Len() {
		return class, false
	}
	set, ok := t.Pick(all, all, k, nvtopo.Constraint{AllowMixedModels: true})
	return t.RingClass(set), ok
}
