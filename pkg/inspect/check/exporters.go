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

// checkExporters notes nodes whose exporter is silent, and nodes with GPUs and without a graph.
func (s *scene) checkExporters() {
	leases := map[string]*coordinationv1.Lease{}
	for i := range s.w.Leases {
		leases[s.w.Leases[i].Name] = &s.w.Leases[i]
	}
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
		node := Object{Kind: "Node", Name: name, UID: n.object.UID}
		if n.topology == nil {
			if resource := offered(n.object, resources); resource != "" {
				s.note(Violation{
					Invariant: MissingExporter, Objects: []Object{node},
					Message: "the node has " + resource + " and no NodeGPUTopology that is its own: does nvtopo-exporter run there? " + nodelease.Commands(release.Namespace, nodelease.ExporterPrefix, name),
				})
			}
			continue
		}
		lease := leases[nodelease.ExporterPrefix+name]
		if speaksFor(lease, n.object.UID, s.w.Now) {
			continue
		}
		namespace, since := release.Namespace, "there is no Lease "+nodelease.ExporterPrefix+name+" of this node"
		if lease != nil && lease.Spec.RenewTime != nil {
			namespace, since = lease.Namespace, "the Lease "+lease.Namespace+"/"+lease.Name+" was last renewed at "+nodelease.Renewed(lease).UTC().Format(time.RFC3339)
		}
		s.note(Violation{
			Invariant: StaleExporter, Objects: []Object{node, topologyObject(n.topology)},
			Message: "the graph does not count, since " + since + "; see why its exporter is silent: " + nodelease.Commands(namespace, nodelease.ExporterPrefix, name),
		})
	}
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
