// SPDX-License-Identifier: Apache-2.0

package check

import (
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// checkPrograms notes nodes whose exporter or node agent is silent, and nodes with GPUs that have none.
func (s *scene) checkPrograms() {
	resources := map[string]bool{v1alpha1.DefaultResource: true}
	for _, p := range s.profiles {
		for _, name := range p.Resources {
			resources[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[name]
		if n.object == nil {
			continue
		}
		s.checkExporter(n, offered(n.object, resources))
		s.checkAgent(n)
	}
}

// checkExporter notes that a node with a graph has a silent exporter, or one that offers a resource no graph.
func (s *scene) checkExporter(n *node, resource string) {
	lease := s.leases[nodelease.ExporterPrefix+n.name]
	switch {
	case n.topology == nil && resource != "":
		s.note(Violation{
			Invariant: MissingExporter, Objects: []Object{n.ref()},
			Message: "the node has " + resource + " and no NodeGPUTopology that is its own; see why no exporter publishes one: " + look(n, nodelease.ExporterPrefix, nil),
		})
	case n.topology != nil && !speaksFor(lease, n.object.UID, s.w.Now):
		s.note(Violation{
			Invariant: StaleExporter, Objects: []Object{n.ref(), topologyObject(n.topology)},
			Message: "the graph does not count, since " + silence(n, nodelease.ExporterPrefix, lease) + "; see why its exporter is silent: " + look(n, nodelease.ExporterPrefix, lease),
		})
	}
}

// checkAgent notes that a node's agent is silent. A node without a Lease of its agent has none, as most may.
func (s *scene) checkAgent(n *node) {
	lease := s.leases[nodelease.AgentPrefix+n.name]
	if lease == nil || lease.Spec.RenewTime == nil || !belongsTo(lease, n.object.UID) || fresh(lease, s.w.Now) {
		return
	}
	s.note(Violation{
		Invariant: StaleAgent, Objects: []Object{n.ref()},
		Message: "choices of GPUs are not enforced there, since " + silence(n, nodelease.AgentPrefix, lease) + "; see why its node agent is silent: " + look(n, nodelease.AgentPrefix, lease),
	})
}

func (n *node) ref() Object { return Object{Kind: "Node", Name: n.name, UID: n.object.UID} }

// silence says since when the Lease of a node's program has not counted.
func silence(n *node, prefix string, l *coordinationv1.Lease) string {
	switch {
	case l == nil || l.Spec.RenewTime == nil:
		return "there is no Lease " + prefix + n.name + " of this node"
	case !belongsTo(l, n.object.UID):
		return "the Lease " + l.Namespace + "/" + l.Name + " is of an earlier node of the name"
	}
	return "the Lease " + l.Namespace + "/" + l.Name + " was last renewed at " + nodelease.Renewed(l).UTC().Format(time.RFC3339)
}

// look has the commands that show the Lease and the pod of a node's program.
func look(n *node, prefix string, l *coordinationv1.Lease) string {
	namespace := release.Namespace
	if l != nil {
		namespace = l.Namespace
	}
	return nodelease.Commands(namespace, prefix, n.name)
}

// offered names one of the resources that the node has for pods; it is empty if there is none.
func offered(n *v1.Node, resources map[string]bool) string {
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		if q := n.Status.Allocatable[v1.ResourceName(name)]; q.Sign() > 0 {
			return name
		}
	}
	return ""
}
