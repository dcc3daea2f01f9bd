// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/plugins/fairsort"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/whatif/engine"
)

func plugins(shared *lifecycle.Shared) frameworkruntime.Registry {
	return frameworkruntime.Registry{
		topology.Name: topology.New(shared), numa.Name: numa.New(shared), gang.Name: gang.New(gang.NewProcess(shared)),
		fairsort.Name: fairsort.New(fairsort.NewTurns(clock.RealClock{})),
	}
}

// snapshotOf returns a cluster of nodes DGX V100 with these pods, under the shipped configuration.
func snapshotOf(tb testing.TB, nodes int, pods ...*v1.Pod) *whatif.Snapshot {
	tb.Helper()
	config, err := os.ReadFile("../../../../manifests/scheduler/scheduler-config-binding.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	s := &whatif.Snapshot{Header: whatif.Header{Kind: whatif.SnapshotKind, Version: whatif.SnapshotVersion, At: time.Now(), Config: string(config)}}
	add := func(apiVersion, kind string, obj any) {
		if err := s.Add(whatif.KindOf(apiVersion, kind), obj); err != nil {
			tb.Fatal(err)
		}
	}
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		tb.Fatal(err)
	}
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		g, err := m.GraphFor(name)
		if err != nil {
			tb.Fatal(err)
		}
		uid := types.UID(fmt.Sprintf("uid-of-%d", i))
		node := schedtest.Node(name).UID(string(uid)).Label(v1.LabelHostname, name).Label("topology.kubernetes.io/rack", fmt.Sprintf("rack-%d", i/4)).
			GPUs(g.Len()).CPU("80").Memory("512Gi").Obj()
		node.ResourceVersion = "1"
		add("v1", "Node", node)
		graph := v1alpha1.FromGraph(name, v1alpha1.DefaultResource, g)
		graph.UID, graph.ResourceVersion, graph.Spec.NodeUID = types.UID(fmt.Sprintf("graph-of-%d", i)), "1", uid
		add(v1alpha1.SchemeGroupVersion.String(), "NodeGPUTopology", graph)
		for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
			add("coordination.k8s.io/v1", "Lease", &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: prefix + name, Namespace: release.Namespace, ResourceVersion: "1"},
				Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro()), LeaseDurationSeconds: ptr.To[int32](120)},
			})
		}
	}
	for _, pod := range pods {
		add("v1", "Pod", pod)
	}
	return s
}

// asks starts a pod of a question, which no API server has seen.
func asks(name string, gpus int) *schedtest.PodWrapper {
	return schedtest.Pod(name).UID("").Scheduler("topology-aware-scheduler").CPU("2").Memory("1Gi").GPUs(gpus)
}

// running returns a pod on a node, without a choice of GPUs.
func running(name, node string, gpus int) *v1.Pod {
	uid := fmt.Sprintf("%x", sha256.Sum256([]byte(name))) // which does not contain the name
	return asks(name, gpus).UID(uid).Node(node).Phase(v1.PodRunning).ResourceVersion("1").Obj()
}

// member is a pod with a whole node in a gang of two.
func member(i int) *v1.Pod {
	return asks(fmt.Sprintf("g-%d", i), 8).Annotation("nvtopo.dev/gang", "g").Annotation("nvtopo.dev/gang-size", "2").Obj()
}

