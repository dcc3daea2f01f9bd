// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import "time"

var began = time.Now()

// threadTime is the time since the program began, in ns.
func threadTime() int64 { return time.Since(began).Nanoseconds() }
