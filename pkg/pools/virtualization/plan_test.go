// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

var (
	mig3g   = setting{strategy: v1alpha1.StrategyMIG, value: "all-3g.40gb"}
	turns2  = setting{strategy: v1alpha1.StrategyTimeSlicing, value: "time-slicing-2", replicas: 2}
	turns4  = setting{strategy: v1alpha1.StrategyTimeSlicing, value: "time-slicing-4", replicas: 4}
	vgpuQ   = setting{strategy: v1alpha1.StrategyVGPU, value: "A16-4Q"}
	whole   = setting{}
	cordon  = func(n *v1.Node) { n.Spec.Unschedulable = true }
	ours    = func(n *v1.Node) { n.Spec.Unschedulable = true; n.Annotations[AnnotationCordon] = "p" }
	retry   = func(n *v1.Node) { n.Annotations[AnnotationRetry] = "true" }
	unready = func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionFalse }
)

type change = func(*v1.Node)

// has gives the node the label of a strategy, and records the strategy as ours.
func has(strategy v1alpha1.VirtualizationStrategy, value string) change {
	return func(n *v1.Node) {
		label, _ := labelOf(strategy)
		n.Annotations[AnnotationStrategy], n.Labels[label] = string(strategy), value
		if value == "" {
			delete(n.Labels, label)
		}
	}
}

func label(key, value string) change { return func(n *v1.Node) { n.Labels[key] = value } }

func shared(n int64) change {
	return func(node *v1.Node) {
		node.Status.Capacity = v1.ResourceList{"nvidia.com/gpu.shared": *resource.NewQuantity(n, resource.DecimalSI)}
	}
}

func aNode(name string, changes ...change) *v1.Node {
	return testobj.Node(name).Ready(v1.ConditionTrue).With(changes...).Obj()
}

