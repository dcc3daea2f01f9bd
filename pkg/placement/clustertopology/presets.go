// SPDX-License-Identifier: Apache-2.0

package clustertopology

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// Preset is a set of node labels that another system writes.
type Preset struct {
	Name, Title string
	Levels      []v1alpha1.FabricLevel // outermost first
}

// Node labels whose names Kubernetes and providers agreed on.
const (
	zoneLabel   = "topology.kubernetes.io/zone"
	SwitchLabel = "topology.kubernetes.io/switch"
	RackLabel   = "topology.kubernetes.io/rack"
)

// Names of the levels with these labels.
const (
	switchLevel = "switch"
	rackLevel   = "rack"
)

// Presets returns the known sets of node labels.
func Presets() []Preset {
	return []Preset{
		{"kubernetes", "topology.kubernetes.io", kubernetesLevels()},
		{"topograph", "NVIDIA Topograph", []v1alpha1.FabricLevel{
			level("core", "fabric.topograph.run/tier-2"), level("spine", "fabric.topograph.run/tier-1"), level("leaf", "fabric.topograph.run/tier-0"),
			level("nvlink", "accelerator.topograph.run/domain"),
		}},
		{"clique", "NVIDIA GPU feature discovery: NVLink between nodes", []v1alpha1.FabricLevel{level("clique", "nvidia.com/gpu.clique")}},
		{"aws", "Amazon EC2 network nodes", []v1alpha1.FabricLevel{
			level("layer-1", "topology.k8s.aws/network-node-layer-1"), level("layer-2", "topology.k8s.aws/network-node-layer-2"),
			level("layer-3", "topology.k8s.aws/network-node-layer-3"),
		}},
		{"gce", "Google Compute Engine", []v1alpha1.FabricLevel{
			level("block", "cloud.google.com/gce-topology-block"), level("subblock", "cloud.google.com/gce-topology-subblock"),
			level("host", "cloud.google.com/gce-topology-host"),
		}},
	}
}

func level(name, label string) v1alpha1.FabricLevel {
	return v1alpha1.FabricLevel{Name: name, NodeLabel: label}
}

func kubernetesLevels() []v1alpha1.FabricLevel {
	return []v1alpha1.FabricLevel{level("zone", zoneLabel), level(switchLevel, SwitchLabel), level(rackLevel, RackLabel)}
}

// Default returns the ClusterTopology of a cluster that has none: zone, switch and rack by their labels
// under topology.kubernetes.io, of which only those that some node has. Racks are inside of switches,
// unless the labels show that switches are inside of racks.
func Default(nodes []Node) *v1alpha1.ClusterTopology {
	levels := slices.DeleteFunc(kubernetesLevels(), func(l v1alpha1.FabricLevel) bool {
		return !slices.ContainsFunc(nodes, func(n Node) bool { return n.Labels[l.NodeLabel] != "" })
	})
	sw := slices.IndexFunc(levels, func(l v1alpha1.FabricLevel) bool { return l.NodeLabel == SwitchLabel })
	if sw >= 0 && sw+1 < len(levels) && several(nodes, RackLabel, SwitchLabel) && !several(nodes, SwitchLabel, RackLabel) {
		levels[sw], levels[sw+1] = levels[sw+1], levels[sw]
	}
	return &v1alpha1.ClusterTopology{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterTopologyName},
		Spec:       v1alpha1.ClusterTopologySpec{Levels: levels},
	}
}

// several reports whether nodes with one value of the label of, in one zone, have several values of the
// label other.
func several(nodes []Node, of, other string) bool {
	type domain struct{ zone, name string }
	first := map[domain]string{}
	for i := range nodes {
		d, v := domain{nodes[i].Labels[zoneLabel], nodes[i].Labels[of]}, nodes[i].Labels[other]
		if d.name == "" || v == "" {
			continue
		}
		if before, seen := first[d]; seen && before != v {
			return true
		}
		first[d] = v
	}
	return false
}
