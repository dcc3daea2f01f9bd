// SPDX-License-Identifier: Apache-2.0

package testkit

import "time"

// nap is short to what tests wait for, and long to a machine that has nothing else to do.
const nap = 10 * time.Millisecond

// Naps sleeps for some time in naps of 10 ms. A busy machine has each nap take longer, as it
// has what the test cannot see and gives time to: an informer that has to hear of a change.
func Naps(d time.Duration) {
	for ; d > 0; d -= nap {
		time.Sleep(min(d, nap))
	}
}
