// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

func poolOf(v *v1alpha1.Virtualization) *v1alpha1.ComputePool {
	return &v1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.ComputePoolSpec{Virtualization: v}}
}

func TestCondition(t *testing.T) {
	mig := &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyMIG, Profile: "all-3g.40gb"}
	applied := aNode("a", has("mig", "all-3g.40gb"), label(LabelMIGState, "success"))
	tests := map[string]struct {
		v                      *v1alpha1.Virtualization
		nodes                  []*v1.Node
		shared                 []string
		blocked                map[string][]string
		wantReason, wantInText string
	}{
		"nothing is asked for":                     {nodes: []*v1.Node{aNode("a")}},
		"mig without a profile":                    {v: &v1alpha1.Virtualization{Enabled: true, Strategy: "mig"}, nodes: []*v1.Node{aNode("a")}, wantReason: "ProfileMissing", wantInText: "profile"},
		"turns without a number":                   {v: &v1alpha1.Virtualization{Enabled: true, Strategy: "time-slicing"}, wantReason: "ReplicasMissing", wantInText: "replicas"},
		"no nodes":                                 {v: mig, wantReason: "NoNodes", wantInText: "no nodes"},
		"all are done":                             {v: mig, nodes: []*v1.Node{applied}, wantReason: "Applied", wantInText: "all 1 nodes have nvidia.com/mig.config=all-3g.40gb"},
		"one drains":                               {v: mig, nodes: []*v1.Node{applied, aNode("b", ours)}, wantReason: "Draining", wantInText: "node b: pods with devices have to go first; 1 of 2 nodes are left"},
		"a budget keeps a pod":                     {v: mig, nodes: []*v1.Node{aNode("b", ours)}, blocked: map[string][]string{"b": {"pod x/y cannot be evicted yet"}}, wantReason: "Draining", wantInText: "node b: pod x/y cannot be evicted yet"},
		"the manager works":                        {v: mig, nodes: []*v1.Node{aNode("b", ours, has("mig", "all-3g.40gb"))}, wantReason: "Changing", wantInText: "node b"},
		"turns that kubelet does not count yet":    {v: &v1alpha1.Virtualization{Enabled: true, Strategy: "time-slicing", Replicas: 2}, nodes: []*v1.Node{aNode("b", ours, has("time-slicing", "time-slicing-2"), label(LabelGPUCount, "8"), shared(32))}, wantReason: "Changing", wantInText: "time-slicing-2: kubelet counts 32 of nvidia.com/gpu.shared, want 2 for each of 8 GPUs (nvidia.com/gpu.count); 1 of 1"},
		"the manager failed":                       {v: mig, nodes: []*v1.Node{aNode("b", ours, has("mig", "all-3g.40gb"), label(LabelMIGState, "failed")), aNode("c")}, wantReason: "ManagerFailed", wantInText: "node b: nvidia.com/mig.config.state is failed for nvidia.com/mig.config=all-3g.40gb; its manager's log says why; once that is mended: kubectl annotate node b pool.nvtopo.dev/retry-virtualization=true; 2 of 2"},
		"a node of two pools":                      {v: mig, nodes: []*v1.Node{applied}, shared: []string{"z"}, wantReason: "NodeShared", wantInText: "z"},
		"disabled, and a node is still to do":      {nodes: []*v1.Node{aNode("b", ours, has("mig", "all-3g.40gb"))}, wantReason: "Draining", wantInText: "node b"},
		"disabled, and the manager makes it whole": {nodes: []*v1.Node{aNode("b", ours, has("mig", "all-disabled"))}, wantReason: "Changing", wantInText: "all-disabled"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			o := outcome{shared: tc.shared, blocked: tc.blocked}
			var want setting
			want, o.reason, o.message = wanted(tc.v)
			o.nodes = plan(tc.nodes, func(*v1.Node) setting { return want })
			got := o.condition(poolOf(tc.v))
			if tc.wantReason == "" {
				if got != nil {
					t.Fatalf("got %+v, want none", got)
				}
				return
			}
			if got == nil || got.Reason != tc.wantReason || !strings.Contains(got.Message, tc.wantInText) {
				t.Fatalf("got %+v, want reason %s and %q in the message", got, tc.wantReason, tc.wantInText)
			}
			if isTrue := got.Status == metav1.ConditionTrue; isTrue != (tc.wantReason == ReasonApplied) {
				t.Errorf("status %s with reason %s", got.Status, got.Reason)
			}
		})
	}
}

func limits(name string, n int64) v1.PodSpec {
	return v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
		Limits: v1.ResourceList{v1.ResourceName(name): *resource.NewQuantity(n, resource.DecimalSI)},
	}}}}
}

