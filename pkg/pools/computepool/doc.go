// SPDX-License-Identifier: Apache-2.0

// Package computepool keeps Kueue's objects as ComputePools have them, pins quota for jobs that
// must not be preempted, and says in each pool's status what it has and who holds it.
//
// Its one invariant: what a pool's objects promise for sure is at no time more than before or
// after a change, and a job that must not be preempted is let in only once its queue's own quota
// has room for it.
package computepool
