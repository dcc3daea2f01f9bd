// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// Holds is the part of Gangs that keeps places: until pods that were evicted for a gang have ended, and
// for a gang that has waited for long.
type Holds struct{ *stepper }

// Claim records that the reservations of a turn's members are held until other pods have ended. It fails
// if one of them need not be placed any more; the caller then ends the reservations. A member above the
// minimum that was passed over since its plan failed is tried next.
func (h Holds) Claim(t *Turn, c *Claim) (ok bool) {
	h.do(func() (*gang, effects) {
		x := h.queue.gangs[t.Gang.Key]
		if x == nil || x.attempt != nil || x.claim != nil || x.busy > 0 || h.queue.incomplete(x) != "" {
			return nil, effects{}
		}
		x.claim = c
		if !samePods(x.turns.pods, t.Pods) {
			x.turns = h.queue.turnsOf(x)
		}
		if !samePods(x.turns.pods, t.Pods) {
			x.claim = nil
			x.turns = h.queue.turnsOf(x)
			return nil, effects{}
		}
		for _, pod := range t.Pods {
			delete(x.passed, pod.UID)
		}
		if len(c.Waits) > 0 {
			x.waits = &Wait{Why: c.Because, ForChange: true, Until: c.Until}
		}
		ok = true
		h.holds.showHeld(x)
		return nil, effects{}
	})
	return ok
}

// EndClaim ends the claim of a gang that waits for pods to end. why, if not empty, is reported until the
// gang is planned again.
func (h Holds) EndClaim(key gangrequest.Key, why string) {
	h.do(func() (*gang, effects) {
		x := h.queue.gangs[key]
		if x == nil || x.claim == nil {
			return nil, effects{}
		}
		if why != "" {
			x.waits = &Wait{Why: why, ForChange: true}
			h.queue.Changed()
		}
		return x, x.endClaim()
	})
}

// ClaimedNode returns the node of a member's place in a claim; empty if there is none.
func (h Holds) ClaimedNode(uid types.UID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x := h.queue.byPod[uid]; x != nil {
		return x.claimed(uid)
	}
	return ""
}

// HoldsPlace reports whether a place is held for a member, by a claim or by an attempt that has not
// ended.
func (h Holds) HoldsPlace(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.queue.byPod[uid]
	return x != nil && (x.attempt.has(uid) || x.claimed(uid) != "")
}

// Yield takes back the places held for a gang that is not committed, because another one of a higher
// priority needs them. The gang is planned again.
func (h Holds) Yield(key gangrequest.Key, why string) {
	h.do(func() (*gang, effects) {
		if x := h.queue.gangs[key]; x != nil {
			return x, h.yield(x, nil, why)
		}
		return nil, effects{}
	})
}

// YieldPods is Yield for the gangs of some members. In a committed gang, only those of the members that
// have not begun to use their places lose them.
func (h Holds) YieldPods(uids []types.UID, why string) {
	seen := sets.New[gangrequest.Key]()
	for _, uid := range uids {
		h.do(func() (*gang, effects) {
			x := h.queue.byPod[uid]
			if x == nil || seen.Has(x.key) {
				return nil, effects{}
			}
			seen.Insert(x.key)
			return x, h.yield(x, uids, why)
		})
	}
}

// Expected returns the pods that end for gangs, whether or not the API server has received the evictions.
func (h Holds) Expected() sets.Set[types.UID] {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := sets.New[types.UID]()
	for _, x := range h.queue.gangs {
		if x.claim != nil {
			for _, l := range x.claim.Waits {
				out.Insert(l.Pod.UID)
			}
		}
	}
	return out
}

// Starving returns when places are kept for a gang that has no room now: only for members below the
// minimum, and not while places are kept for an older gang of its priority.
func (h Holds) Starving(t *Turn) Starvation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds.starving(t)
}

// Drain keeps places for a gang that has waited for long, in place of those kept for it or for a younger
// gang of its priority. An older gang keeps its own. No places are kept where only pods of the gang's own
// namespace are in the way, nor on more nodes than the shares allow. It returns the message for people.
func (h Holds) Drain(t *Turn, n *Need) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds.keep(t, n)
}

// Draining returns the message about the places that are kept for a gang; "" if there are none.
func (h Holds) Draining(t *Turn) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holds.text(t.Gang.Key)
}

// NoDrain ends the drain of a gang that would not fit even if all other pods were gone, or whose requests
// cannot be planned.
func (h Holds) NoDrain(t *Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds.endOf(t.Gang.Key)
}

// DrainInVain ends the drain of a gang for which its nodes have room, and which is refused there.
func (h Holds) DrainInVain(t *Turn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x := h.queue.gangs[t.Gang.Key]; x != nil {
		h.holds.endInVain(x)
	}
}
