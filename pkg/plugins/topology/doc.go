// SPDX-License-Identifier: Apache-2.0

// Package topology is the TopologyAware plugin. It keeps pods off nodes without free GPUs that have the
// requested links, scores the other nodes by the quality of their best set and by its cost for later pods,
// and chooses the allocation.
//
// Its one invariant: the set that Score rates and the set that Reserve takes come from the same function
// over the same kind of view.
//
// Package nodestate chooses and keeps the assumed allocations. Package lifecycle has the extension points
// that this plugin shares with NUMAAffinity.
package topology
