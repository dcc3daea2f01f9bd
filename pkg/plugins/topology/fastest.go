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

// besideRings prepends to a status of PostFilter, if slow, the requested ring bandwidth and the greatest
// one that the pod can have. slow: nodes were refused because their rings are slower than requested.
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

// maxKinds bounds the kinds of empty machines for which a ring is computed, since it happens in the
// scheduling cycle.
const maxKinds = 32

// kind is a kind of empty machines on which a pod gets the same ring: with the same tables and the same
// usable GPUs.
type kind struct {
	tables *nvtopo.Tables
	usable nvtopo.Mask
}

// example is the machine of a kind whose node comes first by name: the order of nodes in the snapshot
// changes.
type example struct {
	node  string
	empty *usage.Usage
	best  int64 // the best of all rings of as many GPUs of the machine, kB/s
}

// fastest compares the requested ring bandwidth with the greatest one that the pod would have on one of
// the nodes it may run on, when empty, so that the text stays the same while pods come and go; empty if
// there is no such ring.
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

// kinds returns the kinds of nodes that refuse the pod because of the pods on them or of their rings, the
// fastest first.
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

// forNowOrItsRings reports whether a node refuses the pod because of the pods on it, or of its rings
// alone.
func forNowOrItsRings(status *fwk.Status) bool {
	reasons := status.Reasons()
	return status.Code() == fwk.Unschedulable || len(reasons) == 1 && reasons[0] == placement.LowBandwidth.String()
}
