// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

const (
	// releaseWithin is how long kubelet and agent may take to release the devices of a
	// pod that is gone. What they have after that they may have for ever.
	releaseWithin = 30 * time.Second
	// minDeparted is how many pods are remembered before the old ones are looked for.
	minDeparted = 256
)

// departed remembers when pods went, for as long as their devices may take to follow.
type departed struct {
	at    map[types.UID]time.Time
	prune int // above so many, what is old is forgotten
}

func (d *departed) add(uid types.UID, now time.Time) {
	if d.at == nil {
		d.at, d.prune = map[types.UID]time.Time{}, minDeparted
	}
	d.at[uid] = now
	if len(d.at) <= d.prune {
		return
	}
	for u, t := range d.at {
		if now.Sub(t) > releaseWithin {
			delete(d.at, u)
		}
	}
	d.prune = max(minDeparted, 2*len(d.at))
}

// back forgets that a pod went: a list may have been older than the events before it.
func (d *departed) back(uid types.UID) { delete(d.at, uid) }

// lately reports whether a pod went a short time ago.
func (d *departed) lately(uid types.UID, now time.Time) bool {
	t, ok := d.at[uid]
	return ok && now.Sub(t) <= releaseWithin
}

// Gone reports whether the informer said a short time ago that it no longer has a pod:
// it was deleted, or has ended. A Binding of one that has ended succeeds and nothing
// tells of it, so whoever would wait for the bound pod would wait for ever.
func (s *State) Gone(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departed.lately(uid, s.clock.Now())
}

// FitsSoon reports whether a pod fits a node as soon as its kubelet has released the
// devices of pods that have just gone, or admitted those that have just come: nobody
// need be evicted for it then.
func (s *State) FitsSoon(d *Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) bool {
	u, _ := s.usable(d, info, snapshot)
	if u == nil {
		return false
	}
	x, now := s.cells.get(u.node.Name), s.clock.Now()
	if s.Judge(d, info, snapshot).Reason == KubeletBusy {
		return u.node.enforced(now) && s.busyLately(x, now)
	}
	if !u.leftovers || !u.agentLived {
		return false
	}
	here := append(s.promised(x, u.node.Name, d.UID, d.Priority), info.GetPods()...)
	lately := func(uid types.UID) bool { return s.departed.lately(uid, now) }
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.computeWithout(lately, x, u.node, info.GetGeneration(), here, snapshot).Check(d.Request) != Fits {
		return false
	}
	s.lookAgain = now.Add(releaseWithin) // should the release not come, nothing else would wake the pod
	return true
}

// busyLately reports whether a node's kubelet, which has yet to admit pods, was not
// found so for longer than it may take.
func (s *State) busyLately(x *cell, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(x.busyAsked) > releaseWithin {
		x.busySince = now
	}
	x.busyAsked = now
	if now.Sub(x.busySince) > releaseWithin {
		return false
	}
	s.lookAgain = now.Add(releaseWithin)
	return true
}

// waitedInVain reports, once, that pods have waited long enough for a release.
func (s *State) waitedInVain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lookAgain.IsZero() || s.clock.Now().Before(s.lookAgain) {
		return false
	}
	s.lookAgain = time.Time{}
	return true
}
