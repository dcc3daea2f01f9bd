// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"

	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

func aPod(change func(*Pod)) *Pod {
	p := &Pod{
		Workload: Training, Name: "train", Image: "example.com/train:1", Scheduler: "topology-aware-scheduler", Resource: "nvidia.com/gpu",
		GPUs: 4, CPUs: 32, Memory: resource.MustParse("128Gi"), SharedMemory: resource.MustParse("64Gi"),
		Annotations: map[string]string{podrequest.TopologyPolicyKey: "restricted"},
	}
	if change != nil {
		change(p)
	}
	return p
}

func TestPods(t *testing.T) {
	tests := map[string]struct {
		change      func(*Pod)
		wantEnv     map[string]string
		wantClass   v1.PodQOSClass
		wantProbes  bool
		wantComment string
	}{
		"training on four GPUs": {
			wantEnv: map[string]string{
				"OMP_NUM_THREADS": "8", "OMP_PLACES": "cores", "OMP_PROC_BIND": "false", "NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "0",
			},
			wantClass: v1.PodQOSBurstable, wantComment: "CUDA indices restart at 0",
		},
		"training with NCCL's topology over one interface": {
			change: func(p *Pod) { p.Interface, p.TopologyConfigMap = "eth0", "nccl-topology" },
			wantEnv: map[string]string{
				"OMP_NUM_THREADS": "8", "OMP_PLACES": "cores", "OMP_PROC_BIND": "false", "NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "0",
				"NCCL_SOCKET_IFNAME": "eth0", "NCCL_TOPO_FILE": "/etc/nccl/topo.xml",
			},
			wantClass: v1.PodQOSBurstable, wantComment: "generate nccl-topo",
		},
		"an inference server on one GPU": {
			change:    func(p *Pod) { p.Workload, p.GPUs, p.CPUs, p.Port = Inference, 1, 8, 8000 },
			wantEnv:   map[string]string{"OMP_NUM_THREADS": "8", "OMP_PLACES": "cores", "OMP_PROC_BIND": "close"},
			wantClass: v1.PodQOSGuaranteed, wantProbes: true, wantComment: "Class Guaranteed",
		},
		"fewer CPUs than GPUs": {
			change: func(p *Pod) { p.CPUs = 2 },
			wantEnv: map[string]string{
				"OMP_NUM_THREADS": "1", "OMP_PLACES": "cores", "OMP_PROC_BIND": "false", "NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "0",
			},
			wantClass: v1.PodQOSBurstable,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := aPod(tc.change)
			data, err := p.Write()
			if err != nil {
				t.Fatal(err)
			}
			pod := &v1.Pod{}
			if err := yaml.UnmarshalStrict(data, pod); err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			want, err := p.Object()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, pod); diff != "" {
				t.Errorf("what is written differs (-want,+got):\n%s", diff)
			}
			got := map[string]string{}
			for _, e := range pod.Spec.Containers[0].Env {
				got[e.Name] = e.Value
			}
			if diff := cmp.Diff(tc.wantEnv, got); diff != "" {
				t.Errorf("environment (-want,+got):\n%s", diff)
			}
			if class := qos.GetPodQOS(pod); class != tc.wantClass {
				t.Errorf("class %s, want %s", class, tc.wantClass)
			}
			if c := pod.Spec.Containers[0]; (c.LivenessProbe != nil && c.ReadinessProbe != nil && c.StartupProbe != nil) != tc.wantProbes {
				t.Errorf("probes %v, %v, %v", c.LivenessProbe, c.ReadinessProbe, c.StartupProbe)
			}
			shm := pod.Spec.Volumes[0].EmptyDir
			if shm == nil || shm.Medium != v1.StorageMediumMemory || shm.SizeLimit.Cmp(p.SharedMemory) != 0 || pod.Spec.Containers[0].VolumeMounts[0].MountPath != "/dev/shm" {
				t.Errorf("/dev/shm is %v at %v", pod.Spec.Volumes[0], pod.Spec.Containers[0].VolumeMounts[0])
			}
			if !strings.Contains(string(data), tc.wantComment) {
				t.Errorf("no %q in\n%s", tc.wantComment, data)
			}
		})
	}
}

func TestBadPods(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Pod)
		want   string
	}{
		"a workload nobody has":          {func(p *Pod) { p.Workload = Mixed }, `workload "mixed"`},
		"no image":                       {func(p *Pod) { p.Image = "" }, "image"},
		"no GPUs":                        {func(p *Pod) { p.GPUs = 0 }, "0 GPUs"},
		"more GPUs than a machine has":   {func(p *Pod) { p.GPUs = 65 }, "65 GPUs"},
		"no CPUs":                        {func(p *Pod) { p.CPUs = 0 }, "0 CPUs"},
		"no memory":                      {func(p *Pod) { p.Memory = resource.Quantity{} }, "memory 0"},
		"more is shared than the memory": {func(p *Pod) { p.SharedMemory = p.Memory }, "of which it is a part"},
		"a wish that cannot be read":     {func(p *Pod) { p.Annotations = map[string]string{podrequest.MinLinkKey: "NV0"} }, podrequest.MinLinkKey},
		"a policy nobody has":            {func(p *Pod) { p.Annotations[podrequest.TopologyPolicyKey] = "tight" }, `"tight"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := aPod(tc.change).Write(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
