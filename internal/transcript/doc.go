// SPDX-License-Identifier: Apache-2.0

// Package transcript records the output of commands on the cluster of a test, for docs/transcripts. Its
// one invariant: a file shows the output that a test saw, apart from parts that differ from run to run,
// and the test fails if the output changes. It starts no cluster: tests show states that they have
// anyway.
package transcript