func TestRefusal(t *testing.T) {
	mig := &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyMIG, Profile: "all-3g.40gb"}
	turns := &v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyTimeSlicing, Replicas: 4}
	tests := map[string]struct {
		v      *v1alpha1.Virtualization
		pod    v1.PodSpec
		wantIn string // empty: not refused
	}{
		"whole GPUs of a whole pool":             {pod: limits("nvidia.com/gpu", 8)},
		"whole GPUs of a pool without a profile": {v: &v1alpha1.Virtualization{Enabled: true, Strategy: "mig"}, pod: limits("nvidia.com/gpu", 8)},
		"whole GPUs of slices":                   {v: mig, pod: limits("nvidia.com/gpu", 8), wantIn: "nvidia.com/gpu, and pool p gives out parts of GPUs: ask for the slices of profile all-3g.40gb"},
		"whole GPUs of turns":                    {v: turns, pod: limits("nvidia.com/gpu", 1), wantIn: "ask for nvidia.com/gpu.shared"},
		"slices of slices":                       {v: mig, pod: limits("nvidia.com/mig-3g.40gb", 1)},
		"turns of turns":                         {v: turns, pod: limits("nvidia.com/gpu.shared", 1)},
		"in an init container":                   {v: mig, pod: v1.PodSpec{InitContainers: limits("nvidia.com/gpu", 1).Containers}, wantIn: "nvidia.com/gpu"},
		"none of them":                           {v: mig, pod: limits("nvidia.com/gpu", 0)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			job := &v1alpha1.ElasticJob{}
			job.Spec.Template.Spec = tc.pod
			got := Refusal(poolOf(tc.v), job)
			if (got == "") != (tc.wantIn == "") || !strings.Contains(got, tc.wantIn) {
				t.Errorf("got %q, want %q in it", got, tc.wantIn)
			}
		})
	}
}

func TestHolds(t *testing.T) {
	one := func(device v1.ResourceName) *testobj.PodWrapper { return testobj.Pod("p").Limit(device, "1") }
	tests := map[string]struct {
		pod       *v1.Pod
		want      bool
		wantStays bool
	}{
		"whole GPUs":         {pod: one("nvidia.com/gpu").Obj(), want: true},
		"slices":             {pod: one("nvidia.com/mig-1g.10gb").Obj(), want: true},
		"no devices":         {pod: one("cpu").Obj()},
		"another vendor's":   {pod: one("amd.com/gpu").Obj()},
		"one that ended":     {pod: one("nvidia.com/gpu").Phase(v1.PodSucceeded).Obj()},
		"a static pod":       {pod: one("nvidia.com/gpu").Annotation(v1.MirrorPodAnnotationKey, "x").Obj(), want: true, wantStays: true},
		"one of a DaemonSet": {pod: one("nvidia.com/gpu").Owner("DaemonSet", "d", "d").Obj(), want: true, wantStays: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := holds(tc.pod); got != tc.want {
				t.Errorf("holds: got %v, want %v", got, tc.want)
			}
			if got := stays(tc.pod); (got != "") != tc.wantStays {
				t.Errorf("stays: got %q, want %v", got, tc.wantStays)
			}
		})
	}
}

func TestMembers(t *testing.T) {
	named := &v1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	picky := &v1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: "before"}, Spec: v1alpha1.ComputePoolSpec{NodeSelector: map[string]string{"use": "q"}}}
	nodes := []v1.Node{
		*aNode("c", label(v1alpha1.LabelPool, "p")),
		*aNode("a", label(v1alpha1.LabelPool, "p")),
		*aNode("both", label(v1alpha1.LabelPool, "p"), label("use", "q"), ours),
		*aNode("gone", ours),
		*aNode("q", label("use", "q")),
	}
	m := membersOf("p", []*v1alpha1.ComputePool{named, picky}, nodes)
	if len(m.own) != 2 || m.own[0].Name != "a" || m.own[1].Name != "c" {
		t.Errorf("own: %v", m.own)
	}
	if len(m.shared) != 1 || m.shared[0] != "both" {
		t.Errorf("another pool's: %v", m.shared)
	}
	if len(m.left) != 2 || m.left[0].Name != "both" || m.left[1].Name != "gone" {
		t.Errorf("to be uncordoned: %v", m.left)
	}
	if m := membersOf("before", []*v1alpha1.ComputePool{named, picky}, nodes); len(m.own) != 2 || len(m.shared)+len(m.left) > 0 {
		t.Errorf("the first pool by name: %+v", m)
	}
	if m := membersOf("none", nil, nodes); m.pool != nil || len(m.own)+len(m.left) > 0 {
		t.Errorf("a pool that is gone has nodes: %+v", m)
	}
}
