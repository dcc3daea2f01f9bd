// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// TestCountOverflow: absurd counts do not wrap around. Two containers with 2^63-1 GPUs each requested -2
// of them in all, and the pod was treated as one that needs none.
func TestCountOverflow(t *testing.T) {
	for _, text := range []string{"2147483648", "9223372036854775807", "1e19", "1e30"} {
		t.Run(text, func(t *testing.T) {
			pod := schedtest.Pod("p").Obj()
			for i := range 3 {
				c := container(string(rune('a'+i)), 0)
				c.Resources.Requests = v1.ResourceList{testResource: resource.MustParse(text), "cpu": resource.MustParse(text)}
				c.Resources.Limits = c.Resources.Requests
				pod.Spec.Containers = append(pod.Spec.Containers, c)
			}
			d := demandOf(t, pod)
			if len(d.Resources) != 1 || d.Resources[0].Count < 1<<20 || d.MilliCPU < 3*(1<<31) {
				t.Fatalf("the pod asks for %+v and %d thousandths of a CPU", d.Resources, d.MilliCPU)
			}
			s := fuzzState()
			node := addNode(t, s, "n", "dgx-h100")
			info, l := fuzzView(t, node, s)
			if v := s.Nodes.Judge(d, info, l); v.Reason == placement.Fits || !v.Never {
				t.Errorf("verdict %+v, want one that no eviction cures", v)
			}
		})
	}
}

// TestAbsurdRequests: pods put on a node with absurd requests free nothing. A user who may create pods
// may name a node in them. Until kubelet has refused such pods they are on it.
func TestAbsurdRequests(t *testing.T) {
	s := fuzzState()
	node := addNode(t, s, "n", "dgx-h100")
	pods := []*v1.Pod{on(t, s, schedtest.Pod("honest").GPUs(2).Obj(), "n", 0, 1)}
	for i := range 5 {
		p := schedtest.Pod(string(rune('a' + i))).Node("n").Obj()
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{
			testResource: *resource.NewQuantity(math.MaxInt64, resource.DecimalSI), "cpu": *resource.NewQuantity(1<<50, resource.DecimalSI),
			"memory": *resource.NewQuantity(math.MaxInt64, resource.DecimalSI),
		}
		pods = append(pods, p)
		info, l := fuzzView(t, node, s, pods...)
		d := demandOf(t, schedtest.Pod("new").GPUs(1).CPU("1").Memory("1Gi").Obj())
		if v := s.Nodes.Judge(d, info, l); v.Reason != placement.FewGPUs || v.Never {
			t.Errorf("%d absurd pods: verdict %+v, want %v for now", i+1, v, placement.FewGPUs)
		}
		for at, free := range s.Nodes.View(d, info, l).NUMA {
			if free.MilliCPU > 0 || free.Memory > 0 {
				t.Errorf("%d absurd pods: NUMA node %d has %+v left", i+1, at, free)
			}
		}
	}
}
