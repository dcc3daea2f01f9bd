// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

// unfinished reports whether an exporter has made the object and has not yet written its status:
// GPUs that are broken would look healthy for a moment. An object that somebody made by hand has
// no Node for its owner and needs no status.
func unfinished(obj *v1alpha1.NodeGPUTopology) bool {
	return obj.Status.Summary == nil && slices.ContainsFunc(obj.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "Node" })
}

// isNew reports whether reading an object builds tables: not if it has no graph that can be
// read. last is whether an earlier version of it was read. It needs c.mu.
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

// decode reads each part of an object alone: a mistake of the agent must not hide what the
// exporter reports, nor the other way round. A part that cannot be read is taken from old, the
// last version of the object that could be read, and the faults name it. Without a graph now or
// before there is no Node. It needs c.mu.
func (c *Cache) decode(obj *v1alpha1.NodeGPUTopology, old *usage.Node) (*usage.Node, faults) {
	var wrong faults
	if old != nil && old.ObjectUID != obj.UID {
		old = nil // what another object said is no part of this one
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
		g := tables.Graph()
		isNew = isNew || built
		n.Accels = append(n.Accels, &usage.Accel{
			Resource: res, Graph: g, Tables: tables, Healthy: g.Healthy(), Degraded: g.Degraded(), Kind: c.kindOf(g),
		})
		n.Resources = append(n.Resources, res)
	}
	if isNew {
		c.limiter.built(obj)
	}
	n.KubeletStatus = obj.Status.Kubelet
	if err := c.readKubelet(n, n.KubeletStatus); err != nil {
		wrong.others = append(wrong.others, fmt.Errorf("NodeGPUTopology %s: status.kubelet: %w", obj.Name, err))
		n.KubeletStatus = nil
		if old != nil && c.readKubelet(n, old.KubeletStatus) == nil {
			n.KubeletStatus = old.KubeletStatus
		}
	}
	n.Complete()
	wrong.others = append(wrong.others, readAllocations(n, obj)...)
	return n, wrong
}

// readKubelet reads how the node's kubelet decides, nil where that is not known. On
// an error nothing is known.
func (c *Cache) readKubelet(n *usage.Node, k *v1alpha1.Kubelet) (err error) {
	n.Settings, n.StaticCPUs, n.KubeletPolicy, n.ReservedCPUs, n.Kubelet = "", false, nvtopo.PolicyNone, nil, nil
	if k == nil {
		return nil
	}
	reserved, err := nvtopo.ParseCPUList(k.ReservedCPUs)
	if err != nil {
		return fmt.Errorf("reservedCPUs: %w", err)
	}
	n.StaticCPUs, n.ReservedCPUs = k.CPUManagerPolicy == "static", reserved
	decides, err := usage.NewKubelet(n, k)
	if err != nil {
		n.StaticCPUs, n.ReservedCPUs = false, nil
		return err
	}
	n.Settings, n.Kubelet = usage.SettingsOf(k), decides
	switch k.TopologyManagerPolicy {
	case "single-numa-node":
		n.KubeletPolicy = nvtopo.PolicySingleNUMANode
	case "restricted":
		n.KubeletPolicy = nvtopo.PolicyRestricted
	}
	if n.Kubelet != nil {
		n.Kubelet.Kind = maphash.String(c.seed, n.Settings)
	}
	return nil
}

// readAllocations reads what kubelet recorded. GPUs count whatever else is wrong with
// an entry; CPUs that cannot be read are as good as none.
func readAllocations(n *usage.Node, obj *v1alpha1.NodeGPUTopology) (wrong []error) {
	var lists v1alpha1.CPULists
	for i := range obj.Status.Allocations {
		a := &obj.Status.Allocations[i]
		cpus, err := lists.Read(a.CPUs)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("NodeGPUTopology %s: status.allocations[%d].cpus: %w", obj.Name, i, err))
		}
		if n.Records == nil {
			n.Records = map[types.UID][]usage.Record{}
		}
		pod := ""
		if a.Pod != "" {
			pod = a.Namespace + "/" + a.Pod
		}
		n.Records[a.PodUID] = append(n.Records[a.PodUID], usage.Record{
			Pod: pod, Resource: a.Resource, GPUs: a.GPUs, CPUs: cpus, Foreign: a.State == v1alpha1.StateForeign,
		})
	}
	return wrong
}

// kindOf sums up what a request may ask of single devices: models and memory, which
// are not part of a graph's class.
func (c *Cache) kindOf(g *nvtopo.Graph) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	for i := range g.GPUs {
		maphash.WriteComparable(&h, g.GPUs[i].Model)
		maphash.WriteComparable(&h, g.GPUs[i].Memory)
	}
	return h.Sum64()
}
