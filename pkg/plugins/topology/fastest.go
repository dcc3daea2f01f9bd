// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
)

// besideRings puts before a status of PostFilter, if slow, how fast a ring the pod asks and how fast one it can
// have at most. slow says that nodes were refused because their rings are slower than asked.
func (p *Plugin) besideRings(status *fwk.Status, slow bool, c *lifecycle.Cycle, m fwk.NodeToStatusReader) *fwk.Status {
	if !slow || status.IsSuccess() || status.Code() == fwk.Error {
		return status
	}
	text := p.fastest(c, m)
	if text == "" {
		return status
	}
	if said := status.Message(); said != "" {
		text += "; " + said
	}
	return fwk.NewStatus(status.Code(), text)
}

// maxKinds bounds the kinds of empty machines of which a ring is chosen: it is done in the scheduling cycle.
const maxKinds = 32

// kind are empty machines that give a pod the same ring: of the same tables, with the same GPUs in order.
type kind struct {
	tables *nvtopo.Tables
	usable nvtopo.Mask
}

// example is the machine of a kind whose node has the first name: the snapshot has nodes in no lasting order.
type example struct {
	node  string
	empty *usage.Usage
	best  int64 // of all rings of as many GPUs of the machine, kB/s
}

// fastest compares the ring bandwidth that the pod asks with the greatest that one of the nodes it may run on
// would give it when empty, so that the text stays the same while pods come and go; empty if there is no such ring.
func (p *Plugin) fastest(c *lifecycle.Cycle, m fwk.NodeToStatusReader) string {
	var best int64
	var on string
	for i, x := range p.kinds(c, m) {
		if i == maxKinds || x.best <= best {
			break
		}
		if ring := placement.FastestRing(x.empty, c.Demand.Request); ring > best {
			best, on = ring, x.node
		}
	}
	if best == 0 {
		return ""
	}
	return fmt.Sprintf("%s asks %s GB/s, and %d GPUs of an empty node have at most %s GB/s (%s)", podrequest.MinBandwidthKey,
		nvtopo.FormatGBps(c.Demand.Constraint.MinBandwidth), c.Demand.Resources[0].Count, nvtopo.FormatGBps(best), on)
}

// kinds are the kinds of nodes that refuse the pod for what pods on them hold or for their rings, the fastest
// first.
func (p *Plugin) kinds(c *lifecycle.Cycle, m fwk.NodeToStatusReader) []example {
	infos, err := p.Snapshot().List()
	if err != nil || len(c.Demand.Resources) != 1 {
		return nil
	}
	all, res := map[kind]example{}, &c.Demand.Resources[0]
	for _, info := range infos {
		node := info.Node()
		if !forNowOrItsRings(m.Get(node.Name)) || p.nodes.CheckGraph(node) != placement.Fits {
			continue
		}
		n := p.nodes.Node(node.Name)
		if n == nil || n.Empty == nil {
			continue
		}
		at := n.Empty.AccelIndex(res.Name)
		if at < 0 {
			continue
		}
		k := kind{n.Empty.Node.Accels[at].Tables, n.Empty.FreeAt(at)}
		if old, ok := all[k]; !ok || node.Name < old.node {
			all[k] = example{node.Name, n.Empty, k.tables.Best(res.Count)}
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b example) int {
		return cmp.Or(cmp.Compare(b.best, a.best), cmp.Compare(a.node, b.node))
	})
}

// forNowOrItsRings reports whether a node refuses the pod for what pods on it hold, or for its rings alone.
func forNowOrItsRings(status *fwk.Status) bool {
	reasons := status.Reasons()
	return status.Code() == fwk.Unschedulable || len(reasons) == 1 && reasons[0] == placement.LowBandwidth.String()
}
