// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/internal/testobj"
)

// TestGPUParts: parts of GPUs have no links.
func TestGPUParts(t *testing.T) {
	tests := map[string]struct {
		resource    v1.ResourceName
		annotations map[string]string
		init        bool
		wantErr     string // empty: none
	}{
		"a slice alone":                     {resource: "nvidia.com/mig-1g.10gb"},
		"a slice on a NUMA node":            {resource: "nvidia.com/mig-1g.10gb", annotations: map[string]string{TopologyPolicyKey: "single-numa-node"}},
		"a slice with a link":               {resource: "nvidia.com/mig-1g.10gb", annotations: map[string]string{MinLinkKey: "NVLINK"}, wantErr: "annotation nvtopo.dev/min-link: container part asks for nvidia.com/mig-1g.10gb, a part of a GPU"},
		"a slice with a bandwidth":          {resource: "nvidia.com/mig-3g.40gb", annotations: map[string]string{MinBandwidthKey: "20"}, wantErr: "annotation nvtopo.dev/min-bandwidth: container part asks for nvidia.com/mig-3g.40gb"},
		"a slice of an init container":      {resource: "nvidia.com/mig-3g.40gb", annotations: map[string]string{MinLinkKey: "PIX"}, init: true, wantErr: "container part"},
		"a turn with a link":                {resource: "nvidia.com/gpu.shared", annotations: map[string]string{MinLinkKey: "NV2"}, wantErr: "nvidia.com/gpu.shared"},
		"a whole GPU with a link":           {resource: "nvidia.com/gpu", annotations: map[string]string{MinLinkKey: "NV2"}},
		"another vendor's with that name":   {resource: "example.com/mig-1g", annotations: map[string]string{MinLinkKey: "NV2"}},
		"an adapter that is shared by many": {resource: "example.com/hca.shared", annotations: map[string]string{MinLinkKey: "NV2"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pod := testobj.Pod("p").Annotations(tc.annotations).Obj()
			part := v1.Container{Name: "part", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{tc.resource: resource.MustParse("1")}, Limits: v1.ResourceList{tc.resource: resource.MustParse("1")},
			}}
			if tc.init {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, part)
			} else {
				pod.Spec.Containers = append(pod.Spec.Containers, part)
			}
			_, err := Parse(pod, testOptions())
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("got %v, want %q", err, tc.wantErr)
			}
		})
	}
	// A profile that chooses shared GPUs itself knows their positions.
	opt := testOptions()
	opt.Resources = append(opt.Resources, "nvidia.com/gpu.shared")
	pod := testobj.Pod("p").Annotation(MinLinkKey, "NV2").Request("nvidia.com/gpu.shared", "2").Obj()
	if _, err := Parse(pod, opt); err != nil {
		t.Errorf("a resource of the profile: %v", err)
	}
}
