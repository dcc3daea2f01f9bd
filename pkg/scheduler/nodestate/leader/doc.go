// SPDX-License-Identifier: Apache-2.0

// Package leader decides whether this process may write an allocation: it holds the scheduler's leader
// Lease and renewed it in time, and, just after its election, the API server has no other pod with a GPU
// of the allocation.
//
// Its one invariant: a former leader that was paused carries out neither an old decision nor a new one.
// It neither elects nor renews; the scheduler does.
//
// No other function is called while Leader.mu is held.
package leader
