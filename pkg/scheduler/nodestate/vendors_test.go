// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/smi"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
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
	}
	obj.Spec.LinkKinds = append(obj.Spec.LinkKinds,
		v1alpha1.LinkKind{Name: "slow", Class: "SYS", Bandwidth: resource.MustParse("12G"), PCIe: "SYS"},
		v1alpha1.LinkKind{Name: "XGMI4", Class: "XGMI", Lanes: 4, Bandwidth: resource.MustParse("200G")})
	for i := range obj.Spec.LinkRows {
		obj.Spec.LinkRows[i] += " - - - -"
	}
	obj.Spec.LinkRows = append(obj.Spec.LinkRows, "- - - -", "XGMI4 slow slow", "slow slow", "XGMI4")
}

// twoVendors returns a node with both vendors' accelerators and a profile for both.
func twoVendors(t *testing.T) (*testEnv, *podrequest.Options) {
	t.Helper()
	r := newTestEnv(t, "dgx1-v100")
	obj := topologyOf(t, "n", "dgx1-v100")
	addOtherVendor(obj)
	obj.ResourceVersion = "2"
	if _, err := r.Graphs.Apply(obj); err != nil {
		t.Fatal(err)
	}
	opt := testOptions()
	opt.Resources = []string{testResource, otherVendor}
	return r, opt
}

// asksOther returns a container with devices of the other vendor.
func asksOther(name, count string) v1.Container {
	l := v1.ResourceList{otherVendor: resource.MustParse(count)}
	return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: l, Limits: l}}
}

