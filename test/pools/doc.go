// SPDX-License-Identifier: Apache-2.0

// Package pools tests quotas on a real API server with the real Kueue, the scheduler, the pool controller
// and simulated nodes: Kueue decides how many GPUs a job may hold, the scheduler which. make test-pools
// runs it.
//
// Tests are scenarios: each has a pool with nodes and tenants of its own, in one cluster that the first
// of them starts. They run in parallel, as many as -parallel allows, and leave nothing behind. A recorder
// that watches every change checks throughout that no tenant exceeds its limit, and no pool its capacity;
// the test fails if one ever did. Pods that are terminating, or whose Job was deleted, are not included:
// Kueue has given their quota to others.
//
// Tests that kill programs, or change objects that all tenants share, have a cluster of their own
// (newTestEnv, newScenarioOn).
package pools
