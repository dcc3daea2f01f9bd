// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
)

// mostNodes is the largest number of nodes simulated on one machine.
const mostNodes = 1000

// nodeFlags holds the flags that select a cluster's nodes.
type nodeFlags struct {
	machines        []string
	racks, switches int
}

func (n *nodeFlags) addFlags(f *pflag.FlagSet) {
	f.StringSliceVar(&n.machines, "nodes", nil, "nodes, as MACHINE=COUNT,…, named MACHINE-1 to MACHINE-COUNT; default: two of each of six machines")
	f.IntVar(&n.racks, "racks", 0, "label the nodes with so many racks, in order")
	f.IntVar(&n.switches, "switches", 0, "label the racks' nodes with so many switches, in order")
}

// specs returns the nodes: those of a machine have its name and a number.
func (n *nodeFlags) specs() ([]devcluster.NodeSpec, error) {
	out := demo.Nodes()
	if len(n.machines) > 0 {
		out = nil
	}
	seen := map[string]bool{}
	for _, text := range n.machines {
		name, number, ok := strings.Cut(text, "=")
		count, err := strconv.Atoi(number)
		if !ok || err != nil || count < 1 {
			return nil, fmt.Errorf("--nodes %q: want MACHINE=COUNT, as in dgx-h100=4", text)
		}
		if _, err := machine.Lookup(name); err != nil {
			return nil, fmt.Errorf("--nodes %q: %w", text, err)
		}
		if seen[name] {
			return nil, fmt.Errorf("--nodes: %s is there twice", name)
		}
		seen[name] = true
		if len(out)+count > mostNodes {
			return nil, fmt.Errorf("--nodes: more than %d nodes", mostNodes)
		}
		for i := range count {
			out = append(out, devcluster.NodeSpec{Name: name + "-" + strconv.Itoa(i+1), Machine: name})
		}
	}
	if n.racks < 0 || n.racks > len(out) {
		return nil, fmt.Errorf("--racks %d: want 0 to %d, the number of nodes", n.racks, len(out))
	}
	if n.switches < 0 || n.switches > n.racks {
		return nil, fmt.Errorf("--switches %d: want 0 to %d, the number of racks", n.switches, n.racks)
	}
	n.label(out)
	return out, nil
}

// label gives nodes the labels of their racks and switches, in order.
func (n *nodeFlags) label(nodes []devcluster.NodeSpec) {
	for i := range nodes {
		nodes[i].Labels = map[string]string{}
		if n.racks == 0 {
			continue
		}
		rack := i * n.racks / len(nodes)
		nodes[i].Labels[clustertopology.RackLabel] = "rack-" + strconv.Itoa(rack)
		if n.switches > 0 {
			nodes[i].Labels[clustertopology.SwitchLabel] = "switch-" + strconv.Itoa(rack*n.switches/n.racks)
		}
	}
}
