// SPDX-License-Identifier: Apache-2.0

// Package eviction finds the pods that have to be evicted for others: for one pod a search on its node
// (search.go), by disruption budgets, priorities, the number of victims, and the quality of the freed
// devices; for a gang the units on all nodes, each evicted whole or kept (units.go); and the pods that
// should not be moved (movable.go).
//
// Its one invariant: with enough steps, a search returns a set of the lowest cost among the sets that its
// judge accepts.
//
// It knows neither GPUs nor the scheduler: a Judge or a Plan returns the preemptor's placement. Packages
// nodestate and gangstate implement these, the plugins TopologyAware and GangPlacement evict.
package eviction
