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

	"github.com/nvtopo/nvtopo/pkg/whatif"
)

// scores are those of the nodes in each pod's last cycle, the best first.
type scores struct {
	mu    sync.Mutex
	byPod map[types.UID][]whatif.Candidate // guarded by mu
}

func newScores() *scores { return &scores{byPod: map[types.UID][]whatif.Candidate{}} }

func (s *scores) set(pod types.UID, of []fwk.NodePluginScores) {
	out := make([]whatif.Candidate, len(of))
	for i := range of {
		out[i] = whatif.Candidate{Node: of[i].Name, Score: of[i].TotalScore}
	}
	slices.SortFunc(out, func(a, b whatif.Candidate) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Node, b.Node))
	})
	n := min(len(out), whatif.MaxCandidates)
	for n < len(out) && out[n].Score == out[0].Score {
		n++
	}
	s.mu.Lock()
	s.byPod[pod] = slices.Clone(out[:n])
	s.mu.Unlock()
}

func (s *scores) of(pod types.UID) []whatif.Candidate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byPod[pod]
}

// listening is a framework whose scores are kept.
type listening struct {
	framework.Framework
	scores *scores
}

// RunScorePlugins scores as the framework does.
func (l listening) RunScorePlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, *fwk.Status) {
	out, status := l.Framework.RunScorePlugins(ctx, state, pod, nodes)
	if status.IsSuccess() {
		l.scores.set(pod.UID, out)
	}
	return out, status
}
