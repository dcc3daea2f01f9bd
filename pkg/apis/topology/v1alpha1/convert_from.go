// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// FromGraph returns the object that describes a graph: spec, except the node's
// identity (nodeUID, bootID), and of status the summary and the health of each
// GPU. An empty resource means DefaultResource. The graph's GPUs must be in
// ascending order of their index for Graphs to return the same positions.
func FromGraph(nodeName, resourceName string, g *nvtopo.Graph) *NodeGPUTopology {
	resourceName = cmp.Or(resourceName, DefaultResource)
	t := &NodeGPUTopology{
		TypeMeta:   metav1.TypeMeta{APIVersion: SchemeGroupVersion.String(), Kind: Kind},
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		// Required lists must be written as [] when empty: the schema refuses null.
		Spec: NodeGPUTopologySpec{GPUs: []GPU{}, NUMANodes: []NUMANode{}},
	}
	for i := range g.GPUs {
		d := &g.GPUs[i]
		t.Spec.GPUs = append(t.Spec.GPUs, GPU{
			ID: d.UUID, Index: int32(d.Index), Resource: resourceName, PCIBusID: d.PCIBusID, Model: WithoutControls(d.Model),
			Memory: bytesOf(d.Memory), NUMANode: int32(d.NUMANode), CPUs: d.CPUs.String(), MIG: d.MIG, Slices: fromSlices(d.Slices),
		})
		t.Status.GPUHealth = append(t.Status.GPUHealth, GPUHealth{
			ID: d.UUID, Healthy: d.Unhealthy == "", Degraded: d.Unhealthy == "" && d.Degraded != "", Reason: BoundedText(cmp.Or(d.Unhealthy, d.Degraded)),
		})
	}
	t.Spec.LinkKinds, t.Spec.LinkRows = fromLinks(g)
	for i := range g.NUMANodes {
		t.Spec.NUMANodes = append(t.Spec.NUMANodes, fromNUMANode(&g.NUMANodes[i]))
	}
	for i := range g.NICs {
		nic := NIC{Name: WithoutControls(g.NICs[i].Name), NUMANode: int32(g.NICs[i].NUMANode)}
		for _, l := range g.NICs[i].Levels {
			nic.Distances = append(nic.Distances, l.String())
		}
		t.Spec.NICs = append(t.Spec.NICs, nic)
	}
	t.Status.Summary = summarise(g)
	return t
}

func fromSlices(slices []nvtopo.Slice) (out []Slice) {
	for _, s := range slices {
		out = append(out, Slice{ID: s.UUID, Profile: s.Profile})
	}
	return out
}

// maxReason is the schema's bound of a reason; drivers' own words are of any length.
const maxReason = 256

// BoundedText is a text without control characters, cut where it is longer than the schema's reasons may be.
func BoundedText(s string) string {
	s = WithoutControls(s)
	if len(s) <= maxReason {
		return s
	}
	return strings.ToValidUTF8(s[:maxReason], "")
}

// WithoutControls has blanks in place of control characters, which the schema refuses: a terminal
// would act upon them.
func WithoutControls(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

func fromNUMANode(n *nvtopo.NUMANode) NUMANode {
	out := NUMANode{ID: int32(n.ID), CPUs: n.CPUs.String(), Memory: bytesOf(n.Memory)}
	if out.ThreadsPerCore = evenThreads(n); out.ThreadsPerCore == 0 {
		for _, s := range n.Siblings {
			out.Siblings = append(out.Siblings, s.String())
		}
	}
	for _, d := range n.Distances {
		out.Distances = append(out.Distances, int32(d))
	}
	return out
}

func bytesOf(n int64) *resource.Quantity {
	if n == 0 {
		return nil
	}
	return resource.NewQuantity(n, resource.BinarySI)
}

func summarise(g *nvtopo.Graph) *Summary {
	s := &Summary{GPUs: int32(g.Len()), Healthy: int32(g.Healthy().Len()), Degraded: int32(g.Degraded().Len()), Interconnect: g.Interconnect()}
	for i := range g.NUMANodes {
		if len(g.NUMANodes[i].CPUs) > 0 {
			s.NUMANodes++
		}
	}
	return s
}
