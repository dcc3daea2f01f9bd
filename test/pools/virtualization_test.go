// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/virtualization"
)

// ownQueue is a queue of tenant a beside those of the pool, as users would write it: with whole GPUs and
// thousandths.
const ownQueue = `apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: POOL-own}
spec: {nodeLabels: {pool.nvtopo.dev/pool: POOL}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: POOL-own}
spec:
  namespaceSelector: {matchLabels: {pool.nvtopo.dev/tenant: POOL-a}}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu, pool.nvtopo.dev/milli-gpu]
    flavors:
    - name: POOL-own
      resources: [{name: nvidia.com/gpu, nominalQuota: 8}, {name: pool.nvtopo.dev/milli-gpu, nominalQuota: 1000}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: own, namespace: POOL-a}
spec: {clusterQueue: POOL-own}
`

// ownJob creates a job in that queue whose pods request n of a resource.
func (s *scenario) ownJob(t *testing.T, name string, resources v1.ResourceName, n int64, annotations map[string]string) {
	t.Helper()
	if err := s.priorityClass(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	job := s.jobObject("a", name, &work{labels: map[string]string{kueue.LabelQueue: "own"}})
	job.Spec.Template.Annotations = annotations
	c := &job.Spec.Template.Spec.Containers[0]
	c.Resources.Limits = v1.ResourceList{resources: *resource.NewQuantity(n, resource.DecimalSI)}
	if err := s.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
}

// divide changes the pool's virtualization, which is JSON.
func (s *scenario) divide(t *testing.T, virtualization string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"virtualization":%s}}`, virtualization))
	if err := s.Patch(t.Context(), &poolv1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, patch); err != nil {
		t.Fatal(err)
	}
}

// divided waits until the pool reports this reason about its devices, for its present spec; an empty
// reason stands for no report.
func (s *scenario) divided(t *testing.T, reason string, inMessage ...string) {
	t.Helper()
	s.waitFor(t, "VirtualizationApplied says "+reason, func(ctx context.Context) (bool, string) {
		var pool poolv1alpha1.ComputePool
		if err := s.Get(ctx, client.ObjectKey{Name: s.name}, &pool); err != nil {
			return false, err.Error()
		}
		c := meta.FindStatusCondition(pool.Status.Conditions, poolv1alpha1.ConditionVirtualizationApplied)
		if c == nil {
			return reason == "", "no such condition"
		}
		ok := c.Reason == reason && c.ObservedGeneration == pool.Generation && (c.Status == metav1.ConditionTrue) == (reason == virtualization.ReasonApplied)
		for _, part := range inMessage {
			ok = ok && strings.Contains(c.Message, part)
		}
		return ok, fmt.Sprintf("%+v\n%s", *c, s.nodesSay(ctx))
	})
}

// nodesSay returns the state of each node's division, for a test that fails.
func (s *scenario) nodesSay(ctx context.Context) string {
	var out []string
	for _, name := range s.nodes {
		var n v1.Node
		err := s.Get(ctx, client.ObjectKey{Name: name}, &n)
		out = append(out, fmt.Sprintf("%s: unschedulable %v, %s %s %s, strategy %s, cordoned for %q, %v", name, n.Spec.Unschedulable, n.Labels[virtualization.LabelMIG],
			n.Labels[virtualization.LabelMIGState], n.Labels[virtualization.LabelPlugin], n.Annotations[virtualization.AnnotationStrategy], n.Annotations[virtualization.AnnotationCordon], err))
	}
	return strings.Join(out, "\n")
}

// nodeIs is a node's label, whether it is cordoned, and its amount of a resource.
type nodeIs struct {
	Label    string
	Cordoned bool
	Has      int64
}

// nodesAre reads the pool's nodes.
func (s *scenario) nodesAre(t *testing.T, label string, of v1.ResourceName) map[string]nodeIs {
	t.Helper()
	out := map[string]nodeIs{}
	for _, name := range s.nodes {
		var n v1.Node
		s.get(t, &n, "", name)
		quantity := n.Status.Allocatable[of]
		out[strings.TrimPrefix(name, s.name+"-")] = nodeIs{Label: n.Labels[label], Cordoned: n.Spec.Unschedulable, Has: quantity.Value()}
	}
	return out
}

// TestSlices is scenario 56: slices come to the pool's nodes and to no others; pods leave first, as
// budgets allow; failures are reported; and the GPUs are whole again when slices are no longer requested.
func TestSlices(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.tenants(t, "a")
	m := newManagers(t, s)
	if err := s.AddNodes(t.Context(), []devcluster.NodeSpec{{Name: s.name + "-other", Machine: "dgx-a100"}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.forget(context.WithoutCancel(t.Context()), t, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-other"}})
	})
	s.yaml(t, ownQueue)
	s.ownJob(t, "whole", "nvidia.com/gpu", 8, nil)
	pod := s.running(t, "a", "whole", 1)[0]
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "keep", Namespace: pod.Namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"batch.kubernetes.io/job-name": "whole"}},
		},
	}
	if err := s.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 16, reserved: 2}\n  virtualization: {enabled: true, strategy: mig, profile: all-3g.40gb}")

	s.divided(t, virtualization.ReasonDraining, "node "+pod.Spec.NodeName, pod.Name+" cannot be evicted yet")
	var now v1.Pod
	s.get(t, &now, pod.Namespace, pod.Name)
	if now.UID != pod.UID || now.DeletionTimestamp != nil {
		t.Fatalf("the budget did not keep pod %s", pod.Name)
	}
	var held v1.Node
	s.get(t, &held, "", pod.Spec.NodeName)
	if got := held.Labels[virtualization.LabelMIG]; got != "" {
		t.Fatalf("node %s was told %s with a pod on its GPUs", held.Name, got)
	}
	s.remove(t, budget)
	s.divided(t, virtualization.ReasonApplied, "all 2 nodes have nvidia.com/mig.config=all-3g.40gb")
	want := map[string]nodeIs{"n0": {Label: "all-3g.40gb", Has: 16}, "n1": {Label: "all-3g.40gb", Has: 16}}
	if diff := cmp.Diff(want, s.nodesAre(t, virtualization.LabelMIG, "nvidia.com/mig-3g.40gb")); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	var other v1.Node
	s.get(t, &other, "", s.name+"-other")
	if got, told := other.Labels[virtualization.LabelMIG]; told || other.Spec.Unschedulable {
		t.Errorf("a node outside of the pool was told %q, or cordoned", got)
	}

	// An operator's cordon stays; the change does not wait for its removal.
	s.cordon(t, s.nodes[0])
	s.divide(t, `{"profile":"all-1g.10gb"}`)
	s.divided(t, virtualization.ReasonApplied, "all-1g.10gb")
	want = map[string]nodeIs{"n0": {Label: "all-1g.10gb", Cordoned: true, Has: 56}, "n1": {Label: "all-1g.10gb", Has: 56}}
	if diff := cmp.Diff(want, s.nodesAre(t, virtualization.LabelMIG, "nvidia.com/mig-1g.10gb")); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}

	// A profile that the manager does not have stops at the first node, which the pool names.
	s.divide(t, `{"profile":"all-9g.90gb"}`)
	s.divided(t, virtualization.ReasonManagerFailed, "nvidia.com/mig.config.state is failed", "2 of 2 nodes are left")
	if told := m.toldOf("all-9g.90gb"); len(told) != 1 {
		t.Errorf("nodes %v were told a profile that fails, want one", told)
	}

	s.divide(t, `{"enabled":false}`)
	s.divided(t, "")
	want = map[string]nodeIs{"n0": {Label: "all-disabled", Cordoned: true, Has: 8}, "n1": {Label: "all-disabled", Has: 8}}
	if diff := cmp.Diff(want, s.nodesAre(t, virtualization.LabelMIG, "nvidia.com/gpu")); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if got := m.atOnce(); got != 1 {
		t.Errorf("%d nodes were out of service at once, want 1", got)
	}
	s.running(t, "a", "whole", 1) // it comes back to the node that takes pods
}

// TestLatePod checks that a pod that is bound to a node after it was cordoned leaves it before its
// devices are divided, and that a manager that failed retries when it is told to.
func TestLatePod(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	newManagers(t, s)
	s.namespace(t, "free", nil)
	pod := gpuPod(s.tenant("free"), "late", 8).Obj()
	pod.Spec.SchedulerName = "nobody"
	if err := s.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 8}\n  virtualization: {enabled: true, strategy: mig, profile: all-3g.40gb}")
	node := s.nodes[0]
	s.waitFor(t, "the node is cordoned", func(ctx context.Context) (bool, string) {
		var n v1.Node
		err := s.Get(ctx, client.ObjectKey{Name: node}, &n)
		return err == nil && n.Spec.Unschedulable, fmt.Sprint(err, n.Annotations)
	})
	binding := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: v1.ObjectReference{Kind: "Node", Name: node}}
	if err := s.SubResource("binding").Create(t.Context(), pod, binding); err != nil {
		t.Fatal(err)
	}
	s.waitGone(t, pod)
	s.divided(t, virtualization.ReasonApplied, "all 1 nodes have nvidia.com/mig.config=all-3g.40gb")

	s.divide(t, `{"profile":"all-9g.90gb"}`)
	s.divided(t, virtualization.ReasonManagerFailed, virtualization.AnnotationRetry)
	var failed v1.Node
	s.get(t, &failed, "", node)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, virtualization.AnnotationRetry)
	if err := s.Patch(t.Context(), failed.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the manager is told again, and fails again", func(ctx context.Context) (bool, string) {
		var n v1.Node
		err := s.Get(ctx, client.ObjectKey{Name: node}, &n)
		told := n.Annotations[virtualization.AnnotationRetry] == "" && n.Labels[virtualization.LabelMIGState] == "failed"
		return err == nil && told, fmt.Sprint(err, n.Labels, n.Annotations)
	})
}

// cordon cordons a node, as kubectl does.
func (s *scenario) cordon(t *testing.T, name string) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`))
	if err := s.Patch(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch); err != nil {
		t.Fatal(err)
	}
}

