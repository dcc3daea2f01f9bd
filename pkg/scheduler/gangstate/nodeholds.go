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

// nodeHolds has the places kept on nodes for gangs that have waited for long, and the times in which they
// were kept in vain. It has no lock: the caller holds Gangs.mu.
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

// holds reports whether places are kept for a gang of the namespace.
func (h *nodeHolds) holds(namespace string) bool {
	for _, d := range h.drains {
		if d.gang.key.Namespace == namespace {
			return true
		}
	}
	return false
}

// text returns the message about the places kept for a gang; "" if there are none.
func (h *nodeHolds) text(key gangrequest.Key) string {
	for _, d := range h.drains {
		if d.gang.key == key {
			return d.text()
		}
	}
	return ""
}

// publishKept publishes the places of all drains, without those that their gangs hold, and no others.
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

// publish publishes the places of all drains and no others. The lock is held, so that the last published
// places are those of the last drain.
func (h *nodeHolds) publish() {
	h.publishKept()
	h.queue.Changed() // some may be open to gangs that wait
}

// showHeld publishes the kept places again if the gang holds other places than before. It is called
// before places are released.
func (h *nodeHolds) showHeld(x *gang) {
	for _, d := range h.drains {
		if d.gang == x && d.shown != x.holding() {
			h.publishKept()
			return
		}
	}
}

// completed returns when the last of the members to be placed was created, according to the API server,
// so that a new leader goes on where the last one was. A scheduling gate that was removed later is
// considered only if this process saw the removal. The gang is complete.
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
	// The replacement of a member does not make a gang younger for which places are kept.
	if d := h.drains[x.priority]; d != nil && d.gang == x && x.read.Minimum <= d.minimum && d.complete.Before(last) {
		return d.complete
	}
	return last
}

// overShare returns a message if a gang needs places on more nodes than may be kept for gangs of one
// namespace, or for all; "" if it does not. nodes are those on which places would be kept now.
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

// shareOf returns the number of nodes in a share of them: at least one.
func shareOf(nodes int, percent int32) int { return max(1, nodes*int(percent)/100) }

// spans has for each node, or namespace, since when places are kept there, or for it, without a break;
// and if that ended in vain, until when none are kept.
type spans map[string]span

// span is a time in which places are kept, or after which none are.
type span struct {
	since time.Time // when it began
	until time.Time // when places may be kept again; zero while they are kept
}

// begin records that places are kept from now on, unless they are already.
func (s spans) begin(name string, now time.Time) {
	if x, ok := s[name]; !ok || !x.until.IsZero() {
		s[name] = span{since: now}
	}
}

// end records that places were kept in vain: for as long as they were, none are kept.
func (s spans) end(name string, now time.Time) {
	if x, ok := s[name]; ok && x.until.IsZero() {
		x.until = now.Add(now.Sub(x.since))
		s[name] = x
	}
}

// since returns when places began to be kept; now if none are.
func (s spans) since(name string, now time.Time) time.Time {
	if x, ok := s[name]; ok && x.until.IsZero() {
		return x.since
	}
	return now
}

// openUntil returns when places may be kept again; zero if they may be now.
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
