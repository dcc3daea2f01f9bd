// SPDX-License-Identifier: Apache-2.0

// Package eviction finds which pods of a node have to go for another: the search
// and what it compares, namely disruption budgets, priorities, the number of
// victims, and how good what they free is.
//
// Its one invariant: with enough steps, a search returns a set whose cost no other
// set that its judge accepts undercuts.
//
// It knows neither GPUs nor the scheduler: a Judge says what the preemptor would
// get. Package nodestate has the judge, the plugin TopologyAware evicts.
package eviction
