// SPDX-License-Identifier: Apache-2.0

// Package pools tests quotas on a real API server with the real Kueue, the scheduler, the
// pool controller and simulated nodes: Kueue says how many GPUs a job may hold, the
// scheduler which. make test-pools runs it.
//
// Tests are scenarios: each has a pool with nodes and tenants of its own, in one cluster
// that the first of them starts. They run side by side, as many as -parallel says, and leave
// nothing behind. A recorder that hears of every change checks throughout that no tenant
// holds more than its limit, and no pool more than it has; the test fails if one ever did. Pods that
// are about to go, or whose Job was deleted, do not count: Kueue has given their quota to others.
//
// What kills programs, or changes what all tenants have together, has a cluster of its own
// (newLab, newScenarioOn).
package pools
