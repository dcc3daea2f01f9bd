// SPDX-License-Identifier: Apache-2.0

// Package computepool keeps Kueue's objects in line with ComputePools, pins quota for jobs that must not
// be preempted, and reports in each pool's status its devices and their holders.
//
// Its one invariant: the sum of the quota that a pool's objects guarantee is at no time more than before
// or after a change, and a job that must not be preempted is released to Kueue only once its queue's own
// quota has room for it.
package computepool
