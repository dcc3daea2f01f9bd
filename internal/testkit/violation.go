// SPDX-License-Identifier: Apache-2.0

package testkit

import "testing"

// ViolationPrefix begins the message of a broken invariant. internal/testparts fails a run in
// which a failed test printed it, whatever a second try came to.
const ViolationPrefix = "VIOLATION: "

// Violation fails a test, which goes on, with an invariant that did not hold: a device with
// two owners, a leak, a limit that was passed, a gang that stays partly bound. A second try
// that passes does not make it good, unlike a condition that came too late.
func Violation(tb testing.TB, format string, args ...any) {
	tb.Helper()
	tb.Errorf(ViolationPrefix+format, args...)
}
