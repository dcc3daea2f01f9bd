// SPDX-License-Identifier: Apache-2.0

// Package contract compares what users, operators and other programs see of nvtopo with files that
// are committed under test/contract/golden: kinds, commands, arguments, metrics, events, annotations,
// manifests and the chart. A change of any of them fails a test with the lines that differ, and
// `make contract` writes the files, so that their diff is part of the review.
//
// Its one invariant: files hold text that is the same on each run and each machine, and that says
// what is seen and not where in the source it comes from, so that moving code changes no file.
package contract
