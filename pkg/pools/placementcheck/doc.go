// SPDX-License-Identifier: Apache-2.0

// Package placementcheck is Kueue's admission check pool.nvtopo.dev/placement: a job that has quota
// starts only where its pods have a place, and gives the quota back while they have none. Its one
// invariant: devices promised to a job are used until its pods are bound, so that no place is promised
// twice.
//
// Decide and NextRound are pure: they plan on a Snapshot with pkg/placement and pkg/nvtopo/fabric, as
// the scheduler does. The Reconciler reads the cluster, and writes the steps of a round.
package placementcheck
