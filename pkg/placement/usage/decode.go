// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Decoder builds parts of Nodes from published objects. Its hashes are equal for equal content within one
// Decoder.
type Decoder struct{ seed maphash.Seed }

// NewDecoder returns a Decoder with its own hash seed.
func NewDecoder() Decoder { return Decoder{seed: maphash.MakeSeed()} }

// Accel returns the accelerators of a resource with the tables of their graph.
func (d Decoder) Accel(resource string, tables *nvtopo.Tables) *Accel {
	g := tables.Graph()
	return &Accel{Resource: resource, Graph: g, Tables: tables, Healthy: g.Healthy(), Degraded: g.Degraded(), Kind: d.kindOf(g)}
}

// ReadNode reads a whole object, for callers that keep no earlier version of it. It fails if its graphs
// cannot be read. Other parts that cannot be read are left out, as in the scheduler. The caller provides
// the Leases of its exporter and agent.
func (d Decoder) ReadNode(reader *v1alpha1.Reader, registry *nvtopo.Registry, t *v1alpha1.NodeGPUTopology, exporter, agent *nodelease.Expiry) (*Node, error) {
	graphs, numa, err := reader.Read(t)
	if err != nil {
		return nil, err
	}
	n := &Node{
		Name: t.Name, NodeUID: t.Spec.NodeUID, ResourceVersion: t.ResourceVersion, ObjectUID: t.UID, Created: t.CreationTimestamp.Time,
		NUMA: numa, Spec: &t.Spec, KubeletStatus: t.Status.Kubelet, Exporter: exporter, Agent: agent,
	}
	for _, resource := range slices.Sorted(maps.Keys(graphs)) {
		n.Accels = append(n.Accels, d.Accel(resource, registry.Tables(graphs[resource])))
		n.Resources = append(n.Resources, resource)
	}
	if err := d.ReadKubelet(n, n.KubeletStatus); err != nil {
		n.KubeletStatus = nil
	}
	n.Complete()
	ReadRecords(n, t)
	return n, nil
}

// kindOf hashes the properties of single devices that a request may name: models and memory, which are not
// part of a graph's class.
func (d Decoder) kindOf(g *nvtopo.Graph) uint64 {
	var h maphash.Hash
	h.SetSeed(d.seed)
	for i := range g.GPUs {
		maphash.WriteComparable(&h, g.GPUs[i].Model)
		maphash.WriteComparable(&h, g.GPUs[i].Memory)
	}
	return h.Sum64()
}

// ReadKubelet reads the settings of the node's kubelet, nil where they are not known. On an error none are
// known.
func (d Decoder) ReadKubelet(n *Node, k *v1alpha1.Kubelet) (err error) {
	n.Settings, n.StaticCPUs, n.KubeletPolicy, n.ReservedCPUs, n.Kubelet = "", false, nvtopo.PolicyNone, nil, nil
	if k == nil {
		return nil
	}
	reserved, err := nvtopo.ParseCPUList(k.ReservedCPUs)
	if err != nil {
		return fmt.Errorf("reservedCPUs: %w", err)
	}
	n.StaticCPUs, n.ReservedCPUs = k.CPUManagerPolicy == "static", reserved
	decides, err := NewKubelet(n, k)
	if err != nil {
		n.StaticCPUs, n.ReservedCPUs = false, nil
		return err
	}
	n.Settings, n.Kubelet = SettingsOf(k), decides
	switch k.TopologyManagerPolicy {
	case "single-numa-node":
		n.KubeletPolicy = nvtopo.PolicySingleNUMANode
	case "restricted":
		n.KubeletPolicy = nvtopo.PolicyRestricted
	}
	if n.Kubelet != nil {
		n.Kubelet.Kind = maphash.String(d.seed, n.Settings)
	}
	return nil
}

// ReadRecords reads kubelet's records. GPUs are used even if the rest of an entry is wrong; CPUs that
// cannot be read are ignored.
func ReadRecords(n *Node, obj *v1alpha1.NodeGPUTopology) (wrong []error) {
	var lists v1alpha1.CPULists
	for i := range obj.Status.Allocations {
		a := &obj.Status.Allocations[i]
		cpus, err := lists.Read(a.CPUs)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("NodeGPUTopology %s: status.allocations[%d].cpus: %w", obj.Name, i, err))
		}
		if n.Records == nil {
			n.Records = map[types.UID][]Record{}
		}
		pod := ""
		if a.Pod != "" {
			pod = a.Namespace + "/" + a.Pod
		}
		n.Records[a.PodUID] = append(n.Records[a.PodUID], Record{
			Pod: pod, Resource: a.Resource, GPUs: a.GPUs, CPUs: cpus, Foreign: a.State == v1alpha1.StateForeign,
		})
	}
	return wrong
}
