// SPDX-License-Identifier: Apache-2.0

package gangdemo

import (
	"fmt"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
)

// The fabric: two spines of four racks of four nodes with eight GPUs.
const (
	spines        = 2
	racksPerSpine = 4
	nodesPerRack  = 4
	gpusPerNode   = 8
	machine       = "hgx-h200"
)

// Nodes are the nodes of the demo, in the order of the fabric.
func Nodes() []devcluster.NodeSpec {
	var out []devcluster.NodeSpec
	for i := range spines * racksPerSpine * nodesPerRack {
		rack := i / nodesPerRack
		out = append(out, devcluster.NodeSpec{
			Name: fmt.Sprintf("node-%02d", i), Machine: machine,
			Labels: map[string]string{
				clustertopology.SwitchLabel: fmt.Sprintf("spine-%d", rack/racksPerSpine),
				clustertopology.RackLabel:   fmt.Sprintf("rack-%d", rack),
			},
		})
	}
	return out
}

// place is the position of a node in the fabric.
type place struct{ spine, rack string }

// places maps the nodes' names.
func places() map[string]place {
	out := map[string]place{}
	for _, n := range Nodes() {
		out[n.Name] = place{n.Labels[clustertopology.SwitchLabel], n.Labels[clustertopology.RackLabel]}
	}
	return out
}
