// SPDX-License-Identifier: Apache-2.0

// Package threadtime reads how long the calling thread has run, so that what is measured does
// not depend on who else wants the cores.
//
// Its one invariant: two readings on one thread (runtime.LockOSThread) are in order.
package threadtime
