// SPDX-License-Identifier: Apache-2.0

// Package transcript records what commands print on the cluster of a test, for docs/transcripts.
// Its one invariant: a file there is what a test saw, but for what differs from run to run, and
// the test fails when it sees something else. It starts no cluster: tests show the states that
// they have anyway.
package transcript
