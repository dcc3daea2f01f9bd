// SPDX-License-Identifier: Apache-2.0

package testkit

import "time"

// nap is short compared with the waits of tests, and long for an idle machine.
const nap = 10 * time.Millisecond

// Naps sleeps for a duration in naps of 10 ms. On a busy machine each nap takes longer, which gives time
// to concurrent work that the test cannot observe, such as an informer that has yet to receive a change.
func Naps(d time.Duration) {
	for ; d > 0; d -= nap {
		time.Sleep(min(d, nap))
	}
}
