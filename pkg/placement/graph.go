// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// CheckGraph says whether an exporter vouches for the graph of n on a Node of this UID: Fits, or
// why it does not count. n is nil where there is none.
func CheckGraph(n *usage.Node, node types.UID, now time.Time) Reason {
	switch {
	case n == nil:
		return NoGraph
	case n.NodeUID != node:
		return NodeReplaced
	case !n.Exporter.Fresh(now):
		return StaleGraph
	case !n.Exporter.Of(n.NodeUID):
		return NodeReplaced
	}
	return Fits
}
