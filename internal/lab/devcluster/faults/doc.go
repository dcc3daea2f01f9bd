// SPDX-License-Identifier: Apache-2.0

// Package faults is an HTTPS proxy between one client and the API server that
// does to the client's requests what a bad day does: answers late, conflicts,
// refusals, the same answers after the server committed, connections cut, answers
// lost, requests carried out after the client gave up, watches delayed, cut and expired.
//
// Its one invariant: what it does to a client's n-th request of a kind (verb and
// resource) follows from the seed, the rules and n alone, so that a run with the
// same seed meets the same faults wherever its requests come in the same order.
// It never changes a request or an answer; it only withholds, delays or replaces
// them, and it counts each time it does.
//
// Which faults are on, and when, is the caller's decision.
package faults
