// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

func TestJointSolver(t *testing.T) {
	// dgx1-v100: GPUs 0-3 on NUMA node 0, 4-7 on node 1; 40 logical CPUs each.
	tests := map[string]struct {
		used       []int // GPUs of a running pod
		usedCPUs   string
		usedOn     []int // its NUMA nodes
		pod        *v1.Pod
		wantGPUs   []int
		wantNUMA   []int
		wantCPUs   int
		wantReason placement.Reason
	}{
		"CPUs lie beside the GPUs": {
			pod: schedtest.Pod("p").GPUs(2).CPU("4").Obj(), wantGPUs: []int{0, 3}, wantNUMA: []int{0}, wantCPUs: 4,
		},
		"without required, GPUs come first and CPUs from where they are": {
			used: []int{7}, usedCPUs: "36", usedOn: []int{0},
			pod: schedtest.Pod("p").GPUs(2).CPU("8").Obj(), wantGPUs: []int{0, 3}, wantNUMA: []int{0}, wantCPUs: 8,
		},
		"required goes where the CPUs are": {
			used: []int{7}, usedCPUs: "36", usedOn: []int{0},
			pod:      schedtest.Pod("p").GPUs(2).CPU("8").Annotation(podrequest.NUMAAffinityKey, "required").Obj(),
			wantGPUs: []int{5, 6}, wantNUMA: []int{1}, wantCPUs: 8,
		},
		"required spans nodes rather than be refused": {
			pod:      schedtest.Pod("p").GPUs(2).CPU("60").Annotation(podrequest.NUMAAffinityKey, "required").Obj(),
			wantGPUs: []int{0, 4}, wantNUMA: []int{0, 1}, wantCPUs: 60,
		},
		"required is refused when even all nodes have not enough": {
			pod:        schedtest.Pod("p").GPUs(2).CPU("90").Annotation(podrequest.NUMAAffinityKey, "required").Obj(),
			wantReason: placement.NoNUMACPU,
		},
		"memory counts as CPU does": {
			pod:        schedtest.Pod("p").GPUs(1).CPU("1").Memory("2Ti").Annotation(podrequest.NUMAAffinityKey, "required").Obj(),
			wantReason: placement.NoNUMAMemory,
		},
		"single-numa-node with required keeps CPU and GPUs on one node": {
			pod: schedtest.Pod("p").GPUs(4).CPU("50").Annotation(podrequest.TopologyPolicyKey, "single-numa-node").
				Annotation(podrequest.NUMAAffinityKey, "required").Obj(),
			wantReason: placement.NoNUMACPU,
		},
		"single-numa-node alone is about GPUs": {
			pod:      schedtest.Pod("p").GPUs(4).CPU("50").Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Obj(),
			wantGPUs: []int{0, 1, 2, 3}, wantNUMA: []int{0}, wantCPUs: 50,
		},
		"single-numa-node with preferred is about GPUs": {
			pod: schedtest.Pod("p").GPUs(4).CPU("50").Annotation(podrequest.TopologyPolicyKey, "single-numa-node").
				Annotation(podrequest.NUMAAffinityKey, "preferred").Obj(),
			wantGPUs: []int{0, 1, 2, 3}, wantNUMA: []int{0}, wantCPUs: 50,
		},
		"single-numa-node refuses GPUs over two nodes": {
			used: []int{0, 4}, pod: schedtest.Pod("p").GPUs(4).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Obj(),
			wantReason: placement.FewInNUMA,
		},
		"a pod without GPUs gets one NUMA node": {
			used: []int{0, 1}, usedOn: []int{0},
			pod:      schedtest.Pod("p").Request("cpu", "10").Annotation(podrequest.NUMAAffinityKey, "required").Obj(),
			wantNUMA: []int{0}, wantCPUs: 10,
		},
		"a pod without GPUs is refused where no node has its CPUs": {
			pod:        schedtest.Pod("p").Request("cpu", "41").Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Obj(),
			wantReason: placement.NoNUMACPU,
		},
		"a pod without GPUs that only prefers takes what there is": {
			pod: schedtest.Pod("p").Request("cpu", "41").Annotation(podrequest.NUMAAffinityKey, "preferred").Obj(), wantNUMA: []int{0, 1},
			wantCPUs: 41,
		},
		"of too few CPUs it gets none": {
			pod: schedtest.Pod("p").GPUs(1).CPU("200").Obj(), wantGPUs: []int{0}, wantNUMA: []int{0},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			var pods []*v1.Pod
			if tc.used != nil {
				holder := on(t, r.State, schedtest.Pod("holder").GPUs(len(tc.used)).CPU("0").Obj(), "n", tc.used...)
				if tc.usedCPUs != "" {
					holder = schedtest.PodFrom(holder).Request("cpu", tc.usedCPUs).Obj()
				}
				a, err := allocation.Parse(holder.Annotations[allocation.Key])
				if err != nil {
					t.Fatal(err)
				}
				a.NUMANodes = tc.usedOn
				text, err := a.Encode()
				if err != nil {
					t.Fatal(err)
				}
				holder.Annotations[allocation.Key] = text
				pods = append(pods, holder)
			}
			info, l := r.view(t, pods...)
			d := demandOf(t, tc.pod)
			if v := r.Nodes.Judge(d, info, l); v.Reason != tc.wantReason {
				t.Errorf("Filter says %q, want %q", v.Reason, tc.wantReason)
			}
			a, reason := r.Allocations.Assume(d, tc.pod, info, l)
			if reason != tc.wantReason {
				t.Fatalf("Reserve says %q, want %q", reason, tc.wantReason)
			}
			if reason != placement.Fits {
				return
			}
			var gpus []int
			if tc.wantGPUs != nil {
				m, _ := r.Nodes.Node("n").Accels[0].Graph.Positions(a.GPUs(testResource))
				gpus = m.Positions()
			}
			if !slices.Equal(gpus, tc.wantGPUs) {
				t.Errorf("GPUs %v, want %v", gpus, tc.wantGPUs)
			}
			if !slices.Equal(a.NUMANodes, tc.wantNUMA) {
				t.Errorf("NUMA nodes %v, want %v", a.NUMANodes, tc.wantNUMA)
			}
			if len(a.CPUs()) != tc.wantCPUs {
				t.Errorf("%d CPUs (%s), want %d", len(a.CPUs()), a.CPUSet, tc.wantCPUs)
			}
		})
	}
}

