// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/topologies"
)

// Graphs reads the NodeGPUTopologies into the node cache.
type Graphs struct {
	topologies *topologies.Cache
	changes    *Changes
	lists      *FirstLists
}

// Apply reads an object without rate limit and wakes no pods. It reports whether anything changed. The
// error names the fields that cannot be used, if it is a new one; the last good fields stay in their
// place.
func (g *Graphs) Apply(obj *v1alpha1.NodeGPUTopology) (bool, error) {
	c, err := g.topologies.Apply(obj)
	g.changes.takeNote(&c)
	return c.Changed, err
}

// Remove forgets a node's topology if it came from the object with this UID.
func (g *Graphs) Remove(name string, objectUID types.UID) bool {
	c := g.topologies.Remove(name, objectUID)
	g.changes.takeNote(&c)
	if c.Freed {
		g.changes.freed()
	}
	return c.Changed
}

// Watch reads NodeGPUTopologies until ctx ends; see topologies.Cache.Watch.
// Call AwaitSync after it.
func (g *Graphs) Watch(ctx context.Context, config *rest.Config, client discovery.DiscoveryInterface, others ...cache.ResourceEventHandler) error {
	synced, err := g.topologies.Watch(ctx, config, client, g.changes.passOn(ctx), others...)
	if err != nil {
		return err
	}
	g.lists.add(synced)
	return nil
}

// AwaitServed waits until the API server serves NodeGPUTopology; it returns false if ctx ended first.
func (g *Graphs) AwaitServed(ctx context.Context, client discovery.DiscoveryInterface) bool {
	return g.topologies.AwaitServed(ctx, client)
}
