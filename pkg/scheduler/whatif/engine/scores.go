// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
)

// scores has the scores of the best nodes in each pod's last cycle.
type scores struct {
	mu    sync.Mutex
	byPod map[types.UID]whatif.Scored // guarded by mu
}

func newScores() *scores { return &scores{byPod: map[types.UID]whatif.Scored{}} }

func (s *scores) set(pod types.UID, of []fwk.NodePluginScores) {
	out := make([]whatif.Candidate, len(of))
	for i := range of {
		out[i] = whatif.Candidate{Node: of[i].Name, Score: of[i].TotalScore}
	}
	slices.SortFunc(out, func(a, b whatif.Candidate) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Node, b.Node))
	})
	equal := 0
	for equal < len(out) && out[equal].Score == out[0].Score {
		equal++
	}
	s.mu.Lock()
	s.byPod[pod] = whatif.Scored{Candidates: slices.Clone(out[:min(len(out), whatif.MaxCandidates)]), Equal: equal}
	s.mu.Unlock()
}

func (s *scores) of(pod types.UID) whatif.Scored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byPod[pod]
}

// listening is a framework whose scores are recorded.
type listening struct {
	framework.Framework
	scores *scores
}

// RunScorePlugins scores as the framework does, and records the scores.
func (l listening) RunScorePlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, *fwk.Status) {
	out, status := l.Framework.RunScorePlugins(ctx, state, pod, nodes)
	if status.IsSuccess() {
		l.scores.set(pod.UID, out)
	}
	return out, status
}