// TestSlicesWithoutAProfile checks that no node is changed without a profile.
func TestSlicesWithoutAProfile(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	m := newManagers(t, s)
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 8}\n  virtualization: {enabled: true, strategy: mig}")
	s.divided(t, virtualization.ReasonProfileMissing, "virtualization.profile")
	want := map[string]nodeIs{"n0": {Has: 8}}
	if diff := cmp.Diff(want, s.nodesAre(t, virtualization.LabelMIG, "nvidia.com/gpu")); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	s.divide(t, `{"profile":"all-balanced"}`)
	s.divided(t, virtualization.ReasonApplied, "all-balanced")
	if got := m.toldOf("all-balanced"); len(got) != 1 {
		t.Errorf("told: %v", got)
	}
}

// TestSliceLinks checks that a slice is bound by kube-scheduler's own count, and that one with a
// requirement on links is refused with a reason.
func TestSliceLinks(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	newManagers(t, s)
	s.yaml(t, ownQueue)
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 8}\n  virtualization: {enabled: true, strategy: mig, profile: all-3g.40gb}")
	s.divided(t, virtualization.ReasonApplied)
	s.ownJob(t, "linked", "nvidia.com/mig-3g.40gb", 1, map[string]string{"nvtopo.dev/min-link": "NVLINK"})
	s.waitFor(t, "the pod with a demand on links is refused", func(context.Context) (bool, string) {
		for _, pod := range s.pods(t, "a", "linked") {
			for _, c := range pod.Status.Conditions {
				if c.Type == v1.PodScheduled && strings.Contains(c.Message, "annotation nvtopo.dev/min-link: container main asks for nvidia.com/mig-3g.40gb, a part of a GPU, which has no links") {
					return true, ""
				}
			}
		}
		return false, fmt.Sprintf("%d pods", len(s.pods(t, "a", "linked")))
	})
	s.ownJob(t, "plain", "nvidia.com/mig-3g.40gb", 1, nil)
	s.running(t, "a", "plain", 1)
}

