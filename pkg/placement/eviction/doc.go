// SPDX-License-Identifier: Apache-2.0

// Package eviction finds which pods have to go for others: for one pod the search on
// its node (search.go) and what it compares, namely disruption budgets, priorities, the
// number of victims, and how good what they free is; for a gang the units of all nodes
// that go whole or stay (units.go); and which pods nobody is advised to move (movable.go).
//
// Its one invariant: with enough steps, a search returns a set whose cost no other
// set that its judge accepts undercuts.
//
// It knows neither GPUs nor the scheduler: a Judge or a Plan says what the preemptor
// would get. Packages nodestate and gangstate have these, the plugins TopologyAware and
// GangPlacement evict.
package eviction
