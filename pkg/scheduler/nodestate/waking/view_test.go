// SPDX-License-Identifier: Apache-2.0

package waking

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// agent returns the expiry of a live agent's Lease.
func agent(node types.UID) *nodelease.Expiry {
	leases, name, now := nodelease.NewTable(0), nodelease.AgentPrefix+"n", time.Unix(0, 0)
	leases.Set(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: "Node", UID: node}}},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(now)), LeaseDurationSeconds: new(int32(60))},
	}, now)
	return leases.Get(name)
}

func usedNode(t *testing.T) *fakeNode {
	t.Helper()
	node := schedtest.Node("n").UID("node").Label("zone", "a").CPU("8").Memory("8Gi").Resource("pods", "10").Resource("example.com/card", "2").
		Taints([]v1.Taint{{Key: "k", Effect: v1.TaintEffectNoSchedule}}).Obj()
	pod := schedtest.Pod("running").Request("cpu", "2").Request("example.com/card", "1").Obj()
	nominated, err := framework.NewPodInfo(schedtest.Pod("nominated").Obj())
	if err != nil {
		t.Fatal(err)
	}
	return &fakeNode{
		node: node, topology: &usage.Node{NodeUID: node.UID, Agent: agent(node.UID)}, pods: []*v1.Pod{pod}, nominated: []fwk.PodInfo{nominated}, graph: placement.StaleGraph,
		reserved: Reserved{Pods: []types.UID{"reserved"}, Nominated: []*allocation.Allocation{{}}},
	}
}

// TestNodeCapacityChange: a node may take a pod that it did not take before if anything ended that kept
// pods off it.
func TestNodeCapacityChange(t *testing.T) {
	tests := map[string]struct {
		change func(*fakeNode)
		want   bool
	}{
		"nothing changed":                    {func(*fakeNode) {}, false},
		"a taint went":                       {func(f *fakeNode) { f.node.Spec.Taints = nil }, true},
		"a label changed":                    {func(f *fakeNode) { f.node.Labels["zone"] = "b" }, true},
		"it was cordoned, or is no more":     {func(f *fakeNode) { f.node.Spec.Unschedulable = true }, true},
		"a condition changed":                {func(f *fakeNode) { f.node.Status.Conditions = []v1.NodeCondition{{Type: "Ready"}} }, false},
		"it is another node of the name":     {func(f *fakeNode) { f.node.UID = "another" }, true},
		"a pod ended":                        {func(f *fakeNode) { f.pods = nil }, true},
		"a pod asks for less":                {func(f *fakeNode) { f.pods[0].Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1") }, true},
		"a pod asks for more":                {func(f *fakeNode) { f.pods[0].Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("3") }, false},
		"a pod came":                         {func(f *fakeNode) { f.pods = append(f.pods, schedtest.Pod("new").Obj()) }, false},
		"a pod asks for no card any more":    {func(f *fakeNode) { delete(f.pods[0].Spec.Containers[0].Resources.Requests, "example.com/card") }, true},
		"more may be allocated":              {func(f *fakeNode) { f.node.Status.Allocatable["memory"] = resource.MustParse("9Gi") }, true},
		"a nomination ended":                 {func(f *fakeNode) { f.nominated = nil }, true},
		"a reservation ended":                {func(f *fakeNode) { f.reserved.Pods = nil }, true},
		"a reservation came":                 {func(f *fakeNode) { f.reserved.Pods = []types.UID{"another", "reserved"} }, false},
		"what is kept for a nominated pod":   {func(f *fakeNode) { f.reserved.Nominated = []*allocation.Allocation{{}} }, true},
		"something is kept for one more pod": {func(f *fakeNode) { f.reserved.Nominated = append(f.reserved.Nominated, &allocation.Allocation{}) }, false},
		"its graph counts again":             {func(f *fakeNode) { f.graph = placement.Fits }, true},
		"its graph is another":               {func(f *fakeNode) { f.topology = &usage.Node{NodeUID: "node", Agent: f.topology.Agent} }, true},
		"its agent is an earlier node's":     {func(f *fakeNode) { f.topology.Agent = agent("earlier") }, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			f := usedNode(t)
			look := func() *view {
				return newView(f, nil, func(*v1.Pod) bool { return false }, "", time.Unix(0, 0))
			}
			old := look()
			f.node = f.node.DeepCopy()
			for i := range f.pods {
				f.pods[i] = f.pods[i].DeepCopy()
			}
			tc.change(f)
			if got := look().mayTakeMore(old); got != tc.want {
				t.Errorf("may take more: %t, want %t", got, tc.want)
			}
		})
	}
}
