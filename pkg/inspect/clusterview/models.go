// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"cmp"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// Model is what the nodes with GPUs of one model have.
type Model struct {
	Model  string `json:"model"` // as Node.Model: "mixed" of nodes with several
	Supply Supply `json:"supply"`
	// WholeNodes is how many of the nodes have all their GPUs free.
	WholeNodes int `json:"wholeNodes"`
	// Largest is the largest free linked group of a node that pods may go to; of equally large ones
	// that of the fastest ring, and then of the first node. Nil if no two free GPUs are one.
	Largest *Ring `json:"largest,omitempty"`
}

// models sums up the nodes by the model of their GPUs, in the natural order of the names. Nodes
// without GPUs are left out.
func models(nodes []*Node) []Model {
	out := []Model{}
	for _, n := range nodes {
		if n.Supply.GPUs == 0 {
			continue
		}
		at := slices.IndexFunc(out, func(m Model) bool { return m.Model == n.Model })
		if at < 0 {
			at = len(out)
			out = append(out, Model{Model: n.Model, Supply: newSupply()})
		}
		out[at].add(n)
	}
	slices.SortFunc(out, func(a, b Model) int { return fabric.CompareNames(a.Model, b.Model) })
	return out
}

func (m *Model) add(n *Node) {
	m.Supply.add(&n.Supply)
	if !n.Open() {
		return
	}
	if n.Supply.FreeGPUs == n.Supply.GPUs {
		m.WholeNodes++
	}
	if n.Largest.largerThan(m.Largest) {
		m.Largest = n.Largest
	}
}

// largerThan compares free groups by their GPUs, and then by their rings.
func (r *Ring) largerThan(o *Ring) bool {
	if r == nil || o == nil {
		return r != nil
	}
	return cmp.Or(cmp.Compare(len(r.GPUs), len(o.GPUs)), cmp.Compare(r.BandwidthGBps, o.BandwidthGBps)) > 0
}
