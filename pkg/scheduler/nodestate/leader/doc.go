// SPDX-License-Identifier: Apache-2.0

// Package leader says whether this process may carry out a choice: it holds the scheduler's
// leader Lease and renewed it in time, and, just after its election, the API server knows of no
// other pod with a GPU of the choice.
//
// Its one invariant: a former leader that was paused carries out neither an old decision nor a
// new one. It neither elects nor renews; the scheduler does.
//
// Leader.mu is held while nothing else is called.
package leader
