// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Graphs is a cache of the nodes' topologies as last read, and of results computed from them. It only
// saves time. Use NewGraphs; a Graphs is for one goroutine.
type Graphs struct {
	reader   topologyv1alpha1.Reader
	registry *nvtopo.Registry
	decoder  usage.Decoder
	slotter  *placement.SlotCounter
	known    map[string]known // by node
	none     nodelease.Expiry // Leases are not read: the condition Stale shows an expired one
}

// known is the result of reading one version of an object.
type known struct {
	object  types.UID
	version string
	node    *usage.Node // nil: not valid
}

// NewGraphs returns empty Graphs.
func NewGraphs() *Graphs {
	return &Graphs{
		registry: nvtopo.NewRegistry(nvtopo.DefaultWeights()), decoder: usage.NewDecoder(), slotter: placement.NewSlotCounter(), known: map[string]known{},
	}
}

// read returns the topology of a node; nil if it has no valid one.
func (g *Graphs) read(node *v1.Node, t *topologyv1alpha1.NodeGPUTopology) *usage.Node {
	if t == nil || t.Spec.NodeUID != node.UID || meta.IsStatusConditionTrue(t.Status.Conditions, topologyv1alpha1.ConditionStale) {
		return nil
	}
	if k, ok := g.known[t.Name]; ok && k.object == t.UID && k.version == t.ResourceVersion && t.ResourceVersion != "" {
		return k.node
	}
	k := known{object: t.UID, version: t.ResourceVersion, node: g.decode(t)}
	g.known[t.Name] = k
	return k.node
}

// decode reads an object; nil if its graphs cannot be read, which the exporter's own checks report.
func (g *Graphs) decode(t *topologyv1alpha1.NodeGPUTopology) *usage.Node {
	n, err := g.decoder.ReadNode(&g.reader, g.registry, t, &g.none, &g.none)
	if err != nil {
		return nil
	}
	return n
}

// forget removes nodes that are gone.
func (g *Graphs) forget(nodes map[string]*v1.Node) {
	maps.DeleteFunc(g.known, func(name string, _ known) bool { return nodes[name] == nil })
}
