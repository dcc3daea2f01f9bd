// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestHalfIndependence: each half of a topology is read on its own. One part of an object is broken while
// another changes: the change must be seen, and the last good version of the broken part stays.
func TestHalfIndependence(t *testing.T) {
	good := func(t *testing.T) *v1alpha1.NodeGPUTopology {
		t.Helper()
		obj := topologyOf(t, "n", "dgx1-v100")
		obj.Status.Kubelet = &v1alpha1.Kubelet{TopologyManagerPolicy: "restricted", CPUManagerPolicy: "static", ReservedCPUs: "0-1"}
		obj.Status.Allocations = []v1alpha1.Allocation{{PodUID: "a", Container: "main", Resource: testResource, GPUs: []string{obj.Spec.GPUs[0].ID}, State: "confirmed"}}
		return obj
	}
	type seen struct {
		GPUs     int
		Healthy  []int
		Policy   string
		Reserved string
		Recorded []int
	}
	before := seen{GPUs: 8, Healthy: []int{0, 1, 2, 3, 4, 5, 6, 7}, Policy: "restricted", Reserved: "0-1", Recorded: []int{0}}
	sick := func(o *v1alpha1.NodeGPUTopology) { o.Status.GPUHealth[5].Healthy = false }
	record := func(o *v1alpha1.NodeGPUTopology) { o.Status.Allocations[0].GPUs = []string{o.Spec.GPUs[6].ID} }
	tests := map[string]struct {
		change func(o *v1alpha1.NodeGPUTopology)
		want   func(s *seen)
		err    []string
	}{
		"a broken spec hides neither health nor records": {
			func(o *v1alpha1.NodeGPUTopology) { o.Spec.LinkKinds[3].Class = "NVLink9"; sick(o); record(o) },
			func(s *seen) { s.Healthy, s.Recorded = []int{0, 1, 2, 3, 4, 6, 7}, []int{6} },
			[]string{"spec.linkKinds[3].class"},
		},
		"a broken kubelet hides no broken GPU": {
			func(o *v1alpha1.NodeGPUTopology) {
				o.Status.Kubelet.TopologyManagerPolicy, o.Status.Kubelet.ReservedCPUs = "strictest", "0-3"
				sick(o)
			},
			func(s *seen) { s.Healthy = []int{0, 1, 2, 3, 4, 6, 7} },
			[]string{"status.kubelet: topologyManagerPolicy"},
		},
		"broken reserved CPUs": {
			func(o *v1alpha1.NodeGPUTopology) { o.Status.Kubelet.ReservedCPUs = "3-1"; record(o) },
			func(s *seen) { s.Recorded = []int{6} },
			[]string{"status.kubelet: reservedCPUs"},
		},
		"broken CPUs of a record do not free its GPUs": {
			func(o *v1alpha1.NodeGPUTopology) { o.Status.Allocations[0].CPUs = "3-1"; record(o); sick(o) },
			func(s *seen) { s.Healthy, s.Recorded = []int{0, 1, 2, 3, 4, 6, 7}, []int{6} },
			[]string{"status.allocations[0].cpus"},
		},
		"everything is broken": {
			func(o *v1alpha1.NodeGPUTopology) {
				o.Spec.GPUs[1].ID = ""
				o.Status.Kubelet.ReservedCPUs, o.Status.Allocations[0].CPUs = "3-1", "3-1"
			},
			func(*seen) {},
			[]string{"spec.gpus[1].id", "status.kubelet", "status.allocations[0].cpus"},
		},
		"nothing is": {func(o *v1alpha1.NodeGPUTopology) { sick(o) }, func(s *seen) { s.Healthy = []int{0, 1, 2, 3, 4, 6, 7} }, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t)
			r.vouched(t, "dgx1-v100")
			obj := good(t)
			obj.ResourceVersion = "2"
			if _, err := r.Apply(obj); err != nil {
				t.Fatal(err)
			}
			obj = good(t)
			obj.ResourceVersion = "3"
			tc.change(obj)
			_, err := r.Apply(obj)
			for _, part := range tc.err {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v, want %s named", err, part)
				}
			}
			if err != nil && len(tc.err) == 0 {
				t.Errorf("refused: %v", err)
			}
			n := r.Node("n")
			got := seen{
				GPUs: n.Accels[0].Graph.Len(), Healthy: n.Accels[0].Healthy.Positions(), Policy: n.KubeletPolicy.String(), Reserved: n.ReservedCPUs.String(),
			}
			var recorded nvtopo.Mask
			for _, rec := range n.Records["a"] {
				m, _ := n.Accels[0].Graph.Positions(rec.GPUs)
				recorded |= m
			}
			got.Recorded = recorded.Positions()
			want := before
			tc.want(&want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("what is known of the node (-want,+got):\n%s", diff)
			}

			again := obj.DeepCopy()
			again.ResourceVersion = "4"
			if _, err := r.Apply(again); err != nil {
				t.Errorf("the same mistakes are reported twice: %v", err)
			}
			cured := good(t)
			cured.ResourceVersion = "5"
			if _, err := r.Apply(cured); err != nil || r.Entry("n").Fault() != "" {
				t.Errorf("a good version later: %v, fault %q", err, r.Entry("n").Fault())
			}
		})
	}
}

// TestBrokenGPUs: broken GPUs never look healthy. An exporter makes an object and then publishes the
// faults in a second write.
func TestBrokenGPUs(t *testing.T) {
	r := newTestEnv(t)
	obj := topologyOf(t, "n", "dgx1-v100")
	obj.UID, obj.ResourceVersion = "made-anew", "2"
	obj.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: obj.Spec.NodeUID}}
	status := obj.Status
	obj.Status = v1alpha1.NodeGPUTopologyStatus{}
	if c, err := r.Apply(obj); err != nil || c.Freed || r.Node("n") != nil {
		t.Errorf("an object without a status: somebody woken %t, %v, node %v; want that it does not count", c.Freed, err, r.Node("n"))
	}
	obj = obj.DeepCopy()
	obj.ResourceVersion, obj.Status = "3", status
	obj.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: obj.Spec.GPUs[3].ID, Reason: "Xid79"}}
	if c, err := r.Apply(obj); err != nil || !c.Freed {
		t.Fatalf("its status: somebody woken %t, %v", c.Freed, err)
	}
	if got, want := r.Node("n").Accels[0].Healthy, nvtopo.FullMask(8)&^nvtopo.MaskOf(3); got != want {
		t.Errorf("healthy are %b, want %b", got, want)
	}
}