// TestTurns checks time slicing: the device plugin is told the key of its ConfigMap, and kubelet's count
// shows that it has restarted.
func TestTurns(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	m := newManagers(t, s)
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 16}\n  virtualization: {enabled: true, strategy: time-slicing, replicas: 4}")
	s.divided(t, virtualization.ReasonApplied, "all 2 nodes have nvidia.com/device-plugin.config=time-slicing-4")
	are := func(want nodeIs, of v1.ResourceName) {
		t.Helper()
		if diff := cmp.Diff(map[string]nodeIs{"n0": want, "n1": want}, s.nodesAre(t, virtualization.LabelPlugin, of)); diff != "" {
			t.Errorf("nodes (-want +got):\n%s", diff)
		}
	}
	are(nodeIs{Label: "time-slicing-4", Has: 32}, "nvidia.com/gpu.shared")
	s.divide(t, `{"replicas":2}`)
	s.divided(t, virtualization.ReasonApplied, "time-slicing-2")
	are(nodeIs{Label: "time-slicing-2", Has: 16}, "nvidia.com/gpu.shared")
	s.divide(t, "null")
	s.divided(t, "")
	are(nodeIs{Has: 8}, "nvidia.com/gpu")
	if got := m.servedEarly(); len(got) > 0 {
		t.Errorf("nodes that took pods before the device plugin had started anew: %v", got)
	}
}

