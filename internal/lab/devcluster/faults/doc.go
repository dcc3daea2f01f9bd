// SPDX-License-Identifier: Apache-2.0

// Package faults is an HTTPS proxy between one client and the API server that injects faults into the
// client's requests: late responses, conflicts, errors, the same errors after the server committed,
// connections cut, responses lost, requests carried out after the client gave up, watches delayed, cut
// and expired.
//
// Invariant: the fault of a client's n-th request of a kind (verb and resource) follows from the seed,
// the rules and n alone, so that a run with the same seed meets the same faults wherever its requests
// come in the same order. The proxy never changes a request or a response; it only withholds, delays or
// replaces them, and counts each time.
//
// The caller chooses which faults are on, and when.
package faults