// TestCPUSpread: CPUs are spread over the NUMA nodes of the choice.
func TestCPUSpread(t *testing.T) {
	r := newTestEnv(t, "dgx-a100")
	pod := schedtest.Pod("all").GPUs(8).CPU("18").Obj()
	info, l := r.view(t)
	a, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	counts := map[int]int{}
	for _, n := range r.Nodes.Node("n").NUMA.NUMANodes {
		for _, c := range n.CPUs {
			if a.CPUs().Has(c) {
				counts[n.ID]++
			}
		}
	}
	if diff := cmp.Diff(map[int]int{1: 4, 3: 4, 5: 5, 7: 5}, counts); diff != "" {
		t.Errorf("CPUs by NUMA node of %s (-want,+got):\n%s", a.CPUSet, diff)
	}
}

// TestContainerSharing: the containers of a pod share its set.
func TestContainerSharing(t *testing.T) {
	tests := map[string]struct {
		init, app []v1.Container
		want      map[string][]int // container -> GPUs, ascending
	}{
		"two containers of two get a double link each": {
			app:  []v1.Container{container("a", 2), container("b", 2)},
			want: map[string][]int{"a": {0, 3}, "b": {1, 2}},
		},
		"an init container reuses the app's": {
			init: []v1.Container{container("i", 2)}, app: []v1.Container{container("a", 2)},
			want: map[string][]int{"i": {0, 3}, "a": {0, 3}},
		},
		"an init container after a sidecar leaves it alone": {
			init: []v1.Container{sidecar("s", 2), container("i", 2)}, app: []v1.Container{container("a", 2)},
			want: map[string][]int{"s": {0, 3}, "i": {1, 2}, "a": {1, 2}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			pod := schedtest.Pod("p").Obj()
			pod.Spec.InitContainers, pod.Spec.Containers = tc.init, tc.app
			info, l := r.view(t)
			a, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l)
			if reason != placement.Fits {
				t.Fatal(reason)
			}
			for _, c := range a.Containers {
				m, _ := r.Nodes.Node("n").Accels[0].Graph.Positions(c.GPUs)
				if got := m.Positions(); !slices.Equal(got, tc.want[c.Name]) {
					t.Errorf("container %s got %v, want %v", c.Name, got, tc.want[c.Name])
				}
			}
			if len(a.Containers) != len(tc.want) {
				t.Errorf("%d containers have GPUs, want %d", len(a.Containers), len(tc.want))
			}
		})
	}
}

