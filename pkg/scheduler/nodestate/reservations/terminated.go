// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// ReleaseWithin is how long kubelet and agent may take to release the devices of a pod that is gone.
	// Devices that they still report later may stay reported for ever.
	ReleaseWithin = 30 * time.Second
	// minTerminated is how many pods are remembered before old ones are removed.
	minTerminated = 256
)

// terminated remembers when pods ended, for as long as the release of their devices may take.
type terminated struct {
	at    map[types.UID]time.Time
	prune int // above this number, old entries are removed
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

// back forgets that a pod ended: a list may have been older than the events before it.
func (d *terminated) back(uid types.UID) { delete(d.at, uid) }

// lately reports whether a pod ended at most ReleaseWithin ago.
func (d *terminated) lately(uid types.UID, now time.Time) bool {
	t, ok := d.at[uid]
	return ok && now.Sub(t) <= ReleaseWithin
}
