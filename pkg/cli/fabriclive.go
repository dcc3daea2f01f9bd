// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// readFabric reads the fabric of a cluster and its free GPUs. ct is used instead of the cluster's own if
// it is not nil.
func (c *clusterClients) readFabric(ctx context.Context, ct *v1alpha1.ClusterTopology, resource string) (*fabricCluster, error) {
	var more []clusterobjects.Kind
	if ct == nil {
		more = append(more, clusterobjects.ClusterTopologies)
	}
	o, err := c.readObjects(ctx, more...)
	if err != nil {
		return nil, err
	}
	if ct != nil {
		o.ClusterTopology = ct
	}
	return liveFabric(o, resource), nil
}

// liveFabric converts a cluster's objects to a fabricCluster.
func liveFabric(o *clusterobjects.Objects, resource string) *fabricCluster {
	v := clusterview.Of(o, clusterview.Options{Resource: resource})
	tree := v.Tree()
	out := &fabricCluster{
		tree: tree, tables: make([]*nvtopo.Tables, tree.Len()), free: make([]nvtopo.Mask, tree.Len()), notes: map[int]string{}, problems: v.Problems,
	}
	for _, n := range v.Nodes {
		at, ok := tree.Node(n.Name)
		if !ok {
			continue
		}
		if n.Object().Spec.Unschedulable {
			out.notes[at] = "cordoned"
		}
		if n.NoGraph == "" && n.Tables() != nil {
			out.tables[at], out.free[at] = n.Tables(), surelyFree(n)
		}
	}
	return out
}

// surelyFree returns the free GPUs of a node that are not degraded, without as many of the last ones as
// pods hold untracked.
func surelyFree(n *clusterview.Node) nvtopo.Mask {
	g := n.Graph()
	free := n.FreeMask() &^ g.Degraded()
	counted := n.CountedGPUs
	for i := g.Len() - 1; i >= 0 && counted > 0; i-- {
		if gpu := nvtopo.MaskOf(i); free&gpu != 0 {
			free &^= gpu
			counted--
		}
	}
	return free
}
