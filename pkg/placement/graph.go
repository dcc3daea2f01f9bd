// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// CheckGraph returns Fits if the graph of n is valid for a Node with this UID, its exporter's Lease being
// fresh, or the reason why it is not. n is nil if there is none.
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
