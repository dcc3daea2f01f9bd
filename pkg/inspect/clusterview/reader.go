// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Options say what of a cluster is viewed.
type Options struct {
	// Resource is the extended resource of the GPUs; v1alpha1.DefaultResource if it is empty.
	Resource string
	// MinLink leaves out nodes of which no two GPUs have this link or a better one, and counts only
	// groups of which any two have. The zero Class is any link.
	MinLink nvtopo.Class
}

// reader reads the topologies of nodes.
type reader struct {
	topologies v1alpha1.Reader
	registry   *nvtopo.Registry
	decoder    usage.Decoder
	leases     *nodelease.Table
	held       map[string]bool // names of the Leases that there are
	exporters  bool            // Leases of exporters are known
	o          *clusterobjects.Objects
}

func newReader() *reader {
	return &reader{registry: nvtopo.NewRegistry(nvtopo.DefaultWeights()), decoder: usage.NewDecoder(), leases: nodelease.NewTable(0)}
}

// at reads the objects of a moment from now on. A Lease counts as nodelease.Expiry says: from when
// it was seen renewed, by the times of the objects.
func (r *reader) at(o *clusterobjects.Objects) *reader {
	r.o, r.exporters = o, o.LeasesKnown && len(o.Leases) > 0
	gone := r.held
	r.held = make(map[string]bool, len(o.Leases))
	for i := range o.Leases {
		name := o.Leases[i].Name
		r.leases.SetOnce(&o.Leases[i], o.Now)
		r.held[name] = true
		delete(gone, name)
		r.exporters = r.exporters || strings.HasPrefix(name, nodelease.ExporterPrefix)
	}
	for name := range gone {
		r.leases.Drop(name)
	}
	return r
}

// read reads the topology of a node: nil if none was published or it cannot be read. why is why
// nobody chooses GPUs by it; empty if the scheduler does, and if there is none.
func (r *reader) read(node types.UID, t *v1alpha1.NodeGPUTopology) (n *usage.Node, why string) {
	if t == nil {
		return nil, ""
	}
	exporter := r.leases.Get(nodelease.ExporterPrefix + t.Name)
	n, err := r.decoder.ReadNode(&r.topologies, r.registry, t, exporter, r.leases.Get(nodelease.AgentPrefix+t.Name))
	switch {
	case err != nil:
		return nil, err.Error()
	case n.NodeUID != node:
		return n, "its graph is of an earlier node of the name"
	case !r.exporters && meta.IsStatusConditionTrue(t.Status.Conditions, v1alpha1.ConditionStale):
		return n, "its graph is stale"
	case !r.exporters:
		return n, ""
	}
	switch counts := placement.CheckGraph(n, node, r.o.Now); {
	case counts == placement.Fits:
		return n, ""
	case counts == placement.NodeReplaced:
		return n, "its graph is stale: the exporter's Lease is of an earlier node of the name"
	case exporter.Until() == nil:
		return n, "its graph is stale: there is no Lease " + nodelease.ExporterPrefix + t.Name
	}
	return n, "its graph is stale: the exporter's Lease has run out"
}
