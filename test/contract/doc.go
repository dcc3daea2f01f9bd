// SPDX-License-Identifier: Apache-2.0

// Package contract has the tests of the contract (internal/contract) that need no cluster and no Helm.
// The flags of each program are compared by a test beside its command, the rendered chart by test/chart,
// and the annotations of real pods by test/integration.
//
// Metrics, events and keys are found in the syntax of the source, so that a new one cannot be forgotten:
// one whose name cannot be read fails the test.
package contract
