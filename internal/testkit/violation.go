// SPDX-License-Identifier: Apache-2.0

package testkit

import "testing"

// ViolationPrefix begins the message of a broken invariant. internal/testparts fails a run in which a
// failed test printed it, even if a second try passed.
const ViolationPrefix = "VIOLATION: "

// Violation reports a broken invariant and lets the test continue: a device with two owners, a leak, an
// exceeded limit, a gang that stays partly bound. Unlike a condition that came too late, it is not
// excused by a second try that passes.
func Violation(tb testing.TB, format string, args ...any) {
	tb.Helper()
	tb.Errorf(ViolationPrefix+format, args...)
}
