// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package threadtime

import "time"

var began = time.Now()

// Now is the time since the program began.
func Now() time.Duration { return time.Since(began) }
