// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
	"github.com/nvtopo/nvtopo/pkg/plugins/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/release"
	"github.com/nvtopo/nvtopo/pkg/whatif"
	"github.com/nvtopo/nvtopo/pkg/whatif/engine"
)

func plugins(shared *lifecycle.Shared) frameworkruntime.Registry {
	return frameworkruntime.Registry{
		topology.Name: topology.New(shared), numa.Name: numa.New(shared), gang.Name: gang.New(gang.NewProcess(shared)),
	}
}

// snapshotOf is a cluster of so many DGX V100 under the shipped configuration. Pods are on it.
func snapshotOf(tb testing.TB, nodes int, pods ...*v1.Pod) *whatif.Snapshot {
	tb.Helper()
	config, err := os.ReadFile("../../../manifests/scheduler/scheduler-config-binding.yaml")
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
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, ResourceVersion: "1", Labels: map[string]string{
			v1.LabelHostname: name, "topology.kubernetes.io/rack": fmt.Sprintf("rack-%d", i/4),
		}}}
		node.Status.Allocatable = v1.ResourceList{
			v1alpha1.DefaultResource: *resource.NewQuantity(int64(g.Len()), resource.DecimalSI), v1.ResourceCPU: resource.MustParse("80"),
			v1.ResourceMemory: resource.MustParse("512Gi"), v1.ResourcePods: resource.MustParse("110"),
		}
		add("v1", "Node", node)
		graph := v1alpha1.FromGraph(name, v1alpha1.DefaultResource, g)
		graph.UID, graph.ResourceVersion, graph.Spec.NodeUID = types.UID(fmt.Sprintf("graph-of-%d", i)), "1", uid
		graph.Spec.Compact()
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

// podOf is a pod of a number of GPUs; change may be nil.
func podOf(name string, gpus int64, change func(*v1.Pod)) *v1.Pod {
	limits := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"), v1alpha1.DefaultResource: *resource.NewQuantity(gpus, resource.DecimalSI),
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1.PodSpec{SchedulerName: "topology-aware-scheduler", Containers: []v1.Container{{
			Name: "main", Image: "x", Resources: v1.ResourceRequirements{Limits: limits, Requests: limits},
		}}},
	}
	if change != nil {
		change(pod)
	}
	return pod
}

// running is a pod on a node, whose GPUs nobody chose.
func running(name, node string, gpus int64) *v1.Pod {
	return podOf(name, gpus, func(pod *v1.Pod) {
		pod.UID, pod.ResourceVersion, pod.Spec.NodeName, pod.Status.Phase = types.UID(fmt.Sprintf("%x", sha256.Sum256([]byte(name)))), "1", node, v1.PodRunning
	})
}

func member(size int) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Annotations = map[string]string{"nvtopo.dev/gang": "g", "nvtopo.dev/gang-size": strconv.Itoa(size)}
	}
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
	priority := int32(1000)
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
			nodes: 1, asked: []*v1.Pod{podOf("a", 4, nil)}, want: []whatif.Outcome{whatif.Placed}, wantNode: "node-0000",
		},
		"a pod that fits nowhere waits, with the scheduler's words": {
			nodes: 2, running: []*v1.Pod{running("r0", "node-0000", 8), running("r1", "node-0001", 6)},
			asked: []*v1.Pod{podOf("a", 4, nil)}, want: []whatif.Outcome{whatif.Waits}, wantWords: "0/2 nodes are available",
		},
		"a gang is whole": {
			nodes: 4, asked: []*v1.Pod{podOf("g-0", 8, member(2)), podOf("g-1", 8, member(2))}, want: []whatif.Outcome{whatif.Placed, whatif.Placed},
		},
		"a gang one member short waits": {
			nodes: 4, asked: []*v1.Pod{podOf("g-0", 8, member(2))}, want: []whatif.Outcome{whatif.Waits}, wantWords: "1 of 2 members",
		},
		"every member of a gang that fits nowhere has the reason": {
			nodes: 1, asked: []*v1.Pod{podOf("g-0", 8, member(2)), podOf("g-1", 8, member(2))}, want: []whatif.Outcome{whatif.Waits, whatif.Waits},
			wantWords: "gang default/g",
		},
		"a pod of a higher priority names its victims": {
			nodes: 1, running: []*v1.Pod{running("r0", "node-0000", 8)},
			asked: []*v1.Pod{podOf("a", 4, func(p *v1.Pod) { p.Spec.Priority = &priority })},
			want:  []whatif.Outcome{whatif.Preempts}, wantNode: "node-0000", wantVictims: []string{"default/r0"},
		},
		"a pod behind a gate waits for it": {
			nodes: 1, asked: []*v1.Pod{podOf("a", 1, func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/quota"}} })},
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

// TestAnonymizedAnswers: what is said of a cluster without names is what is said of it with them.
func TestAnonymizedAnswers(t *testing.T) {
	var pods []*v1.Pod
	for i := range 6 {
		pods = append(pods, running(fmt.Sprintf("secret-job-%d", i), fmt.Sprintf("node-%04d", i/2), int64(1+i%3)))
	}
	s := snapshotOf(t, 4, pods...)
	var saved bytes.Buffer
	if err := s.Write(&saved); err != nil {
		t.Fatal(err)
	}
	anonymous, err := whatif.Read(bytes.NewReader(saved.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := anonymous.Anonymize(); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := anonymous.Write(&text); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"secret-job", `"node-0000"`, `"rack-0"`} {
		if strings.Contains(text.String(), name) {
			t.Errorf("%s is in the anonymous snapshot", name)
		}
	}
	got, want := answer(t, anonymous, podOf("a", 8, nil)).Pods[0], answer(t, s, podOf("a", 8, nil)).Pods[0]
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(whatif.Pod{}, "Node", "Candidates")); diff != "" {
		t.Errorf("answer (-with +without names):\n%s", diff)
	}
	if want.Node != "node-0003" || got.Node != "node-3" {
		t.Errorf("nodes %s and %s, want node-0003 and node-3", want.Node, got.Node)
	}
}
