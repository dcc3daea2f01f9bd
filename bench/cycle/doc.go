// SPDX-License-Identifier: Apache-2.0

// Command cycle measures the scheduling cycle alone: the real scheduler, its
// cache, queue, snapshot and framework, with no API server behind it.
//
// Each repeat of each profile starts a fresh scheduler over the same cluster and
// pods, profiles in turn, so that what disturbs the machine disturbs all of
// them. A pod counts from the moment it left the queue until its Permit plugins
// ran: PreFilter, Filter, Score, the assumption in the cache, Reserve. Bindings
// are not carried out; that they were is told to the scheduler's informers after
// every block of pods, outside the clock, so that the cluster fills and choices
// settle as they do in service.
//
// Its one invariant: a repeat counts only if every pod got a node with what it
// asked for and no GPU went to two pods.
//
// Plans of gangs are timed apart, as the clock has them and as their thread has run.
//
// Beside that it runs the whole scheduler, with an API server that answers at once: single pods a second, and how long
// a new one takes, while gangs wait that have no room.
//
// It does not measure throughput of a real API server, API requests or the quality of choices.
package main
