// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// nodeHolds is what is kept on nodes for gangs that have waited for long, and what was kept in vain. It has no lock:
// Gangs.mu is held whenever it is used.
type nodeHolds struct {
	clock   clock.PassiveClock
	config  Config
	cluster Cluster
	queue   *queue

	drains  map[int32]*drain // by priority
	nodes   spans            // by node
	holders spans            // by namespace
}

func newNodeHolds(clk clock.PassiveClock, config Config, cluster Cluster, q *queue) *nodeHolds {
	return &nodeHolds{clock: clk, config: config, cluster: cluster, queue: q, drains: map[int32]*drain{}, nodes: spans{}, holders: spans{}}
}

// holds reports whether something is kept for a gang of the namespace.
func (h *nodeHolds) holds(namespace string) bool {
	for _, d := range h.drains {
		if d.gang.key.Namespace == namespace {
			return true
		}
	}
	return false
}

// text is what the members of a gang say of the places that are kept for it; "" if none are.
func (h *nodeHolds) text(key gangrequest.Key) string {
	for _, d := range h.drains {
		if d.gang.key == key {
			return d.text()
		}
	}
	return ""
}

// publishKept keeps the places of all drains, but for what their gangs hold there, and nothing else.
func (h *nodeHolds) publishKept() {
	nodes := map[string][]*candidates.Kept{}
	for _, d := range h.drains {
		d.shown = d.gang.holding()
		for node, places := range d.beside() {
			nodes[node] = append(nodes[node], places...)
		}
	}
	h.cluster.Keep(nodes)
}

// publish keeps the places of all drains and no others. The lock is held, so that what is kept last is
// what the last drain says.
func (h *nodeHolds) publish() {
	h.publishKept()
	h.queue.Changed() // some may be open to gangs that wait
}

// showHeld publishes what is kept for a gang again if it holds other places than before. It is called before
// places are released.
func (h *nodeHolds) showHeld(x *gang) {
	for _, d := range h.drains {
		if d.gang == x && d.shown != x.holding() {
			h.publishKept()
			return
		}
	}
}

// completed is when the last of the members that are to be placed came, by what the API server
// says: a scheduler that begins to lead goes on where the last one was. A scheduling gate that
// was taken away after that counts as far as this process saw it. The gang is complete.
func (h *nodeHolds) completed(x *gang) time.Time {
	last := x.ungated
	later := func(t time.Time) {
		if t.After(last) {
			last = t
		}
	}
	for _, pod := range x.turns.pods {
		later(pod.CreationTimestamp.Time)
	}
	if group := x.group; group != nil {
		later(group.CreationTimestamp.Time)
	}
	if last.IsZero() {
		last = x.ready
	}
	// A replacement of one of its members does not make a gang younger for which places are kept.
	if d := h.drains[x.priority]; d != nil && d.gang == x && x.read.Minimum <= d.minimum && d.complete.Before(last) {
		return d.complete
	}
	return last
}

// overShare says that a gang needs places on more nodes than are kept for gangs of one namespace, or of
// all; "" if it does not. nodes are those on which it would have some now.
func (h *nodeHolds) overShare(x *gang, n *Need, nodes map[string]bool) string {
	needs := map[v1.ResourceName]int{}
	for _, p := range n.Places {
		needs[p.Device]++
	}
	would := &drain{gang: x, priority: x.priority}
	for _, device := range slices.Sorted(maps.Keys(needs)) {
		own, all := 0, 0
		for _, d := range h.drains {
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
		}{{h.config.DrainShare, own, "gangs of one namespace"}, {h.config.DrainTotalShare, all, "all gangs"}} {
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