// TestKubeletAdmission: kubelet's rules decide which choices are possible.
func TestKubeletAdmission(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	obj := topologyOf(t, "n", "dgx1-v100")
	obj.ResourceVersion = "2"
	obj.Status.Kubelet = &v1alpha1.Kubelet{TopologyManagerPolicy: "single-numa-node", CPUManagerPolicy: "static", ReservedCPUs: "0-1"}
	if _, err := r.Graphs.Apply(obj); err != nil {
		t.Fatal(err)
	}
	info, l := r.view(t)
	if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("five").GPUs(5).Obj()), info, l); v.Reason != placement.KubeletRefuses || !v.Never {
		t.Errorf("five GPUs on a single-numa-node kubelet: %+v, want %q for ever", v, placement.KubeletRefuses)
	}
	pod := schedtest.Pod("two").GPUs(2).CPU("4").Obj()
	a, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l)
	if reason != placement.Fits || a.CPUSet != "" || !slices.Equal(a.NUMANodes, []int{0}) {
		t.Errorf("choice %+v (%q), want NUMA node 0 and no cpuset: kubelet chooses the CPUs itself", a, reason)
	}
}

// TestModelMemoryMasks: model and memory are masks.
func TestModelMemoryMasks(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	tests := map[string]struct {
		key, value string
		want       placement.Reason
	}{
		"the node's model":      {podrequest.GPUModelKey, "V100-SXM2", placement.Fits},
		"one of several models": {podrequest.GPUModelKey, "H100,V100 SXM2", placement.Fits},
		"part of a word is not": {podrequest.GPUModelKey, "V10", placement.FewSuitableGPUs},
		"another model":         {podrequest.GPUModelKey, "H100", placement.FewSuitableGPUs},
		"less memory":           {podrequest.MinGPUMemoryKey, "10Gi", placement.Fits},
		"more memory":           {podrequest.MinGPUMemoryKey, "100Gi", placement.FewSuitableGPUs},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			info, l := r.view(t)
			v := r.Nodes.Judge(demandOf(t, schedtest.Pod("p").GPUs(2).Annotation(tc.key, tc.value).Obj()), info, l)
			if v.Reason != tc.want {
				t.Errorf("%s=%s: %q, want %q (model %q)", tc.key, tc.value, v.Reason, tc.want, r.Nodes.Node("n").Accels[0].Graph.GPUs[0].Model)
			}
		})
	}
}

// TestLinkDemandFabric: link demands name the fabric.
func TestLinkDemandFabric(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	info, l := r.view(t)
	d := demandOf(t, schedtest.Pod("p").GPUs(5).Annotation(podrequest.MinLinkKey, "NVLINK").Obj())
	v := r.Nodes.Judge(d, info, l)
	if got, want := v.Reason.Text(d.Request), "fewer free GPUs joined by NVLink than asked"; got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
	d = demandOf(t, schedtest.Pod("p").GPUs(2).Annotation(podrequest.MinBandwidthKey, "60").Obj())
	if v := r.Nodes.Judge(d, info, l); v.Reason != placement.LowBandwidth {
		t.Errorf("60 GB/s: %q, want %q", v.Reason, placement.LowBandwidth)
	}
}
