// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// vendorResources are the resources of the profile for all vendors.
func vendorResources() []string {
	return []string{v1alpha1.DefaultResource, "amd.com/gpu", "huawei.com/Ascend910B"}
}

// testVendors has a node of each vendor. Each pod goes to the one that has its
// resource and gets the best linked set there.
func (e *testEnv) testVendors(t *testing.T) {
	nvidia, amd, ascend := e.freshName("nvidia"), e.freshName("amd"), e.freshName("ascend")
	tests := []struct {
		res, node, machine string
		minLink            string // of the second pod
		first, second      []int  // GPUs that a pod of as many gets
		tooMany            int    // more than are left, fewer than the node has
	}{
		{v1alpha1.DefaultResource, nvidia, "a100-pcie-4-bridged", "NV12", []int{0, 1}, []int{2, 3}, 1},
		// Two dies of a package have four links. Of the other six only 4-5-7-6-4 is a
		// ring of direct links.
		{"amd.com/gpu", amd, "mi250x-8", "XGMI", []int{0, 1}, []int{4, 5, 6, 7}, 3},
		// HCCS joins all. 0 and 1 share NUMA node 6. Of 4, 0 and 2, which are left, 0 and
		// 2 are the nearest, those of NPUs 4 to 7.
		{"huawei.com/Ascend910B", ascend, "atlas-800t-a2", "HCCS", []int{0, 1}, []int{4, 5, 6, 7}, 3},
	}
	for _, tc := range tests {
		e.node(t, tc.node, tc.machine)
	}
	for _, tc := range tests {
		t.Run(tc.res, func(t *testing.T) {
			vendorPod := func(prefix string, count int) *schedtest.PodWrapper {
				return gpuPod(e.freshName(prefix), vendorsProfile, 0).Resource(v1.ResourceName(tc.res), strconv.Itoa(count))
			}
			place := func(want []int, a notes) {
				t.Helper()
				pod := vendorPod("vendor-pod", len(want)).Annotations(a).Obj()
				if tc.res == v1alpha1.DefaultResource {
					pod.Spec.NodeSelector = host(tc.node) // other tests' nodes have NVIDIA's GPUs, too
				}
				e.create(t, pod)
				bound := e.bound(t, pod.Name)
				if bound.Spec.NodeName != tc.node {
					t.Fatalf("pod %s is on %s, want %s", pod.Name, bound.Spec.NodeName, tc.node)
				}
				c := choiceOf(t, bound, e.graphs[tc.node])
				if c.set != nvtopo.MaskOf(want...) || c.Containers[0].Resource != tc.res {
					t.Errorf("%s: got %v of %s, want %v", tc.res, c.set.Positions(), c.Containers[0].Resource, want)
				}
			}
			place(tc.first, nil)
			place(tc.second, notes{podrequest.MinLinkKey: tc.minLink})
			e.wantRefused(t, vendorPod("vendor-pod-"+strconv.Itoa(tc.tooMany), tc.tooMany).NodeSelector(host(tc.node)).Obj(),
				"Insufficient "+tc.res)
		})
	}
}
