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

// plainRefresh is how old the index may be for pods that need no accelerator.
const plainRefresh = time.Second

// Narrowing is how a profile wants the nodes of a cycle narrowed.
type Narrowing struct {
	Limit     int     // most nodes to list; 0: never narrow
	Tolerance float64 // points below the best score that are still listed
	Order     nodeindex.Order
	KeepOff   bool // pods without accelerators are kept off nodes that have some
}

// Query is one cycle that asks for a list.
type Query struct {
	*placement.Demand
	Pod       *v1.Pod
	Narrowing *Narrowing
	Nodes     []fwk.NodeInfo // all nodes of the snapshot
	Snapshot  fwk.NodeInfoLister
	Queue     Nominator
	Closed    *Closed
	// Refuses says which nodes' kubelets refuse pods, so that others are listed; nil: none.
	Refuses func(node string) bool
	// Again names the node on which the pod may take a choice again that is in doubt; empty
	// if there is none. It is listed alone.
	Again string
}

// Refresh brings the index up to the cycle's snapshot, unless the pod needs nothing of it.
// It reports whether to ask for a List. It is not, where the profile does not narrow or the
// pod is nominated or names its node.
func (x *Index) Refresh(q *Query) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !q.HasGPUs() && (!q.Narrowing.KeepOff || x.oneSort(q.Nodes) && x.clock.Now().Sub(x.looked) < plainRefresh) {
		return false
	}
	x.refresh(q.Nodes, q.Snapshot) // TakesWholeNodes needs it too
	return q.Narrowing.Limit > 0 && !nodeKnown(q.Pod)
}

// List lists the nodes that the pod does best on; nil where the list would be empty. Pods
// with wishes that the index cannot see get all nodes between which the score decides. best is
// what scores are relative to; nodes that are not listed count in it too. Call Refresh before.
//
// The scheduling queue answers under its own lock, so the index is not locked while the
// queue is asked. A pass lists nodes as if no pod were nominated for them, and notes which
// it took that for granted of. If the queue says otherwise of one, another pass leaves it
// out. A nomination that comes or goes after the question does no harm: the list is advice,
// the framework gives Filter the pods that are nominated then, and a list that is refused
// is taken back (see Retries).
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