func TestNext(t *testing.T) {
	pending, success, fail := label(LabelMIGState, "pending"), label(LabelMIGState, "success"), label(LabelMIGState, "failed")
	tests := map[string]struct {
		node       *v1.Node
		want       setting
		wantStep   step
		wantTarget setting
	}{
		"nothing is asked for":                                 {node: aNode("a"), want: whole, wantStep: stepNone},
		"what somebody else has divided is left":               {node: aNode("a", label(LabelMIG, "all-1g.10gb"), success), want: whole, wantStep: stepNone},
		"first it is cordoned":                                 {node: aNode("a"), want: mig3g, wantStep: stepCordon, wantTarget: mig3g},
		"then drained":                                         {node: aNode("a", ours), want: mig3g, wantStep: stepDrain, wantTarget: mig3g},
		"somebody else's cordon will do":                       {node: aNode("a", cordon), want: mig3g, wantStep: stepDrain, wantTarget: mig3g},
		"the manager has not begun":                            {node: aNode("a", ours, has("mig", "all-3g.40gb")), want: mig3g, wantStep: stepWait, wantTarget: mig3g},
		"the manager is at work":                               {node: aNode("a", ours, has("mig", "all-3g.40gb"), pending), want: mig3g, wantStep: stepWait, wantTarget: mig3g},
		"the manager reboots the node":                         {node: aNode("a", ours, has("mig", "all-3g.40gb"), label(LabelMIGState, "rebooting")), want: mig3g, wantStep: stepWait, wantTarget: mig3g},
		"the manager failed":                                   {node: aNode("a", ours, has("mig", "all-3g.40gb"), fail), want: mig3g, wantStep: stepFailed, wantTarget: mig3g},
		"the manager is done":                                  {node: aNode("a", ours, has("mig", "all-3g.40gb"), success), want: mig3g, wantStep: stepUncordon, wantTarget: mig3g},
		"somebody else's cordon is not lifted":                 {node: aNode("a", cordon, has("mig", "all-3g.40gb"), success), want: mig3g, wantStep: stepNone, wantTarget: mig3g},
		"all is as it should be":                               {node: aNode("a", has("mig", "all-3g.40gb"), success), want: mig3g, wantStep: stepNone, wantTarget: mig3g},
		"it was so already":                                    {node: aNode("a", label(LabelMIG, "all-3g.40gb"), success), want: mig3g, wantStep: stepMark, wantTarget: mig3g},
		"another profile":                                      {node: aNode("a", has("mig", "all-1g.10gb"), success), want: mig3g, wantStep: stepCordon, wantTarget: mig3g},
		"another profile after a failure":                      {node: aNode("a", ours, has("mig", "all-9g"), fail), want: mig3g, wantStep: stepDrain, wantTarget: mig3g},
		"another profile while the manager works":              {node: aNode("a", ours, has("mig", "all-1g.10gb"), pending), want: mig3g, wantStep: stepWait, wantTarget: mig3g},
		"disabled again":                                       {node: aNode("a", has("mig", "all-3g.40gb"), success), want: whole, wantStep: stepCordon, wantTarget: undone("mig")},
		"disabled, and whole":                                  {node: aNode("a", ours, has("mig", "all-disabled"), success), want: whole, wantStep: stepForget, wantTarget: undone("mig")},
		"disabled, and forgotten":                              {node: aNode("a", ours, label(LabelMIG, "all-disabled"), success), want: whole, wantStep: stepUncordon},
		"turns after slices: first the GPUs are whole":         {node: aNode("a", ours, has("mig", "all-3g.40gb"), success), want: turns4, wantStep: stepDrain, wantTarget: undone("mig")},
		"turns after slices: then the node stays cordoned":     {node: aNode("a", ours, label(LabelMIG, "all-disabled"), success), want: turns4, wantStep: stepDrain, wantTarget: turns4},
		"turns: the plugin has not started anew":               {node: aNode("a", ours, has("time-slicing", "time-slicing-4"), label(LabelGPUCount, "8"), shared(16)), want: turns4, wantStep: stepWait, wantTarget: turns4},
		"turns: kubelet counts them":                           {node: aNode("a", ours, has("time-slicing", "time-slicing-4"), label(LabelGPUCount, "8"), shared(32)), want: turns4, wantStep: stepUncordon, wantTarget: turns4},
		"turns: fewer, and the plugin still has its old count": {node: aNode("a", ours, has("time-slicing", "time-slicing-2"), label(topologyv1alpha1.LabelGPUCount, "8"), shared(32)), want: turns2, wantStep: stepWait, wantTarget: turns2},
		"turns: NVIDIA's count is the one that holds":          {node: aNode("a", ours, has("time-slicing", "time-slicing-2"), label(topologyv1alpha1.LabelGPUCount, "8"), label(LabelGPUCount, "4"), shared(8)), want: turns2, wantStep: stepUncordon, wantTarget: turns2},
		"turns: nobody knows how many GPUs there are":          {node: aNode("a", ours, has("time-slicing", "time-slicing-4"), shared(12)), want: turns4, wantStep: stepUncordon, wantTarget: turns4},
		"turns: no whole number of GPUs":                       {node: aNode("a", ours, has("time-slicing", "time-slicing-4"), shared(14)), want: turns4, wantStep: stepWait, wantTarget: turns4},
		"turns: taken back, and the plugin has still its old":  {node: aNode("a", ours, has("time-slicing", ""), shared(32)), want: whole, wantStep: stepWait, wantTarget: undone("time-slicing")},
		"turns: taken back":                                    {node: aNode("a", ours, has("time-slicing", ""), shared(0)), want: whole, wantStep: stepForget, wantTarget: undone("time-slicing")},
		"the manager failed, and is to try again":              {node: aNode("a", ours, has("mig", "all-3g.40gb"), fail, retry), want: mig3g, wantStep: stepRetry, wantTarget: mig3g},
		"the driver is upgraded":                               {node: aNode("a", cordon, label(LabelUpgrade, "drain-required")), want: mig3g, wantStep: stepUpgrade, wantTarget: mig3g},
		"the driver is upgraded, and the manager is done":      {node: aNode("a", ours, has("mig", "all-3g.40gb"), success, label(LabelUpgrade, "pod-restart-required")), want: mig3g, wantStep: stepUpgrade, wantTarget: mig3g},
		"the driver is upgraded, and all is as it should be":   {node: aNode("a", has("mig", "all-3g.40gb"), success, label(LabelUpgrade, "drain-required")), want: mig3g, wantStep: stepNone, wantTarget: mig3g},
		"the driver was upgraded":                              {node: aNode("a", label(LabelUpgrade, "upgrade-done")), want: mig3g, wantStep: stepCordon, wantTarget: mig3g},
		"vgpu":                                                 {node: aNode("a", ours, has("vgpu", "A16-4Q"), label(LabelVGPUState, "success")), want: vgpuQ, wantStep: stepUncordon, wantTarget: vgpuQ},
		"vgpu: another manager's word is not about it":         {node: aNode("a", ours, has("vgpu", "A16-4Q"), success), want: vgpuQ, wantStep: stepWait, wantTarget: vgpuQ},
		"vgpu: taken back, which nobody confirms":              {node: aNode("a", ours, has("vgpu", "")), want: whole, wantStep: stepForget, wantTarget: undone("vgpu")},
		"a strategy of a later release is taken back as turns": {node: aNode("a", has("later", ""), shared(0)), want: whole, wantStep: stepForget, wantTarget: undone("later")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := next(tc.node, tc.want)
			if got.step != tc.wantStep || got.target != tc.wantTarget {
				t.Errorf("got step %d towards %+v, want step %d towards %+v", got.step, got.target, tc.wantStep, tc.wantTarget)
			}
		})
	}
}

