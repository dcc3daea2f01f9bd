// SPDX-License-Identifier: Apache-2.0

// Package topology is the TopologyAware plugin: it keeps pods off nodes that
// cannot give them GPUs joined as they ask, scores the others by how good and
// how harmless the best choice there is, and makes the choice.
//
// Its one invariant: the set Score judged and the set Reserve takes come from
// the same function over the same kind of view.
//
// Choosing and bookkeeping are package nodestate's, the extension points it
// shares with NUMAAffinity are package lifecycle's.
package topology