// TestSingleNUMANode: single-numa-node holds for all resources together.
func TestSingleNUMANode(t *testing.T) {
	r, opt := twoVendors(t)
	pod := schedtest.Pod("both").GPUs(4).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").Obj()
	pod.Spec.Containers = append(pod.Spec.Containers, asksOther("amd", "1"))
	req, err := podrequest.Parse(pod, opt)
	if err != nil {
		t.Fatal(err)
	}
	// One GPU of node 0 is taken, so four are left on node 1 only; alone, the
	// other vendor's device would come from node 0.
	info, l := r.view(t, on(t, r.State, schedtest.Pod("holder").GPUs(1).Obj(), "n", 2))
	a, reason := r.Allocations.Assume(&placement.Demand{Request: req}, pod, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	if !slices.Equal(a.NUMANodes, []int{1}) {
		t.Errorf("NUMA nodes %v, want node 1 for both: %+v", a.NUMANodes, a.Containers)
	}
}

func TestTwoVendors(t *testing.T) {
	r, opt := twoVendors(t)
	pod := schedtest.Pod("both").GPUs(2).Annotation(podrequest.MinLinkKey, "SYS").Obj()
	pod.Spec.Containers = append(pod.Spec.Containers, asksOther("amd", "2"))
	req, err := podrequest.Parse(pod, opt)
	if err != nil {
		t.Fatal(err)
	}
	d := &placement.Demand{Request: req}
	info, l := r.view(t)
	if v := r.Nodes.Judge(d, info, l); v.Reason != placement.Fits {
		t.Fatal(v.Reason)
	}
	a, reason := r.Allocations.Assume(d, pod, info, l)
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
	req, err = podrequest.Parse(schedtest.Pod("next").GPUs(6).Obj(), opt)
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Nodes.Judge(&placement.Demand{Request: req}, info, l); v.Reason != placement.Fits {
		t.Errorf("six more NVIDIA GPUs: %q, want that they fit", v.Reason)
	}
	req, err = podrequest.Parse(schedtest.Pod("third").Containers(asksOther("amd", "3")).Obj(), opt)
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Nodes.Judge(&placement.Demand{Request: req}, info, l); v.Reason != placement.FewGPUs {
		t.Errorf("three of two devices left: %q, want %q", v.Reason, placement.FewGPUs)
	}
}

// graphOfText returns the link graph in a text of another vendor's tool, one of the examples of package
// smi.
func graphOfText(t *testing.T, name string) *nvtopo.Graph {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "nvtopo", "smi", "testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := smi.Parse(f, smi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestVendorBestSet: a pod gets each vendor's best linked set. Two pods are placed, one after the other,
// on a node of each vendor, under a profile for all resources.
func TestVendorBestSet(t *testing.T) {
	tests := map[string]struct {
		text       string // none: NVIDIA's node of the catalogue
		first      string
		wantFirst  []string
		second     string
		minLink    string
		wantSecond []string
		tooMany    string // so many are refused after both
	}{
		"huawei.com/Ascend910": {
			text: "ascend-910-two-groups", first: "2", wantFirst: []string{"NPU-0", "NPU-1"},
			// Only the other group still has four that HCCS joins.
			second: "4", minLink: "HCCS", wantSecond: []string{"NPU-4", "NPU-5", "NPU-6", "NPU-7"}, tooMany: "3",
		},
		"huawei.com/Ascend910B": {
			// All are joined; two share each NUMA node.
			text: "ascend-910b3-8", first: "1", wantFirst: []string{"NPU-0"},
			second: "4", minLink: "HCCS", wantSecond: []string{"NPU-2", "NPU-3", "NPU-4", "NPU-5"}, tooMany: "4",
		},
		otherVendor: {
			// The dies of one package. Of the six that are left only 4-5-7-6-4 is a ring of direct links.
			text: "mi250x-8", first: "2", wantFirst: []string{"GPU-0", "GPU-1"},
			second: "4", minLink: "XGMI", wantSecond: []string{"GPU-4", "GPU-5", "GPU-6", "GPU-7"}, tooMany: "3",
		},
		testResource: {first: "2", second: "2", minLink: "NV12", tooMany: "1"},
	}
	for res, tc := range tests {
		t.Run(res, func(t *testing.T) {
			r := newTestEnv(t, "a100-pcie-4-bridged")
			bridged := topologyOf(t, "n", "a100-pcie-4-bridged")
			if tc.text == "" {
				tc.wantFirst = []string{bridged.Spec.GPUs[0].ID, bridged.Spec.GPUs[1].ID}
				tc.wantSecond = []string{bridged.Spec.GPUs[2].ID, bridged.Spec.GPUs[3].ID}
			} else {
				obj := v1alpha1.FromGraph("n", res, graphOfText(t, tc.text))
				obj.ObjectMeta, obj.Spec.NodeUID = bridged.ObjectMeta, bridged.Spec.NodeUID
				obj.ResourceVersion = "2"
				if _, err := r.Graphs.Apply(obj); err != nil {
					t.Fatal(err)
				}
			}
			opt := testOptions()
			opt.Resources = []string{testResource, otherVendor, "huawei.com/Ascend910", "huawei.com/Ascend910B"}
			ask := func(name, count, minLink string) (*placement.Demand, *v1.Pod) {
				asked := schedtest.Pod(name).Resource(v1.ResourceName(res), count)
				if minLink != "" {
					asked.Annotation(podrequest.MinLinkKey, minLink)
				}
				pod := asked.Obj()
				req, err := podrequest.Parse(pod, opt)
				if err != nil {
					t.Fatal(err)
				}
				return &placement.Demand{Request: req}, pod
			}
			info, l := r.view(t)
			place := func(name, count, minLink string, want []string) {
				t.Helper()
				d, pod := ask(name, count, minLink)
				a, reason := r.Allocations.Assume(d, pod, info, l)
				if reason != placement.Fits {
					t.Fatalf("%s of %s: %s", count, res, reason)
				}
				got := a.GPUs(res)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("%s of %s: got %v, want %v", count, res, got, want)
				}
			}
			place("first", tc.first, "", tc.wantFirst)
			place("second", tc.second, tc.minLink, tc.wantSecond)
			d, _ := ask("third", tc.tooMany, "")
			if v := r.Nodes.Judge(d, info, l); v.Reason != placement.FewGPUs {
				t.Errorf("%s more: %q, want %q", tc.tooMany, v.Reason, placement.FewGPUs)
			}
		})
	}
}
