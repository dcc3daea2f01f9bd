// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// testHostilePods creates malicious pods: each is refused at once, or waits with a reason, and the next
// honest pod is bound as fast as before.
func (e *testEnv) testHostilePods(t *testing.T) {
	node := e.freshName("hostile")
	e.node(t, node, "dgx1-v100")
	pod := func(gpus string, notes notes) *v1.Pod {
		p := gpuPod(e.freshName("hostile-pod"), preBindProfile, 1).Annotations(notes).NodeSelector(host(node)).Obj()
		p.Spec.Containers[0].Resources.Limits[gpuResource] = resource.MustParse(gpus)
		p.Spec.Containers[0].Resources.Requests[gpuResource] = resource.MustParse(gpus)
		return p
	}
	for name, tc := range map[string]struct {
		gpus string
		want string
	}{
		"half a GPU":                           {"500m", "must be an integer"},
		"fewer than none":                      {"-1", "must be greater than or equal to 0"},
		"limits that differ from the requests": {"", "must be equal to nvidia.com/gpu limit"},
	} {
		t.Run(name, func(t *testing.T) {
			var p *v1.Pod
			if tc.gpus == "" {
				p = pod("1", nil)
				p.Spec.Containers[0].Resources.Limits = v1.ResourceList{gpuResource: resource.MustParse("2")}
			} else {
				p = pod(tc.gpus, nil)
			}
			_, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("answer %v, want %q", err, tc.want)
			}
		})
	}
	crowd := pod("1", nil)
	for i := range 500 {
		c := *crowd.Spec.Containers[0].DeepCopy()
		c.Name = fmt.Sprintf("init-%d", i)
		crowd.Spec.InitContainers = append(crowd.Spec.InitContainers, c)
	}
	crowd.Spec.InitContainers[499].Resources.Limits[gpuResource] = resource.MustParse("9")
	crowd.Spec.InitContainers[499].Resources.Requests[gpuResource] = resource.MustParse("9")
	twice := pod("9223372036854775807", nil)
	second := *twice.Spec.Containers[0].DeepCopy()
	second.Name = "second"
	twice.Spec.Containers = append(twice.Spec.Containers, second)
	waiting := map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"2^31 GPUs": {pod("2147483648", nil), "Insufficient nvidia.com/gpu"},
		// The plugin NodeResourcesFit computes the sum 0: only ours refuses it.
		"2^63-1 GPUs, twice":                    {twice, placement.FewGPUs.String()},
		"500 init containers":                   {crowd, "Insufficient nvidia.com/gpu"},
		"memory that takes minutes to read":     {pod("1", notes{podrequest.MinGPUMemoryKey: "1e-100000000"}), "annotation " + podrequest.MinGPUMemoryKey + ": "},
		"a value of 200 KiB":                    {pod("1", notes{podrequest.GPUModelKey: strings.Repeat("A", 200<<10)}), "204800 bytes, at most 1024 are read"},
		"a bandwidth beyond any number":         {pod("1", notes{podrequest.MinBandwidthKey: "1e309"}), "is not a number"},
		"a bandwidth that is none":              {pod("1", notes{podrequest.MinBandwidthKey: "NaN"}), "want more than 0"},
		"a policy in letters that only look so": {pod("1", notes{podrequest.TopologyPolicyKey: "rеstricted"}), "unknown topology policy"},
	}
	e.unjudged(t, func() {
		for name, tc := range waiting {
			t.Run(name, func(t *testing.T) { e.wantRefused(t, tc.pod, tc.want) })
		}
	})
	t.Run("an honest pod after them", func(t *testing.T) {
		p := gpuPod(e.freshName("honest"), preBindProfile, 2).NodeSelector(host(node)).Obj()
		e.create(t, p)
		e.bound(t, p.Name)
	})
}
