// SPDX-License-Identifier: Apache-2.0

package main

import "golang.org/x/sys/unix"

// threadTime is how long the thread has run, in ns; 0 if the kernel does not say.
func threadTime() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return t.Nano()
}
