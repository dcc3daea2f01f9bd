// SPDX-License-Identifier: Apache-2.0

// Package contract compares the interfaces of nvtopo that users, operators and other programs use with
// files that are committed under test/contract/golden: kinds, commands, arguments, metrics, events,
// annotations, manifests and the chart. A change of any of them fails a test with the lines that differ,
// and `make contract` writes the files, so that their diff is part of the review.
//
// Its one invariant: the files hold text that is the same on each run and each machine, and that does not
// depend on where in the source it comes from, so that moving code changes no file.
package contract