// TestPlanNodeOrder: one node at a time is out of service, and a node that is down does not
// keep the others from being changed.
func TestPlanNodeOrder(t *testing.T) {
	success := label(LabelMIGState, "success")
	tests := map[string]struct {
		nodes []*v1.Node
		want  map[string]step
	}{
		"the first by name": {
			nodes: []*v1.Node{aNode("b"), aNode("a"), aNode("c")},
			want:  map[string]step{"a": stepCordon, "b": stepNone, "c": stepNone},
		},
		"the one that has begun": {
			nodes: []*v1.Node{aNode("a"), aNode("b", ours)},
			want:  map[string]step{"a": stepNone, "b": stepDrain},
		},
		"one that has failed holds up the others": {
			nodes: []*v1.Node{aNode("a"), aNode("b", ours, has("mig", "all-3g.40gb"), label(LabelMIGState, "failed"))},
			want:  map[string]step{"a": stepNone, "b": stepFailed},
		},
		"one that is done makes room in the same breath": {
			nodes: []*v1.Node{aNode("a", ours, has("mig", "all-3g.40gb"), success), aNode("b")},
			want:  map[string]step{"a": stepUncordon, "b": stepCordon},
		},
		"one whose driver is upgraded does not hold up the others": {
			nodes: []*v1.Node{aNode("a", cordon, label(LabelUpgrade, "drain-required")), aNode("b")},
			want:  map[string]step{"a": stepUpgrade, "b": stepCordon},
		},
		"unless it was cordoned to be divided": {
			nodes: []*v1.Node{aNode("a", ours, label(LabelUpgrade, "drain-required")), aNode("b")},
			want:  map[string]step{"a": stepUpgrade, "b": stepNone},
		},
		"those that are down come last": {
			nodes: []*v1.Node{aNode("a", unready), aNode("b")},
			want:  map[string]step{"a": stepNone, "b": stepCordon},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]step{}
			for _, n := range plan(tc.nodes, func(*v1.Node) setting { return mig3g }) {
				got[n.Name] = n.step
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCurrent: a change that has begun is completed, even if the spec no longer defines the
// setting.
func TestCurrent(t *testing.T) {
	tests := map[string]struct {
		node *v1.Node
		want setting
	}{
		"nothing of ours": {node: aNode("a", label(LabelMIG, "all-1g.10gb")), want: whole},
		"slices":          {node: aNode("a", has("mig", "all-3g.40gb")), want: mig3g},
		"turns":           {node: aNode("a", has("time-slicing", "time-slicing-4")), want: turns4},
		"another's turns": {node: aNode("a", has("time-slicing", "default")), want: setting{strategy: "time-slicing", value: "default"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := current(tc.node); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}
