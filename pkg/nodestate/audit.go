// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/usage"
)

const (
	// auditStride is how many nodes one cycle looks at, in turn.
	auditStride = 8
	// auditKeep is how many differences are kept.
	auditKeep = 16
)

// audit compares remembered usage with what it is remembered of. Only a scheduling
// cycle can: a memo is keyed by its NodeInfo's generation.
type audit struct {
	mu                  sync.Mutex
	turn                int
	compared, different uint64
	last                []diagnosis.Difference
}

// Audit computes the usage of a few nodes anew and compares it with what the cycle
// would use. Call it at the start of a cycle. It costs nothing unless Config.Audit
// is set. What depends on the informer's store is left out, as Reserve leaves it out:
// it may change without a sign.
func (s *State) Audit(snapshot fwk.NodeInfoLister) {
	if !s.config.Audit {
		return
	}
	nodes, err := snapshot.List()
	if err != nil || len(nodes) == 0 {
		return
	}
	a := &s.audit
	a.mu.Lock()
	defer a.mu.Unlock()
	for range min(auditStride, len(nodes)) {
		a.turn = (a.turn + 1) % len(nodes)
		s.auditNode(nodes[a.turn], snapshot)
	}
}

// auditNode needs s.audit.mu.
func (s *State) auditNode(info fwk.NodeInfo, snapshot fwk.NodeInfoLister) {
	name := info.Node().Name
	x := s.cells.get(name)
	if x == nil {
		return
	}
	n := x.topology.Node()
	if n == nil || n.NodeUID != info.Node().UID {
		return
	}
	s.mu.Lock()
	was := s.remembered(x, n, info)
	var now *usage.Usage
	if was != nil && !was.FromStore {
		now = s.computeUsage(x, n, info.GetGeneration(), info.GetPods(), snapshot)
	}
	s.mu.Unlock()
	// A graph that changed meanwhile shows in the revision, and the agent's end here.
	if now == nil || now.Revision != was.Revision || now.FromStore || now.AgentLived != was.AgentLived {
		return
	}
	s.audit.compared++
	audits.Inc()
	if slices.Equal(was.Used, now.Used) && slices.Equal(was.Counted, now.Counted) && slices.Equal(was.Foreign, now.Foreign) {
		return
	}
	s.audit.different++
	auditDifferences.Inc()
	s.audit.last = append(s.audit.last, diagnosis.Difference{
		Node: name, At: s.clock.Now().UTC(), Remembered: *describeUsage(was), Computed: *describeUsage(now),
	})
	s.audit.last = s.audit.last[max(0, len(s.audit.last)-auditKeep):]
}

func (a *audit) diagnose() *diagnosis.Audit {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &diagnosis.Audit{Compared: a.compared, Different: a.different, Last: slices.Clone(a.last)}
}
