// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

const otherVendor = "amd.com/gpu"

// addOtherVendor gives a node's object four more accelerators of another vendor,
// joined in two pairs by XGMI.
func addOtherVendor(obj *v1alpha1.NodeGPUTopology) {
	obj.Spec.NICs = nil // their rows are as long as gpus
	first := int32(len(obj.Spec.GPUs))
	for i := range int32(4) {
		obj.Spec.GPUs = append(obj.Spec.GPUs, v1alpha1.GPU{
			ID: fmt.Sprintf("AMD-%d", i), Index: first + i, Resource: otherVendor, Model: "AMD Instinct MI250X", NUMANode: i / 2,
		})
		for j := range i {
			l := v1alpha1.Link{A: first + j, B: first + i, Class: "SYS", Bandwidth: resource.MustParse("12G"), PCIe: "SYS"}
			if i/2 == j/2 {
				l = v1alpha1.Link{A: first + j, B: first + i, Class: "XGMI", Lanes: 4, Bandwidth: resource.MustParse("200G")}
			}
			obj.Spec.Links = append(obj.Spec.Links, l)
		}
	}
}

// twoVendors is a node with both vendors' accelerators and a profile for both.
func twoVendors(t *testing.T) (*rig, *podrequest.Options) {
	t.Helper()
	r := newRig(t, "dgx1-v100")
	obj := topologyOf(t, "n", "dgx1-v100")
	addOtherVendor(obj)
	obj.ResourceVersion = "2"
	if _, err := r.Apply(obj); err != nil {
		t.Fatal(err)
	}
	opt := testOptions()
	opt.Resources = []string{testResource, otherVendor}
	return r, opt
}

// asksOther is a container with devices of the other vendor.
func asksOther(name, count string) v1.Container {
	l := v1.ResourceList{otherVendor: resource.MustParse(count)}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: l, Limits: l}}
}

func TestSingleNUMANodeHoldsForAllResourcesTogether(t *testing.T) {
	r, opt := twoVendors(t)
	pod := gpuPod("both", 4)
	pod.Spec.Containers = append(pod.Spec.Containers, asksOther("amd", "1"))
	req, err := podrequest.Parse(annotated(pod, podrequest.TopologyPolicyKey, "single-numa-node"), opt)
	if err != nil {
		t.Fatal(err)
	}
	// One GPU of node 0 is taken, so four are left on node 1 only; alone, the
	// other vendor's device would come from node 0.
	info, l := r.view(t, on(t, r.State, gpuPod("holder", 1), "n", 2))
	a, reason := r.Reserve(&placement.Demand{Request: req}, pod, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	if !slices.Equal(a.NUMANodes, []int{1}) {
		t.Errorf("NUMA nodes %v, want node 1 for both: %+v", a.NUMANodes, a.Containers)
	}
}

func TestTwoVendorsResourcesSideBySide(t *testing.T) {
	r, opt := twoVendors(t)
	pod := gpuPod("both", 2)
	pod.Spec.Containers = append(pod.Spec.Containers, asksOther("amd", "2"))
	req, err := podrequest.Parse(annotated(pod, podrequest.MinLinkKey, "SYS"), opt)
	if err != nil {
		t.Fatal(err)
	}
	d := &placement.Demand{Request: req}
	info, l := r.view(t)
	if v := r.Judge(d, info, l); v.Reason != placement.Fits {
		t.Fatal(v.Reason)
	}
	a, reason := r.Reserve(d, pod, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	if got, want := a.GPUs(otherVendor), []string{"AMD-0", "AMD-1"}; !slices.Equal(got, want) {
		t.Errorf("the other vendor's devices %v, want the XGMI pair %v", got, want)
	}
	if got := a.GPUs(testResource); len(got) != 2 {
		t.Errorf("%d NVIDIA GPUs, want 2: %v", len(got), got)
	}
	// The next pod sees each resource's use on its own graph.
	req, err = podrequest.Parse(annotated(gpuPod("next", 6)), opt)
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Judge(&placement.Demand{Request: req}, info, l); v.Reason != placement.Fits {
		t.Errorf("six more NVIDIA GPUs: %q, want that they fit", v.Reason)
	}
	third := gpuPod("third", 0)
	third.Spec.Containers = []v1.Container{asksOther("amd", "3")}
	req, err = podrequest.Parse(third, opt)
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Judge(&placement.Demand{Request: req}, info, l); v.Reason != placement.FewGPUs {
		t.Errorf("three of two devices left: %q, want %q", v.Reason, placement.FewGPUs)
	}
}
