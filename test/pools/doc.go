// SPDX-License-Identifier: Apache-2.0

// Package pools tests quotas on a real API server with the real Kueue, the
// scheduler and simulated nodes: Kueue says how many GPUs a job may hold, the
// scheduler which. make test-pools runs it; make test does not yet.
package pools
