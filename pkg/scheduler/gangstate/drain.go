// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// drain is the node hold of a gang: places kept from younger pods of equal or lower priority, until the
// gang has been placed or the time is over. There is at most one per priority, and a node has places of
// one only.
type drain struct {
	gang     *gang
	priority int32     // of the gang, when places were kept
	complete time.Time // when the gang became complete
	since    time.Time
	until    time.Time // zero: without end
	chosen   chosen
	keptPlaces
	lacked  []v1.ResourceName // resources beside devices that were short at any time since
	minimum int               // of the gang
	failed  int               // attempts that failed since
	lacks   time.Time         // since when the gang is not complete; zero while it is
}

// chosen are the nodes that a gang would get if all other pods were gone.
type chosen struct {
	where    string   // the smallest domain with all of them
	nodes    []string // by name
	revision uint64   // of the gang, when they were chosen
}

// keptPlaces are the places that a drain keeps: on the chosen nodes, except those where only pods of the
// gang's own namespace are in the way.
type keptPlaces struct {
	places  map[string][]*candidates.Kept // by node
	devices map[string]v1.ResourceName    // by node: the device whose nodes are counted for the shares
	shown   holding                       // how the gang held places when these were last published
}

// maxFailed is how many attempts of a gang may fail before its drain ends: something other than room
// keeps it from being placed then.
const maxFailed = 3

// memberBack is how long a gang for which places are kept may lack a member that is replaced: the time
// that controllers commonly need to make and start another pod.
const memberBack = time.Minute

// text returns the message that the gang's members report.
func (d *drain) text() string {
	kept := map[v1.ResourceName]bool{}
	for _, places := range d.places {
		for _, k := range places {
			kept[k.Resource] = true
		}
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		names = append(names, string(name))
	}
	text := fmt.Sprintf("drains %s since %s: places on %d nodes (%s) are kept from younger pods", d.chosen.where, timeText(d.since), len(d.places), strings.Join(names, ", "))
	if !d.until.IsZero() {
		text += " until " + timeText(d.until)
	}
	return text
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// displaces reports whether a drain ends another one: that of the gang itself or of a younger one of its
// priority, and one of a lower priority that has places on one of its nodes.
func displaces(d, o *drain, nodes map[string]bool) bool {
	if o.gang == d.gang || o.priority == d.priority {
		return true
	}
	for node := range o.places {
		if o.priority < d.priority && nodes[node] {
			return true
		}
	}
	return false
}

// keep computes the places on some nodes: of the devices that members request, and of other resources
// that were short on any of the gang's nodes.
func (d *drain) keep(n *Need, nodes map[string]bool) {
	why := "which has waited for long"
	if !d.until.IsZero() {
		why += ", until " + timeText(d.until)
	}
	d.places, d.devices = map[string][]*candidates.Kept{}, map[string]v1.ResourceName{}
	for _, p := range n.Places {
		if !nodes[p.Node] {
			continue
		}
		d.devices[p.Node] = p.Device
		for _, name := range slices.Sorted(maps.Keys(p.Amounts)) {
			if p.Amounts[name] > 0 && (p.Devices[name] || slices.Contains(d.lacked, name)) {
				d.places[p.Node] = append(d.places[p.Node], candidates.NewKept(d.gang.key, candidates.Kept{
					Priority: d.priority, Made: d.complete, Resource: name, Count: p.Amounts[name],
				}, why))
			}
		}
	}
}

// sameAs reports whether two drains keep the same places, with the same texts.
func (d *drain) sameAs(o *drain) bool {
	return d.until.Equal(o.until) && maps.EqualFunc(d.places, o.places, func(a, b []*candidates.Kept) bool {
		return slices.EqualFunc(a, b, func(a, b *candidates.Kept) bool { return *a == *b })
	})
}

// younger reports whether a drain is for a gang that became complete after x.
func younger(d *drain, complete time.Time, x *gang) bool {
	return cmp.Or(d.complete.Compare(complete), cmp.Compare(d.gang.key.String(), x.key.String())) > 0
}

// awaitsMember reports whether a gang that is not complete may still get a replacement for a member that
// is gone: other members wait, and it has lacked one for less than memberBack.
func (d *drain) awaitsMember(now time.Time) bool {
	if d.lacks.IsZero() {
		d.lacks = now
	}
	waits := false
	for _, pod := range d.gang.pods {
		waits = waits || pod.Spec.NodeName == ""
	}
	return waits && now.Sub(d.lacks) < memberBack
}

// The devices kept for a gang are the same as those it holds by an attempt or a claim. While it holds
// them they are used, so only the rest is published as kept: others may have the free devices beside it.

// holding is the attempt or the claim by which a gang holds its places; the zero value means that it
// holds none.
type holding struct {
	attempt *attempt
	claim   *Claim
}

// holding returns how a gang holds its places. Once one of them is given up it returns none: then all
// places are kept again before that one is released.
func (p *placing) holding() holding {
	h := holding{claim: p.claim}
	if p.attempt.live() && !p.attempt.lost {
		h.attempt = p.attempt
	}
	return h
}

// places returns the members that hold places by h, with their nodes.
func (p *placing) places(h holding) (all []Located) {
	if h.claim != nil {
		all = append(all, h.claim.Places...)
	}
	if h.attempt != nil && p.commit != nil && p.commit.Answer != nil {
		for i := range p.commit.Answer.Members {
			m := &p.commit.Answer.Members[i]
			all = append(all, Located{Pod: m.Pod, Node: m.Node})
		}
	}
	return all
}

// beside returns the drain's places without those that its gang holds.
func (d *drain) beside() map[string][]*candidates.Kept {
	held := map[string][]*v1.Pod{}
	for _, l := range d.gang.places(d.shown) {
		held[l.Node] = append(held[l.Node], l.Pod)
	}
	if len(held) == 0 {
		return d.places
	}
	rest := map[string][]*candidates.Kept{}
	for node, places := range d.places {
		for _, k := range places {
			if k = k.Less(amountOf(held[node], k.Resource)); k != nil {
				rest[node] = append(rest[node], k)
			}
		}
	}
	return rest
}

// amountOf returns how much of a resource pods request, in the units of candidates.Kept.
func amountOf(pods []*v1.Pod, name v1.ResourceName) (amount int64) {
	for _, pod := range pods {
		q := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[name]
		if name == v1.ResourceCPU {
			amount += q.MilliValue()
		} else {
			amount += q.Value()
		}
	}
	return amount
}
