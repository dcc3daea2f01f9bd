// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// spans say of nodes, or of namespaces, since when places are kept there, or for them, without a break;
// and of those for which that ended in vain until when nothing is kept.
type spans map[string]span

// span is a time in which something is kept, or after which nothing is.
type span struct {
	since time.Time // when it began
	until time.Time // when something may be kept again; zero while something is kept
}

// begin takes note that something is kept from now on, unless it is already.
func (s spans) begin(name string, now time.Time) {
	if x, ok := s[name]; !ok || !x.until.IsZero() {
		s[name] = span{since: now}
	}
}

// end takes note that what was kept was kept in vain: for as long as that was, nothing is kept.
func (s spans) end(name string, now time.Time) {
	if x, ok := s[name]; ok && x.until.IsZero() {
		x.until = now.Add(now.Sub(x.since))
		s[name] = x
	}
}

// since is when something began to be kept; now if nothing is.
func (s spans) since(name string, now time.Time) time.Time {
	if x, ok := s[name]; ok && x.until.IsZero() {
		return x.since
	}
	return now
}

// openUntil is when something may be kept again; zero if it may be now.
func (s spans) openUntil(name string, now time.Time) time.Time {
	if x, ok := s[name]; ok && x.until.After(now) {
		return x.until
	}
	return time.Time{}
}

// forget drops the spans that are over.
func (s spans) forget(now time.Time) {
	maps.DeleteFunc(s, func(_ string, x span) bool { return !x.until.IsZero() && !x.until.After(now) })
}

// overShare says that a gang needs places on more nodes than are kept for gangs of one namespace, or of
// all; "" if it does not. nodes are those on which it would have some now. It needs g.mu.
func (g *Gangs) overShare(x *gang, n *Need, nodes map[string]bool) string {
	needs := map[v1.ResourceName]int{}
	for _, p := range n.Places {
		needs[p.Device]++
	}
	would := &drain{gang: x, priority: x.priority}
	for _, device := range slices.Sorted(maps.Keys(needs)) {
		own, all := 0, 0
		for _, d := range g.drains {
			if displaces(would, d, nodes) {
				continue
			}
			for _, name := range d.devices {
				if name == device {
					all++
					if d.gang.key.Namespace == x.key.Namespace {
						own++
					}
				}
			}
		}
		need, of := needs[device], n.Have[device]
		for _, share := range []struct {
			percent int32
			others  int
			whose   string
		}{{g.config.DrainShare, own, "gangs of one namespace"}, {g.config.DrainTotalShare, all, "all gangs"}} {
			if most := shareOf(of, share.percent); need+share.others > most {
				why := fmt.Sprintf("no places are kept for it: it needs %d of %d nodes with %s, and places are kept on %d at most for %s", need, of, device, most, share.whose)
				if share.others > 0 {
					why += fmt.Sprintf(", now on %d for others", share.others)
				}
				return why
			}
		}
	}
	return ""
}

// shareOf is how many nodes a share of them is: one at least.
func shareOf(nodes int, percent int32) int { return max(1, nodes*int(percent)/100) }