func answer(t *testing.T, s *whatif.Snapshot, pods ...*v1.Pod) *whatif.Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, err := engine.Answer(ctx, s, &whatif.Asked{Pods: pods}, plugins)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes       int
		running     []*v1.Pod
		asked       []*v1.Pod
		want        []whatif.Outcome
		wantNode    string
		wantWords   string
		wantVictims []string
	}{
		"a pod has the GPUs that the objective prefers": {
			nodes: 1, asked: []*v1.Pod{asks("a", 4).Obj()}, want: []whatif.Outcome{whatif.Placed}, wantNode: "node-0000",
		},
		"a pod that fits nowhere waits, with the scheduler's words": {
			nodes: 2, running: []*v1.Pod{running("r0", "node-0000", 8), running("r1", "node-0001", 6)},
			asked: []*v1.Pod{asks("a", 4).Obj()}, want: []whatif.Outcome{whatif.Waits}, wantWords: "0/2 nodes are available",
		},
		"a gang is whole": {
			nodes: 4, asked: []*v1.Pod{member(0), member(1)}, want: []whatif.Outcome{whatif.Placed, whatif.Placed},
		},
		"a gang one member short waits": {
			nodes: 4, asked: []*v1.Pod{member(0)}, want: []whatif.Outcome{whatif.Waits}, wantWords: "1 of 2 members",
		},
		"every member of a gang that fits nowhere has the reason": {
			nodes: 1, asked: []*v1.Pod{member(0), member(1)}, want: []whatif.Outcome{whatif.Waits, whatif.Waits},
			wantWords: "gang default/g",
		},
		"a pod of a higher priority names its victims": {
			nodes: 1, running: []*v1.Pod{running("r0", "node-0000", 8)},
			asked: []*v1.Pod{asks("a", 4).Priority(1000).Obj()},
			want:  []whatif.Outcome{whatif.Preempts}, wantNode: "node-0000", wantVictims: []string{"default/r0"},
		},
		"a pod behind a gate waits for it": {
			nodes: 1, asked: []*v1.Pod{asks("a", 1).SchedulingGates([]string{"example.com/quota"}).Obj()},
			want: []whatif.Outcome{whatif.Waits}, wantWords: "example.com/quota",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := answer(t, snapshotOf(t, tc.nodes, tc.running...), tc.asked...)
			var got []whatif.Outcome
			for i := range a.Pods {
				got = append(got, a.Pods[i].Outcome)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Fatalf("outcomes (-want +got):\n%s\n%+v", diff, a)
			}
			if tc.wantNode != "" && a.Pods[0].Node != tc.wantNode {
				t.Errorf("node %s, want %s", a.Pods[0].Node, tc.wantNode)
			}
			if !strings.Contains(a.Pods[0].Message, tc.wantWords) {
				t.Errorf("message %q, want %q", a.Pods[0].Message, tc.wantWords)
			}
			if diff := cmp.Diff(tc.wantVictims, a.Victims, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("victims (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWhy: placed pods are explained, each by the state when it was placed.
func TestWhy(t *testing.T) {
	const byPlan = "by the plan of gang default/g: gang default/g: 16 × Tesla-V100-SXM2-32GB in rack-0, 45.2 ms"
	full := []*v1.Pod{running("r0", "node-0000", 8), running("r1", "node-0001", 8)}
	for name, tc := range map[string]struct {
		nodes   int
		running []*v1.Pod
		asked   []*v1.Pod
		want    []string // of each pod
	}{
		"one of three nodes would take it": {
			nodes: 3, running: full, asked: []*v1.Pod{asks("a", 4).Obj()}, want: []string{"best of 1, 2 for FewGPUs"},
		},
		"three equal nodes would take it": {
			nodes: 3, asked: []*v1.Pod{asks("a", 4).Obj()}, want: []string{"best of 3, behind: as good: the scheduler draws lots, as good: the scheduler draws lots"},
		},
		"the second pod finds the first": {
			nodes: 2, asked: []*v1.Pod{asks("a", 8).Obj(), asks("b", 8).Obj()},
			want: []string{"best of 2, behind: as good: the scheduler draws lots", "best of 1, 1 for FewGPUs"},
		},
		"a gang has a plan": {nodes: 2, asked: []*v1.Pod{member(0), member(1)}, want: []string{byPlan, byPlan}},
		"a pod without GPUs, and one that waits": {
			nodes: 2, running: full, asked: []*v1.Pod{asks("a", 0).Obj(), asks("b", 1).Obj()}, want: []string{"nothing", "nothing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := answer(t, snapshotOf(t, tc.nodes, tc.running...), tc.asked...)
			var got []string
			for i := range a.Pods {
				got = append(got, said(a.Pods[i].Why))
			}
			slices.Sort(got) // the scheduler decides which of several is first
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("why (-want +got):\n%s", diff)
			}
		})
	}
}

func said(why *explain.Placed) string {
	switch {
	case why == nil:
		return "nothing"
	case why.Gang != nil:
		return "by the plan of " + why.Gang.Name + ": " + strings.Join(why.Evidence, "; ")
	}
	out := fmt.Sprintf("best of %d", why.Choice.Compared)
	var behind []string
	for _, b := range why.Behind {
		behind = append(behind, b.Why)
	}
	if len(behind) > 0 {
		out += ", behind: " + strings.Join(behind, ", ")
	}
	var b strings.Builder
	for _, r := range why.Choice.NotCompared {
		fmt.Fprintf(&b, ", %d for %s", r.Nodes, r.Cause)
	}
	return out + b.String()
}
