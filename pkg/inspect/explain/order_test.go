// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// decided writes why a pod was chosen.
func (e *testEnv) decided(t *testing.T, name string, d allocation.Decision) {
	t.Helper()
	p := e.pod(name)
	a, err := allocation.Of(p, p.Spec.NodeName)
	if err != nil {
		t.Fatal(err)
	}
	d.Version, d.Node, d.At = allocation.DecisionVersion, p.Spec.NodeName, a.Assumed
	if p.Annotations[allocation.DecisionKey], err = d.Encode(); err != nil {
		t.Fatal(err)
	}
}

// TestBestByOrder: what a pod could have now is what the scheduler would choose, and a faster machine
// that it would not choose is named with the reason.
func TestBestByOrder(t *testing.T) {
	const (
		left   = "4 × NVIDIA-H200-NVL in slow, 10 ms; fast-3 (NVIDIA-A100-SXM4-80GB) 5.01 ms, left to pods of 8"
		no     = "the scheduler would choose no better set now"
		butFor = no + ", but for those that are left to larger pods"
	)
	hardware := &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{
		Weight: 1, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: "nvidia.com/gpu.product", Operator: v1.NodeSelectorOpIn, Values: []string{"slow"}},
		}},
	}}}}
	tests := map[string]struct {
		eights int
		on     string
		gpus   []int
		change func(t *testing.T, e *testEnv)
		best   string
		want   []string
	}{
		"a faster machine is left to pods of eight": {eights: 3, on: "slow", gpus: []int{0, 1, 2, 3}, best: "slow", want: []string{left, butFor}},
		"it would be taken where few pods need it": {
			eights: 1, on: "slow", gpus: []int{0, 1, 2, 3}, best: "fast-1", want: []string{"node fast-1 would give a better set now: GPUs 0,1,2,3, NV12, 300 GB/s of 300"},
		},
		"a pod that has it would leave it now": {eights: 3, on: "fast-3", gpus: []int{0, 1, 2, 3}, best: "slow", want: []string{butFor}},
		"one GPU has no use for the links":     {eights: 3, on: "slow", gpus: []int{0}, best: "slow", want: []string{no}},
		"small messages are no faster there": {
			eights: 3, on: "slow", gpus: []int{0, 1, 2, 3}, best: "slow", want: []string{no},
			change: func(_ *testing.T, e *testEnv) { e.pod("p").Annotations[podrequest.MessageSizeKey] = "64k" },
		},
		"the pod prefers the slow machine for its hardware": {
			eights: 1, on: "slow", gpus: []int{0, 1, 2, 3}, best: "slow", want: []string{no},
			change: func(_ *testing.T, e *testEnv) { e.pod("p").Spec.Affinity = hardware },
		},
		"what was left then, and is not now": {
			eights: 1, on: "slow", gpus: []int{0, 1, 2, 3}, best: "fast-1",
			change: func(t *testing.T, e *testEnv) {
				t.Helper()
				e.decided(t, "p", allocation.Decision{Millis: 12, Left: &allocation.Left{Node: "gone", Model: "NVIDIA-H200", Millis: 3.5, PodsOf: 8}})
			},
			want: []string{
				"4 × NVIDIA-H200-NVL in slow, 12 ms; gone (NVIDIA-H200) 3.5 ms, left to pods of 8",
				"node fast-1 would give a better set now: GPUs 0,1,2,3, NV12, 300 GB/s of 300",
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv()
			for i := range 4 {
				e.node(t, fmt.Sprint("fast-", i), "hgx-a100-8", nil)
			}
			e.node(t, "slow", "h200-nvl-8", map[string]string{"nvidia.com/gpu.product": "slow"})
			for i := range tc.eights {
				e.holds(t, fmt.Sprint("eight-", i), fmt.Sprint("fast-", i), 0, 1, 2, 3, 4, 5, 6, 7)
			}
			e.holds(t, "p", tc.on, tc.gpus...)
			if tc.change != nil {
				tc.change(t, e)
			}
			got, err := Pod(e.World, "team", "p")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.Evidence); diff != "" {
				t.Errorf("evidence (-want,+got):\n%s", diff)
			}
			if got.Choice.BestNode != tc.best {
				t.Errorf("the best is on %s, want %s", got.Choice.BestNode, tc.best)
			}
		})
	}
}

