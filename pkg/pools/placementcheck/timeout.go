// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"fmt"
	"time"
)

// What passes between the admission of a gang and its last pod, at most, if there is a place.
const (
	// scheduleTimeout is how long an attempt of the scheduler to bind a gang lasts: 50 ms a member,
	// for one of a thousand (docs/design/gangs.md).
	scheduleTimeout = 50 * time.Second
	// grace is Kubernetes' default terminationGracePeriodSeconds: for so long those run on who
	// have to go first.
	grace = 30 * time.Second
	// margin is for everything else.
	margin = 10 * time.Second
)

// LeastPodsReadyTimeout is the least waitForPodsReady.timeout of Kueue with which no job is evicted
// whose pods are on their way.
const LeastPodsReadyTimeout = scheduleTimeout + grace + margin

// checkTimeout refuses a timeout of Kueue that is too short.
func checkTimeout(podsReady time.Duration) error {
	if podsReady < LeastPodsReadyTimeout {
		return fmt.Errorf("--pods-ready-timeout %s: Kueue's waitForPodsReady.timeout must be %s or more: %s to bind a gang, %s for those who have to go first, %s to spare; "+
			"with less Kueue evicts jobs that are about to start", podsReady, LeastPodsReadyTimeout, scheduleTimeout, grace, margin)
	}
	return nil
}
