// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"fmt"
	"time"
)

// The longest times between the admission of a gang and its last pod, if there is a place.
const (
	// scheduleTimeout is the duration of a scheduler's attempt to bind a gang: 50 ms per member, for a
	// gang of a thousand (docs/design/gangs.md).
	scheduleTimeout = 50 * time.Second
	// grace is Kubernetes' default terminationGracePeriodSeconds: pods that have to end first run on for
	// that long.
	grace = 30 * time.Second
	// margin is for everything else.
	margin = 10 * time.Second
)

// LeastPodsReadyTimeout is the least waitForPodsReady.timeout of Kueue with which no job is evicted
// while its pods are being started.
const LeastPodsReadyTimeout = scheduleTimeout + grace + margin

// checkTimeout returns an error for a timeout of Kueue that is too short.
func checkTimeout(podsReady time.Duration) error {
	if podsReady < LeastPodsReadyTimeout {
		return fmt.Errorf("--pods-ready-timeout %s: Kueue's waitForPodsReady.timeout must be %s or more: %s to bind a gang, %s for those who have to go first, %s to spare; "+
			"with less Kueue evicts jobs that are about to start", podsReady, LeastPodsReadyTimeout, scheduleTimeout, grace, margin)
	}
	return nil
}
