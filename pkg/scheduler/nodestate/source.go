// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/waking"
)

// source answers the queries of the node index and the waker about one node.
type source struct {
	s *NodeCache
	x *cell
}

var (
	_ candidates.Source = source{}
	_ waking.Source     = source{}
)

func (o source) Topology() *usage.Node { return o.x.entry.Node() }

func (o source) CheckExporter(n *usage.Node, now time.Time) placement.Reason {
	return o.x.entry.CheckExporter(n, now)
}

func (o source) Usage(n *usage.Node, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	return o.s.usage(o.x, n, info, snapshot)
}

func (o source) Node() *v1.Node { return o.s.listers.nodes.node(o.x.name) }

func (o source) Pods() []*v1.Pod { return o.s.listers.nodes.podsOn(o.x.name) }

func (o source) Nominated() []fwk.PodInfo { return o.s.listers.nominated(o.x.name) }

func (o source) CheckGraph(n *usage.Node, node types.UID) placement.Reason {
	return o.s.topologies.CheckGraph(o.x.entry, n, node)
}

// Reserved leaves void reservations out: the waker sees nothing older than the event that ended them.
func (o source) Reserved(n *usage.Node, info fwk.NodeInfo, planned []usage.Reservation, except types.UID) waking.Reserved {
	reserved := o.x.reserved.View().Live(except)
	var out waking.Reserved
	for _, kept := range reserved.Nominated {
		out.Nominated = append(out.Nominated, kept.Allocation)
	}
	for _, r := range reserved.Reservations {
		out.Pods = append(out.Pods, r.UID)
	}
	if n == nil {
		return out
	}
	reserved.Reservations = append(reserved.Reservations, planned...)
	in := o.s.input(reserved, n, info.GetGeneration(), info.GetPods(), oneNode{info: info})
	out.Usage = usage.Compute(&in)
	return out
}

// oneNode is a lister with one node.
type oneNode struct {
	fwk.NodeInfoLister
	info fwk.NodeInfo
}

func (o oneNode) Get(string) (fwk.NodeInfo, error) { return o.info, nil }

// newCell returns the cell of a node of which nothing is known yet.
func (s *NodeCache) newCell(name string) *cell {
	x := &cell{name: name, entry: s.topologies.Entry(name)}
	x.candidate.Init(source{s, x})
	x.waking.Init(source{s, x})
	x.reserved.Init(name)
	return x
}
