// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
)

// chosen takes a pod through a cycle up to Reserve, on the node with the best score, and returns why it
// was chosen.
func (e *testEnv) chosen(pod *v1.Pod) *allocation.Decision {
	e.tb.Helper()
	e.show()
	state := e.cycle(pod)
	nodes, err := e.snapshot.NodeInfos().List()
	if err != nil {
		e.tb.Fatal(err)
	}
	var passed []fwk.NodeInfo
	for _, info := range nodes {
		if e.fw.RunFilterPlugins(e.ctx, state, pod, info).IsSuccess() {
			passed = append(passed, info)
		}
	}
	if status := e.fw.RunPreScorePlugins(e.ctx, state, pod, passed); !status.IsSuccess() {
		e.tb.Fatal(status)
	}
	best, most := "", int64(-1)
	scores, status := e.fw.RunScorePlugins(e.ctx, state, pod, passed)
	if !status.IsSuccess() {
		e.tb.Fatal(status)
	}
	for _, s := range scores {
		if s.TotalScore > most {
			best, most = s.Name, s.TotalScore
		}
	}
	if status := e.fw.RunReservePluginsReserve(e.ctx, state, pod, best); !status.IsSuccess() {
		e.tb.Fatal(status)
	}
	return lifecycle.ReadCycle(state).Decision
}

// TestLeftToLargerPods: the record of a decision names the faster machine that was left to larger pods,
// whether the cycle was narrowed or not.
func TestLeftToLargerPods(t *testing.T) {
	const left = "node-3 (NVIDIA-A100-SXM4-80GB) 5.01 ms, left to pods of 8"
	tests := map[string]struct {
		eights int // of the four fast machines so many run a pod of eight
		gpus   int
		notes  map[string]string
		want   string // the machine; what was left
		wantMS float64
	}{
		"four GPUs":           {eights: 3, gpus: 4, want: "slow; " + left, wantMS: 10},
		"with small messages": {eights: 3, gpus: 4, notes: map[string]string{podrequest.MessageSizeKey: "64k"}, want: "slow", wantMS: 0.00664},
		"that must be fast":   {eights: 3, gpus: 4, notes: map[string]string{podrequest.MinBandwidthKey: "200"}, want: "fast", wantMS: 5.01},
		"one GPU":             {eights: 3, gpus: 1, want: "slow"},
		"few pods of eight":   {eights: 1, gpus: 4, want: "fast", wantMS: 5.01},
	}
	for name, tc := range tests {
		for kind, limit := range map[string]int{"all nodes": 0, "a list": 64} {
			t.Run(name+" of "+kind, func(t *testing.T) {
				e := newTestEnv(t, "hgx-a100-8", "hgx-a100-8", "hgx-a100-8", "hgx-a100-8", "h200-nvl-8")
				e.plugin.narrowing.Limit = limit
				for i := range tc.eights {
					e.tenant("eight-"+e.nodes[i].Name, i, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7)
				}
				d := e.chosen(asks("p", 0, tc.gpus).Annotations(tc.notes).Obj())
				got := "fast"
				if d.Node == "node-4" {
					got = "slow"
				}
				if d.Left != nil {
					got += "; " + d.Left.String()
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want,+got):\n%s", diff)
				}
				if d.Millis != tc.wantMS {
					t.Errorf("%v ms, want %v", d.Millis, tc.wantMS)
				}
				text, err := d.Encode()
				if err != nil || strings.Contains(text, `"left"`) != (d.Left != nil) {
					t.Errorf("written as %s, %v", text, err)
				}
			})
		}
	}
}
