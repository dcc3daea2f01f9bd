// SPDX-License-Identifier: Apache-2.0

// Package testkit has helpers that the tests of several packages share: waiting for a condition, a clock
// that is set ahead, the programs in bin, and the log of the process. It knows nothing of the product:
// the testEnv of a package stays with its tests.
package testkit
