// SPDX-License-Identifier: Apache-2.0

// Package threadtime reads how long the calling thread has run, so that measurements do not
// depend on other users of the cores.
//
// Its one invariant: two readings on one thread (runtime.LockOSThread) are in order.
package threadtime
