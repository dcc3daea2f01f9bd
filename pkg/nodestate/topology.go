// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nodestate/topologies"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// Node returns a node's topology as last read, whether it counts or not; nil if there is none.
func (s *State) Node(name string) *usage.Node { return s.topologies.Node(name) }

// CheckGraph says whether a node's graph counts now: Fits, or why it does not.
func (s *State) CheckGraph(node *v1.Node) placement.Reason {
	e := s.topologies.Known(node.Name)
	return s.topologies.CheckGraph(e, e.Node(), node.UID)
}

// Apply reads an object without regard to how much its node publishes, and wakes nobody. It
// reports whether anything changed. The error names the fields that cannot be used, if that is
// new; in their place the last good ones stay.
func (s *State) Apply(obj *v1alpha1.NodeGPUTopology) (bool, error) {
	c, err := s.topologies.Apply(obj)
	s.changes.takeNote(&c)
	return c.Changed, err
}

// Remove forgets a node's topology if it is of the object that went.
func (s *State) Remove(name string, objectUID types.UID) bool {
	c := s.topologies.Remove(name, objectUID)
	s.changes.takeNote(&c)
	if c.Freed {
		s.changes.freed()
	}
	return c.Changed
}

// WatchGraphs feeds the State with NodeGPUTopologies until ctx ends; see topologies.Cache.Watch.
// Call AwaitSync after it.
func (s *State) WatchGraphs(ctx context.Context, config *rest.Config, client discovery.DiscoveryInterface, others ...cache.ResourceEventHandler) error {
	synced, err := s.topologies.Watch(ctx, config, client, s.changes.passOn(ctx), others...)
	if err != nil {
		return err
	}
	s.lists.add(synced)
	return nil
}

// AwaitGraphs waits until the API server knows NodeGPUTopology; false: ctx ended.
func (s *State) AwaitGraphs(ctx context.Context, client discovery.DiscoveryInterface) bool {
	return s.topologies.AwaitServed(ctx, client)
}

// Reports tells of every node that has accelerators, by its allocatable resources or by its
// graph. It is for metrics and reports; nothing is decided by it.
func (s *State) Reports() []topologies.Report {
	if s.listers.stores.nodes == nil {
		return nil
	}
	nodes, err := s.listers.stores.nodes.List(labels.Everything())
	if err != nil {
		klog.Background().Error(err, "Listing nodes failed")
		return nil
	}
	return s.topologies.Reports(nodes, s.index.Resources())
}
