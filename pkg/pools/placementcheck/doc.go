// SPDX-License-Identifier: Apache-2.0

// Package placementcheck is Kueue's admission check pool.nvtopo.dev/placement: a job that has
// quota starts only where its pods have a place, and gives the quota back while they have none.
// Its one invariant: what is promised to a job counts as used until its pods are bound, so that
// no place is promised twice.
//
// Decide and NextRound are pure: they plan on a Snapshot by pkg/placement and pkg/nvtopo/fabric,
// as the scheduler does. The Reconciler reads the cluster, and writes what a round says.
package placementcheck
