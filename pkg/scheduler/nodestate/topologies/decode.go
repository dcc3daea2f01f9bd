// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// unfinished reports whether an exporter has made the object and has not yet written its status: broken
// GPUs would look healthy for a moment. An object made by hand has no Node as its owner and needs no
// status.
func unfinished(obj *v1alpha1.NodeGPUTopology) bool {
	return obj.Status.Summary == nil && slices.ContainsFunc(obj.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "Node" })
}

// isNew reports whether reading an object builds tables; false if its graph cannot be read. last reports
// whether an earlier version of it was read. The caller holds c.mu.
func (c *Cache) isNew(obj *v1alpha1.NodeGPUTopology, last bool) bool {
	if !last && unfinished(obj) {
		return false
	}
	graphs, _, err := c.reader.Read(obj)
	if err != nil {
		return false
	}
	for _, g := range graphs {
		if !c.registry.Has(g) {
			return true
		}
	}
	return false
}

// decode reads each part of an object on its own: a mistake of the agent must not hide the exporter's
// part, nor the reverse. A part that cannot be read is taken from old, the last version of the object
// that could be read, and named in the faults. Without a graph now or before there is no Node. The caller
// holds c.mu.
func (c *Cache) decode(obj *v1alpha1.NodeGPUTopology, old *usage.Node) (*usage.Node, faults) {
	var wrong faults
	if old != nil && old.ObjectUID != obj.UID {
		old = nil // parts of another object are not used for this one
	}
	if old == nil && unfinished(obj) {
		return nil, wrong
	}
	graphs, numa, err := c.reader.Read(obj)
	spec := &obj.Spec
	if err != nil {
		wrong.graph = err
		if old == nil {
			return nil, wrong
		}
		// The devices' health is in the other half of the exporter's part, by their ids.
		mixed := *obj
		mixed.Spec, spec = *old.Spec, old.Spec
		if graphs, numa, err = c.reader.Read(&mixed); err != nil {
			wrong.graph = err
			return nil, wrong
		}
	}
	n := &usage.Node{
		Name: obj.Name, NodeUID: spec.NodeUID, ResourceVersion: obj.ResourceVersion, ObjectUID: obj.UID, Created: obj.CreationTimestamp.Time, NUMA: numa, Spec: spec,
		Exporter: c.leases.Get(nodelease.ExporterPrefix + obj.Name), Agent: c.leases.Get(nodelease.AgentPrefix + obj.Name),
	}
	isNew := false
	for _, res := range slices.Sorted(maps.Keys(graphs)) {
		tables, built := c.registry.Share(graphs[res])
		isNew = isNew || built
		n.Accels = append(n.Accels, c.decoder.Accel(res, tables))
		n.Resources = append(n.Resources, res)
	}
	if isNew {
		c.limiter.built(obj)
	}
	n.KubeletStatus = obj.Status.Kubelet
	if err := c.decoder.ReadKubelet(n, n.KubeletStatus); err != nil {
		wrong.others = append(wrong.others, fmt.Errorf("NodeGPUTopology %s: status.kubelet: %w", obj.Name, err))
		n.KubeletStatus = nil
		if old != nil && c.decoder.ReadKubelet(n, old.KubeletStatus) == nil {
			n.KubeletStatus = old.KubeletStatus
		}
	}
	n.Complete()
	wrong.others = append(wrong.others, usage.ReadRecords(n, obj)...)
	return n, wrong
}
