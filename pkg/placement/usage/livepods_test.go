// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// TestUsageOfObjects: an object and the pods beside it are all that is needed.
func TestUsageOfObjects(t *testing.T) {
	m, err := machine.Lookup("a100-pcie-4-bridged")
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.GraphFor("n")
	if err != nil {
		t.Fatal(err)
	}
	object := v1alpha1.FromGraph("n", gpu, g)
	object.Spec.NodeUID = "node-uid"
	object.Status.Kubelet = &v1alpha1.Kubelet{TopologyManagerPolicy: "no such policy"}
	object.Status.Allocations = []v1alpha1.Allocation{{PodUID: "recorded", Container: "main", Resource: gpu, GPUs: []string{object.Spec.GPUs[3].ID}}}
	table := nodelease.NewTable(0)
	exporter, agent := table.Get("exporter-n"), table.Get("agent-n")
	var reader v1alpha1.Reader
	n, err := NewDecoder().ReadNode(&reader, nvtopo.NewRegistry(nvtopo.DefaultWeights()), object, exporter, agent)
	if err != nil {
		t.Fatal(err)
	}
	if n.NodeUID != "node-uid" || n.KubeletStatus != nil || n.Exporter != exporter || n.Agent != agent || len(n.Accels) != 1 {
		t.Errorf("node %+v", n)
	}

	pod := func(name string, asked int, chosen ...int) LivePod {
		p := testobj.Pod(name).Node("n").GPUs(asked).Request(v1.ResourceCPU, "1500m").Obj()
		if len(chosen) > 0 {
			a := &allocation.Allocation{Version: allocation.Version, Node: "n", PodUID: p.UID, Containers: []allocation.Container{{Name: "main", Resource: gpu, GPUs: n.ids(chosen...)}}}
			if p.Annotations[allocation.Key], err = a.Encode(); err != nil {
				t.Fatal(err)
			}
		}
		return NewLivePod(p)
	}
	tests := map[string]struct {
		pods        LivePods
		wantUsed    nvtopo.Mask
		wantCounted int
	}{
		"nobody":                        {pods: LivePods{}},
		"a choice":                      {pods: LivePods{pod("chosen", 2, 0, 1)}, wantUsed: nvtopo.MaskOf(0, 1)},
		"a record":                      {pods: LivePods{pod("recorded", 1)}, wantUsed: nvtopo.MaskOf(3)},
		"neither":                       {pods: LivePods{pod("foreign", 2)}, wantCounted: 2},
		"a choice for fewer than asked": {pods: LivePods{pod("chosen", 3, 0, 1)}, wantUsed: nvtopo.MaskOf(0, 1), wantCounted: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			u := Compute(&Input{Node: n, Now: now, Pods: tc.pods, Listed: tc.pods, Reader: AnnotationReader{}})
			if u.Used[0] != tc.wantUsed || u.Counted[0] != tc.wantCounted {
				t.Errorf("used %v, counted %d; want %v, %d", u.Used[0], u.Counted[0], tc.wantUsed, tc.wantCounted)
			}
		})
	}
	broken := object.DeepCopy()
	broken.Spec.LinkRows = broken.Spec.LinkRows[1:]
	if _, err := NewDecoder().ReadNode(&reader, nvtopo.NewRegistry(nvtopo.DefaultWeights()), broken, exporter, agent); err == nil {
		t.Error("a graph that lacks a link was read")
	}
}

func TestListAmounts(t *testing.T) {
	a := AmountsOf(v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("1500m"), v1.ResourceMemory: resource.MustParse("2Gi"), v1.ResourceEphemeralStorage: resource.MustParse("1M"),
		v1.ResourcePods: resource.MustParse("110"), gpu: resource.MustParse("8"),
	})
	got := []int64{a.GetMilliCPU(), a.GetMemory(), a.GetEphemeralStorage(), a.Pods(), a.GetScalarResources()[gpu], int64(len(a.GetScalarResources()))}
	if diff := cmp.Diff([]int64{1500, 2 << 30, 1_000_000, 110, 8, 1}, got); diff != "" {
		t.Errorf("thousandths of a CPU, memory, storage, pods, GPUs and how many others (-want,+got):\n%s", diff)
	}
}
