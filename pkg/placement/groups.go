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

// groupSizes are the group sizes that are reported, greatest first: the usual sizes of jobs.
var groupSizes = [...]int{8, 4, 2, 1}

// GroupSizes returns the group sizes that are reported, greatest first.
func GroupSizes() []int { return slices.Clone(groupSizes[:]) }

// GroupCounter counts groups of GPUs for reports: the room for pods that request nothing but GPUs, and if
// set a least link between any two of them. It caches its results: nodes in the same state share one. It
// is not safe for concurrent use.
type GroupCounter struct {
	slots      *SlotCounter
	demands    map[int]*Demand // by number of GPUs
	of         string          // the resource's name
	minLink    nvtopo.Class    // between any two GPUs of a group; the zero Class is any
	capacities map[stateKey]Groups
	classes    map[bestKey]bestClass
}

// bestKey is the key of the cache of BestClass, and bestClass a result in it.
type bestKey struct {
	class nvtopo.ClassID
	gpus  int
}

type bestClass struct {
	class nvtopo.Class
	ok    bool
}

// NewGroupCounter returns a counter of groups of one extended resource; any two GPUs of a group have a
// link of class minLink or a better one.
func NewGroupCounter(of string, minLink nvtopo.Class) *GroupCounter {
	return &GroupCounter{
		slots: NewSlotCounter(), demands: map[int]*Demand{}, of: of, minLink: minLink, capacities: map[stateKey]Groups{}, classes: map[bestKey]bestClass{},
	}
}

// Groups holds how many groups of one size a node takes.
type Groups struct {
	Any    int // with any links
	Linked int // whose best ring is as fast as the best of as many GPUs on the empty machine
}

// Demand returns a pod of k GPUs under the shipped profile's defaults that requests the least link and
// nothing else.
func (c *GroupCounter) Demand(k int) *Demand {
	if d := c.demands[k]; d != nil {
		return d
	}
	asked := v1.ResourceList{v1.ResourceName(c.of): *resource.NewQuantity(int64(k), resource.DecimalSI)}
	// The UID is set since a reservation without one would be taken for that of no pod.
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

// Count counts the groups of k GPUs that a node with usage u has free; accel is the resource's position on
// the node. beside computes the usage after further pods.
func (c *GroupCounter) Count(u *usage.Usage, accel, k int, now time.Time, beside Beside) Groups {
	slots, most := c.slots.Slots(u, c.Demand(k), now, beside)
	if slots == nil {
		return Groups{}
	}
	most = min(most, Intact(u, accel)/k)
	return Groups{Any: min(slots.Count(nodeindex.Bands-1), most), Linked: min(slots.Count(nodeindex.BandBest), most)}
}

// Capacity counts the groups of k GPUs that a node would have if it were empty; see usage.Node.Emptied.
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

// Intact is the number of free GPUs that can be used together, without those that untracked pods may hold.
func Intact(u *usage.Usage, accel int) int {
	free, degraded := u.FreeAt(accel), u.Node.Accels[accel].Degraded
	return max(0, min((free&^degraded).Len(), free.Len()-u.Counted[accel]))
}

// BesideInput returns a Beside that adds the members' allocations to in and computes the usage from it.
func BesideInput(in usage.Input) Beside {
	before := in.Reservations
	return func(given []usage.Reservation) *usage.Usage {
		in := in
		in.Reservations = slices.Concat(before, given)
		return usage.Compute(&in)
	}
}

// BestClass is the link class of the best ring of k GPUs of a machine; ok is false for one GPU and if the
// machine has fewer than k.
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
