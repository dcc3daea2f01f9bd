// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// tell publishes an agent's status of a dgx1-v100: GPUs 0-3 and CPUs 0-19 and 40-59 on NUMA node 0, the
// others on node 1.
func (e *testEnv) tell(t *testing.T, change func(*v1alpha1.NodeGPUTopologyStatus)) *v1alpha1.NodeGPUTopology {
	t.Helper()
	obj := topologyOf(t, "n", "dgx1-v100")
	version, err := strconv.Atoi(e.Nodes.Node("n").ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	obj.ResourceVersion = strconv.Itoa(version + 1)
	change(&obj.Status)
	if _, err := e.Graphs.Apply(obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestKubeletChoices: choices stay within the sets that kubelet honours.
func TestKubeletChoices(t *testing.T) {
	two := func(a, b int) *v1.Pod {
		pod := schedtest.Pod("two").GPUs(a).Obj()
		pod.Spec.Containers = append(pod.Spec.Containers, container("second", b))
		return pod
	}
	burstable := schedtest.Pod("p").GPUs(2).CPU("30").Memory("1Gi").Obj()
	burstable.Status.QOSClass = v1.PodQOSBurstable // as the API server found
	restricted := v1alpha1.Kubelet{TopologyManagerPolicy: "restricted"}
	single := v1alpha1.Kubelet{TopologyManagerPolicy: "single-numa-node"}
	scope := func(k v1alpha1.Kubelet, change func(*v1alpha1.Kubelet)) v1alpha1.Kubelet {
		change(&k)
		return k
	}
	static := scope(single, func(k *v1alpha1.Kubelet) { k.CPUManagerPolicy, k.ReservedCPUs = "static", "0-1" })
	tests := map[string]struct {
		kubelet    v1alpha1.Kubelet
		used       []int
		pod        *v1.Pod
		want       [][]int // by container, sorted
		wantReason placement.Reason
	}{
		"without a policy the best pair may be anywhere": {
			kubelet: v1alpha1.Kubelet{TopologyManagerPolicy: "none"}, used: []int{0}, pod: schedtest.Pod("p").GPUs(2).Obj(),
			want: [][]int{{4, 7}},
		},
		"of two NUMA nodes kubelet takes the lower, whatever is better": {
			kubelet: single, used: []int{0}, pod: schedtest.Pod("p").GPUs(2).Obj(), want: [][]int{{2, 3}},
		},
		"all that is free on the NUMA node is taken unasked": {
			kubelet: single, used: []int{0, 1}, pod: schedtest.Pod("p").GPUs(2).Obj(), want: [][]int{{2, 3}},
		},
		"the pod's link demand does not fit kubelet's NUMA node": {
			kubelet: single, used: []int{0, 2}, pod: schedtest.Pod("p").GPUs(2).Annotation(podrequest.MinLinkKey, "NV2").Obj(),
			wantReason: placement.KubeletElsewhere,
		},
		"devices without NUMA nodes leave the choice free": {
			kubelet: scope(single, func(k *v1alpha1.Kubelet) { k.UnalignedResources = []string{testResource} }),
			used:    []int{0}, pod: schedtest.Pod("p").GPUs(2).Obj(), want: [][]int{{4, 7}},
		},
		"four GPUs over two NUMA nodes are refused": {
			kubelet: restricted, used: []int{0, 4}, pod: schedtest.Pod("p").GPUs(4).Obj(), wantReason: placement.KubeletRefuses,
		},
		"five GPUs need two NUMA nodes, which restricted allows": {
			kubelet: restricted, pod: schedtest.Pod("p").GPUs(5).Obj(), want: [][]int{{0, 1, 2, 4, 5}},
		},
		"best-effort takes what is aligned and lets the rest be chosen": {
			kubelet: v1alpha1.Kubelet{TopologyManagerPolicy: "best-effort"}, used: []int{0, 1, 2, 4},
			pod: schedtest.Pod("p").GPUs(3).Obj(), want: [][]int{{5, 6, 7}},
		},
		"every container has its own NUMA node": {
			kubelet: single, pod: two(4, 4), want: [][]int{{0, 1, 2, 3}, {4, 5, 6, 7}},
		},
		"the pod scope wants one for all": {
			kubelet: scope(single, func(k *v1alpha1.Kubelet) { k.Scope = "pod" }), pod: two(4, 4), wantReason: placement.KubeletRefuses,
		},
		"the second container goes where it still fits": {
			kubelet: single, pod: two(3, 2), want: [][]int{{0, 1, 2}, {4, 5}},
		},
		"exclusive CPUs draw the GPUs to their NUMA node": {
			kubelet: scope(static, func(k *v1alpha1.Kubelet) { k.ExclusiveCPUs = "2-15" }),
			pod:     schedtest.Pod("p").GPUs(2).CPU("30").Memory("1Gi").Obj(), want: [][]int{{4, 7}},
		},
		"shared CPUs do not": {
			kubelet: scope(static, func(k *v1alpha1.Kubelet) { k.ExclusiveCPUs = "2-15" }),
			pod:     burstable, want: [][]int{{0, 3}},
		},
		"half a core is refused where only whole ones are given": {
			kubelet: v1alpha1.Kubelet{
				TopologyManagerPolicy: "none", CPUManagerPolicy: "static", ReservedCPUs: "0,40",
				CPUManagerOptions: map[string]string{"full-pcpus-only": "true"},
			},
			pod: schedtest.Pod("p").GPUs(1).CPU("3").Memory("1Gi").Obj(), wantReason: placement.KubeletRefuses,
		},
		"memory set aside on one NUMA node sends the pod to the other": {
			kubelet: scope(single, func(k *v1alpha1.Kubelet) {
				k.MemoryManagerPolicy = "Static"
				for i, free := range []string{"10Gi", "200Gi"} {
					k.Memory = append(k.Memory, v1alpha1.KubeletMemory{
						NUMANode: int32(i), Allocatable: resource.MustParse("200Gi"), Free: resource.MustParse(free),
					})
				}
			}),
			pod: schedtest.Pod("p").GPUs(1).CPU("1").Memory("20Gi").Obj(), want: [][]int{{4}},
		},
		"options of a later kubelet are no reason to lose the node": {
			kubelet: scope(single, func(k *v1alpha1.Kubelet) { k.TopologyManagerOptions = map[string]string{"new": "true"} }),
			pod:     schedtest.Pod("p").GPUs(4).Obj(), want: [][]int{{0, 1, 2, 3}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			var pods []*v1.Pod
			if tc.used != nil {
				pods = append(pods, on(t, r.State, schedtest.Pod("holder").GPUs(len(tc.used)).Obj(), "n", tc.used...))
			}
			r.tell(t, func(s *v1alpha1.NodeGPUTopologyStatus) { s.Kubelet = &tc.kubelet })
			info, l := r.view(t, pods...)
			d := demandOf(t, tc.pod)
			if v := r.Nodes.Judge(d, info, l); v.Reason != tc.wantReason {
				t.Fatalf("Filter says %q, want %q", v.Reason, tc.wantReason)
			}
			a, reason := r.Allocations.Assume(d, tc.pod, info, l)
			if reason != tc.wantReason {
				t.Fatalf("Reserve says %q, want %q", reason, tc.wantReason)
			}
			if reason == placement.Fits {
				if d := cmp.Diff(tc.want, r.positions(a)); d != "" {
					t.Errorf("choice (-want +got):\n%s", d)
				}
			}
		})
	}
}

func (e *testEnv) uuids(positions ...int) []string {
	var out []string
	for _, p := range positions {
		out = append(out, e.Nodes.Node("n").Accel(testResource).Graph.GPUs[p].UUID)
	}
	return out
}

// positions returns the GPUs of an allocation by container, sorted.
func (e *testEnv) positions(a *allocation.Allocation) [][]int {
	var out [][]int
	g := e.Nodes.Node("n").Accel(testResource).Graph
	for _, c := range a.Containers {
		m, _ := g.Positions(c.GPUs)
		out = append(out, m.Positions())
	}
	return out
}
