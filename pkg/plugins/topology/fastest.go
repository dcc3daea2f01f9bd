// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"slices"
	"strconv"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/plugins/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
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

// fastest compares the ring bandwidth that the pod asks with the greatest that one of the nodes it may run on
// would give it when empty, so that the text stays the same while pods come and go; empty if there is no such ring.
func (p *Plugin) fastest(c *lifecycle.Cycle, m fwk.NodeToStatusReader) string {
	infos, err := p.Snapshot().List()
	if err != nil {
		return ""
	}
	var best int64
	var on string
	for _, info := range infos {
		node := info.Node()
		if !forNowOrItsRings(m.Get(node.Name)) || p.State().CheckGraph(node) != placement.Fits {
			continue
		}
		n := p.State().Node(node.Name)
		if n == nil || n.Empty == nil {
			continue
		}
		// Of equal nodes that of the first name: the snapshot has them in no lasting order.
		least := best
		if node.Name < on {
			least--
		}
		if ring := placement.FastestRing(n.Empty, c.Demand.Request, least); ring > least {
			best, on = ring, node.Name
		}
	}
	if best == 0 {
		return ""
	}
	return fmt.Sprintf("%s asks %s GB/s, and %d GPUs of an empty node have at most %s GB/s (%s)", podrequest.MinBandwidthKey,
		gbps(c.Demand.Constraint.MinBandwidth), c.Demand.Resources[0].Count, gbps(best), on)
}

// forNowOrItsRings reports whether a node refuses the pod for what pods on it hold, or for its rings alone.
func forNowOrItsRings(status *fwk.Status) bool {
	return status.Code() == fwk.Unschedulable || slices.Equal(status.Reasons(), []string{placement.LowBandwidth.String()})
}

func gbps(kBps int64) string { return strconv.FormatFloat(nvtopo.GBps(kBps), 'f', -1, 64) }
