// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"math/bits"
	"strings"
)

// linkSet is a set of link numbers, which are below maxNVLinks.
type linkSet uint64

func (s linkSet) with(link int) linkSet { return s | 1<<link }
func (s linkSet) count() int            { return bits.OnesCount64(uint64(s)) }

// up returns the active links.
func (r *reading) up() linkSet {
	var s linkSet
	for _, l := range r.links {
		s = s.with(l.number)
	}
	return s
}

// noteDown reports a problem for links of the i-th device that are down. A link that the driver calls
// disabled is not enough evidence: so are numbers that the GPU does not have, links that the board leaves
// open, and all links where no bridge is plugged in.
func (b *build) noteDown(i int) {
	r := b.devs[i]
	if r.failed != nil {
		return
	}
	if n := (r.down & b.expected(i)).count(); n > 0 {
		b.note(r.label(), "%d of %d NVLinks are down", n, n+len(r.links))
	}
}

// expected returns the links of the i-th device that should be up: those that were up before, those that
// are up on others of its kind and, if none is up on any of them, all if the board must have them wired.
func (b *build) expected(i int) linkSet {
	r := b.devs[i]
	want := b.wereUp[r.uuid]
	for j, o := range b.devs {
		// A bridged pair is no evidence about a GPU beside it.
		if j != i && o.name == r.name && (len(r.links) > 0 || b.couldReach(o, r)) {
			want |= o.up()
		}
	}
	if want == 0 && len(r.links) == 0 && len(b.devs) > 1 && r.wired() {
		return r.down
	}
	return want
}

// couldReach reports whether a link of o leads to r, to a switch, or to an unknown far end.
func (b *build) couldReach(o, r *reading) bool {
	c := countLinks(o.links, b.addresses(), b.sys.isNVSwitch)
	return c.through > 0 || c.unknown > 0 || c.direct[r.addr] > 0
}

// wired reports whether the GPU is on a board whose NVLinks need no bridge: all with SXM in their name,
// and from Hopper on those with support for an NVSwitch fabric.
func (r *reading) wired() bool {
	return strings.Contains(r.name, "SXM") || r.major >= hopper && r.fabric.State != FabricNotSupported
}
