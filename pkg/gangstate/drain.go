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

	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
)

// memberBack is how long a gang for which places are kept may lack a member that is replaced: what
// controllers commonly need to make and start another pod.
const memberBack = time.Minute

// drain is a gang for which places are kept from younger pods of equal or lower priority, until it has
// been placed or the time is over. There is at most one a priority, and a node has places of one only.
type drain struct {
	gang     *gang
	priority int32     // of the gang, when places were kept
	complete time.Time // when the gang was
	since    time.Time
	until    time.Time                     // zero: without end
	where    string                        // the smallest domain with all of the gang's nodes
	planned  []string                      // the gang's nodes
	places   map[string][]*candidates.Kept // by node: those of planned but where only pods of the own namespace are in the way
	devices  map[string]v1.ResourceName    // of places: what nodes are counted by
	lacked   []v1.ResourceName             // what lacked beside devices since
	minimum  int                           // of the gang
	revision uint64                        // of the gang, when the nodes were chosen
	failed   int                           // attempts that failed since
	lacks    time.Time                     // since when the gang is not complete; zero while it is
	shown    holding                       // what the gang held when places were published last
}

// maxFailed is how many attempts of a gang may fail before nothing is kept for it: what keeps it
// from being placed is not room then.
const maxFailed = 3

// text is what the gang's members say.
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
	text := fmt.Sprintf("drains %s since %s: places on %d nodes (%s) are kept from younger pods", d.where, timeText(d.since), len(d.places), strings.Join(names, ", "))
	if !d.until.IsZero() {
		text += " until " + timeText(d.until)
	}
	return text
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// displaces reports whether a drain ends another one: that of the gang itself or of a younger one of
// its priority, and one of a lower priority that needs one of its nodes.
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

// keep makes the places on some nodes: of the devices that members ask for, and of what else lacked on
// any of the gang's nodes.
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

// sameAs reports whether two drains keep the same, and say the same of it.
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
// is gone: others of it wait, and it lacks one for less than memberBack.
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
