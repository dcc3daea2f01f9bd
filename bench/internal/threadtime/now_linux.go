// SPDX-License-Identifier: Apache-2.0

package threadtime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns how long the thread has run; 0 if the kernel does not report it.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
