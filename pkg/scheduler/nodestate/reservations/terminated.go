// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
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