// TestReleasedNodes checks that a node that its pool no longer has is released, and so are all nodes of a
// deleted pool.
func TestReleasedNodes(t *testing.T) {
	s := newScenario(t, dgx(2)...)
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 16}\n  virtualization: {enabled: true, strategy: mig, profile: all-1g.10gb}")
	s.divided(t, virtualization.ReasonChanging, "node "+s.nodes[0]) // no manager runs
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, poolv1alpha1.LabelPool))
	if err := s.Patch(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.nodes[0]}}, patch); err != nil {
		t.Fatal(err)
	}
	s.divided(t, virtualization.ReasonChanging, "node "+s.nodes[1])
	s.remove(t, &poolv1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: s.name}})
	s.waitFor(t, "no node is cordoned", func(ctx context.Context) (bool, string) {
		for _, name := range s.nodes {
			var n v1.Node
			if err := s.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil || n.Spec.Unschedulable {
				return false, s.nodesSay(ctx)
			}
		}
		return true, ""
	})
}

// TestThousandths checks that Kueue counts slices as thousandths of a GPU: a GPU's quota has seven of 1g
// or two of 3g.
func TestThousandths(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		slice          v1.ResourceName
		jobs, wantJobs int
		want           int64
	}{
		"1g": {slice: "nvidia.com/mig-1g.10gb", jobs: 8, wantJobs: 7, want: 994},
		"3g": {slice: "nvidia.com/mig-3g.40gb", jobs: 3, wantJobs: 2, want: 856},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newScenario(t, dgx(1)...)
			s.tenants(t, "a")
			s.yaml(t, ownQueue)
			for i := range tc.jobs {
				s.ownJob(t, fmt.Sprintf("slice-%d", i), tc.slice, 1, nil)
			}
			s.waitFor(t, "the quota is used up", func(ctx context.Context) (bool, string) {
				var queue kueue.ClusterQueue
				if err := s.Get(ctx, client.ObjectKey{Name: s.name + "-own"}, &queue); err != nil {
					return false, err.Error()
				}
				st := &queue.Status
				seen := fmt.Sprintf("admitted %d, pending %d, %+v", st.AdmittedWorkloads, st.PendingWorkloads, st.FlavorsUsage)
				return int(st.AdmittedWorkloads) == tc.wantJobs && int(st.PendingWorkloads) == tc.jobs-tc.wantJobs &&
					milliUsed(st) == tc.want, seen
			})
		})
	}
}

// milliUsed returns how many thousandths a queue's workloads have.
func milliUsed(status *kueue.ClusterQueueStatus) (sum int64) {
	for _, f := range status.FlavorsUsage {
		for _, r := range f.Resources {
			if r.Name == "pool.nvtopo.dev/milli-gpu" {
				sum += r.Total.Value()
			}
		}
	}
	return sum
}
