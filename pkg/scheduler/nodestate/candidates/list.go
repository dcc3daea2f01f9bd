// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// plainRefresh is the maximum age of the index for pods that need no accelerator.
const plainRefresh = time.Second

// Narrowing has a profile's settings for narrowing the nodes of a cycle.
type Narrowing struct {
	Limit     int     // maximum number of nodes listed; 0: never narrow
	Tolerance float64 // points below the best score that are still listed
	Order     nodeindex.Order
	KeepOff   bool // pods without accelerators are kept off nodes that have some
}

// Query has the inputs of one cycle's list.
type Query struct {
	*placement.Demand
	Pod       *v1.Pod
	Narrowing *Narrowing
	Nodes     []fwk.NodeInfo // all nodes of the snapshot
	Snapshot  fwk.NodeInfoLister
	Queue     Nominator
	Closed    *Closed
	// Refuses reports whether a node's kubelet refuses pods, so that other nodes are listed; nil: none does.
	Refuses func(node string) bool
	// Again names the node on which the pod may take an allocation with unknown outcome again; empty if
	// there is none. It is listed alone.
	Again string
}

// Refresh updates the index to the cycle's snapshot, unless the pod does not need it. It reports whether
// to call List: not if the profile does not narrow, or the pod is nominated or names its node.
func (x *Index) Refresh(q *Query) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !q.HasGPUs() && (!q.Narrowing.KeepOff || x.oneSort(q.Nodes) && x.clock.Now().Sub(x.looked) < plainRefresh) {
		return false
	}
	x.refresh(q.Nodes, q.Snapshot) // TakesWholeNodes needs it too
	return q.Narrowing.Limit > 0 && !nodeKnown(q.Pod)
}

// List lists the best nodes for the pod; nil if the list would be empty. Pods with constraints that the
// index cannot see get all nodes that the score may choose from. Scores are relative to best, to which
// nodes that are not listed contribute, too. Call Refresh before.
//
// The scheduling queue answers under its own lock, so the index is not locked while the queue is read. A
// pass lists nodes as if no pod were nominated for them, and records for which nodes it assumed so. If
// the queue has a nominated pod for one of them, another pass leaves it out. A nomination that comes or
// goes afterwards does no harm: the list is advice, the framework gives Filter the pods that are
// nominated then, and a list that is refused is taken back (see Retries).
func (x *Index) List(q *Query) (names sets.Set[string], best nodeindex.Best) {
	f := finder{Query: *q, rules: NewRules(q.Pod, q.Request, q.Closed), wide: hasWishes(q.Pod)}
	x.borrowBuffers(&f)
	for pass := 1; ; pass++ {
		names = f.find(x)
		if len(names) == 0 || pass > passesByList || !f.askQueue(pass == passesByList) {
			break
		}
	}
	x.returnBuffers(&f)
	if len(names) == 0 {
		return nil, nodeindex.Best{}
	}
	x.lists.Add(1)
	return names, f.ratedBy
}
