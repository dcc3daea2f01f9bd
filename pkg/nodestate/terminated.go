// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

const (
	// ReleaseWithin is how long kubelet and agent may take to release the devices of a
	// pod that is gone. What they have after that they may have for ever.
	ReleaseWithin = 30 * time.Second
	// minTerminated is how many pods are remembered before the old ones are looked for.
	minTerminated = 256
)

// terminated remembers when pods went, for as long as their devices may take to follow.
type terminated struct {
	at    map[types.UID]time.Time
	prune int // above so many, what is old is forgotten
}

func (d *terminated) add(uid types.UID, now time.Time) {
	if d.at == nil {
		d.at, d.prune = map[types.UID]time.Time{}, minTerminated
	}
	d.at[uid] = now
	if len(d.at) <= d.prune {
		return
	}
	for u, t := range d.at {
		if now.Sub(t) > ReleaseWithin {
			delete(d.at, u)
		}
	}
	d.prune = max(minTerminated, 2*len(d.at))
}

// back forgets that a pod went: a list may have been older than the events before it.
func (d *terminated) back(uid types.UID) { delete(d.at, uid) }

// lately reports whether a pod went a short time ago.
func (d *terminated) lately(uid types.UID, now time.Time) bool {
	t, ok := d.at[uid]
	return ok && now.Sub(t) <= ReleaseWithin
}

// Gone reports whether the informer said a short time ago that it no longer has a pod:
// it was deleted, or has ended. A Binding of one that has ended succeeds and nothing
// tells of it, so whoever would wait for the bound pod would wait for ever.
func (s *State) Gone(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.terminated.lately(uid, s.clock.Now())
}

// KubeletBehind reports whether a node's kubelet has yet to release devices of pods that
// are gone, or to admit pods that have come, by its living agent's word: a demand that
// looks ahead may find room there.
func (s *State) KubeletBehind(d *Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) bool {
	u, _ := s.usable(d, info, snapshot)
	return u != nil && (u.Unreleased && u.AgentLived || len(u.Waiting) > 0)
}

// computeFor is the usage of a node with the pods of here as it counts for a demand. For
// one that looks ahead, kubelet has released the devices of pods that have just gone,
// and admitted those that have just come. It needs s.mu.
func (s *State) computeFor(d *Demand, x *cell, n *usage.Node, generation int64, here []fwk.PodInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	if !d.Ahead {
		return s.computeUsage(x, n, generation, here, snapshot)
	}
	now := s.clock.Now()
	lately := func(uid types.UID) bool { return s.terminated.lately(uid, now) }
	in := s.input(x, n, generation, here, snapshot)
	in.Released = lately
	u := usage.Compute(&in)
	if len(u.Waiting) > 0 && n.Enforced(now) && placement.Check(u, d.Request) == placement.KubeletBusy && s.busyLately(x, now) {
		u.Waiting = nil
	}
	return u
}

// Unreleased lists the pods, as namespace/name, that have just gone and whose devices the
// node's kubelet has yet to release. Of a pod that an agent did not name it is the UID.
func (s *State) Unreleased(node string) []string {
	x := s.cells.get(node)
	if x == nil {
		return nil
	}
	n := x.topology.Node()
	if n == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	var out []string
	for uid, recs := range n.Records {
		if s.terminated.lately(uid, now) && len(recs) > 0 {
			out = append(out, cmp.Or(recs[0].Pod, string(uid)))
		}
	}
	slices.Sort(out)
	return out
}

// busyLately reports whether a node's kubelet, which has yet to admit pods, was not
// found so for longer than it may take. It needs s.mu.
func (s *State) busyLately(x *cell, now time.Time) bool {
	if now.Sub(x.busyAsked) > ReleaseWithin {
		x.busySince = now
	}
	x.busyAsked = now
	return now.Sub(x.busySince) <= ReleaseWithin
}

// TryAgainBy has the waiting pods tried again at this time, if nothing else has done so
// by then: what does not come to pass no event tells of.
func (s *State) TryAgainBy(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lookAgain.IsZero() || at.Before(s.lookAgain) {
		s.lookAgain = at
	}
}

// waitedInVain reports, once, that pods have waited long enough.
func (s *State) waitedInVain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lookAgain.IsZero() || s.clock.Now().Before(s.lookAgain) {
		return false
	}
	s.lookAgain = time.Time{}
	return true
}