// TestNotCompared: beside the best that a pod could have now it is said of how many nodes it is the best, and why the
// others took no part.
func TestNotCompared(t *testing.T) {
	e := newTestEnv()
	for _, name := range []string{"n0", "n1", "full-0", "full-1", "cordoned", "silent", "refusing"} {
		e.node(t, name, cube, nil)
	}
	e.holds(t, "p", "n0", 0, 1)
	for _, name := range []string{"full-0", "full-1"} {
		e.holds(t, "on-"+name, name, 0, 1, 2, 3, 4, 5, 6, 7)
	}
	e.silence("silent")
	for i := range e.Nodes {
		e.Nodes[i].Spec.Unschedulable = e.Nodes[i].Name == "cordoned"
	}
	for i := range 3 { // kubelet of that node refuses pods
		e.holds(t, fmt.Sprint("refused-", i), "refusing", i)
		p := &e.Pods[len(e.Pods)-1]
		p.CreationTimestamp, p.Status.Phase, p.Status.Reason = metav1.NewTime(now.Add(-time.Minute)), v1.PodFailed, "UnexpectedAdmissionError"
	}
	got, err := Pod(e.World, "team", "p")
	if err != nil {
		t.Fatal(err)
	}
	named := map[Cause]string{}
	for _, r := range got.Choice.NotCompared {
		named[r.Cause] = fmt.Sprintf("%d: %s", r.Nodes, nodes(r.Named))
	}
	want := map[Cause]string{FewGPUs: "2: full-0, full-1", Cordoned: "1: cordoned", StaleGraph: "1: silent", RefusedPods: "1: refusing"}
	if diff := cmp.Diff(want, named); diff != "" || got.Choice.Compared != 2 || got.Choice.NotCompared[0].Cause != FewGPUs {
		t.Errorf("%d are compared, want 2; not compared, the most first (-want,+got):\n%s", got.Choice.Compared, diff)
	}
}

// TestGangPlacementShown: of a gang and of its members it is told what the plan was chosen from.
func TestGangPlacementShown(t *testing.T) {
	const summary = "8 × NVIDIA-H200 in rack-2, 3.5 ms; rack-1 (NVIDIA-L40S) 16.7 ms"
	written := &gangrequest.Placement{Level: "rack", Chosen: "8 × NVIDIA-H200 in rack-2, 3.5 ms", Others: []string{"rack-1 (NVIDIA-L40S) 16.7 ms"}}
	text, err := written.Encode()
	if err != nil {
		t.Fatal(err)
	}
	old, err := (&gangrequest.Placement{Level: "rack", Model: "NVIDIA-H200"}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		note             string
		wantGang, wantOf []string
	}{
		"as it was written":                {text, []string{summary}, []string{"gang team/train: " + summary}},
		"an older scheduler wrote no more": {old, nil, nil},
		"what cannot be read":              {"{", nil, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv()
			e.node(t, "n0", cube, nil).node(t, "n1", cube, nil)
			for i, node := range []string{"n0", "n1"} {
				name := fmt.Sprint("train-", i)
				e.holds(t, name, node, 0, 1, 2, 3)
				p := e.pod(name)
				p.Annotations[gangrequest.GangKey], p.Annotations[gangrequest.GangSizeKey], p.Annotations[gangrequest.RankKey] = "train", "2", strconv.Itoa(i)
			}
			e.pod("train-0").Annotations[gangrequest.PlacementKey] = tc.note
			of, err := Pod(e.World, "team", "train-1")
			if err != nil {
				t.Fatal(err)
			}
			gang, err := GangOf(e.World, gangrequest.Key{Source: gangrequest.SourceAnnotation, Namespace: "team", Name: "train"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantGang, gang.Evidence); diff != "" {
				t.Errorf("the gang (-want,+got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantOf, of.Evidence); diff != "" {
				t.Errorf("a member (-want,+got):\n%s", diff)
			}
			if of.Choice.Best != nil {
				t.Errorf("a member alone could have %s on %s", of.Choice.Best, of.Choice.BestNode)
			}
		})
	}
}
