// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"errors"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Workload is the kind of work of a pod.
type Workload string

// The workloads of pods.
const (
	Training  Workload = "training"  // may use idle CPUs beyond its own
	Inference Workload = "inference" // of the class Guaranteed
)

// Folder and name of NCCL's topology file in a container.
const (
	topologyFolder = "/etc/nccl"
	topologyFile   = "topo.xml"
)

// maxPodGPUs is the greatest number of GPUs of one machine.
const maxPodGPUs = nvtopo.MaxGPUs

// Pod is a pod with GPUs and the settings for them.
type Pod struct {
	Workload     Workload
	Name         string
	Image        string
	Command      []string // empty: that of the image
	Scheduler    string   // schedulerName
	Resource     string   // extended resource of the GPUs
	GPUs         int
	CPUs         int
	Memory       resource.Quantity
	SharedMemory resource.Quantity // of /dev/shm, a part of Memory
	Annotations  map[string]string // the pod's requests by the keys of pkg/placement/podrequest
	// Interface is the network interface over which NCCL starts; empty: NCCL finds one.
	Interface string
	// TopologyConfigMap has NCCL's topology file under topo.xml; empty: NCCL detects the topology.
	TopologyConfigMap string
	// Port and its path /health are for probes; 0: none.
	Port int32
}

// Object returns the pod. An error is about a field of p.
func (p *Pod) Object() (*v1.Pod, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	shared := p.SharedMemory
	pod := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Annotations: p.Annotations},
		Spec: v1.PodSpec{
			SchedulerName: p.Scheduler,
			RestartPolicy: v1.RestartPolicyNever,
			Containers: []v1.Container{{
				Name: string(p.Workload), Image: p.Image, Command: p.Command,
				Env: append(openMP(p.CPUs, p.GPUs), p.nccl()...), Resources: p.resources(),
				VolumeMounts: []v1.VolumeMount{{Name: "shm", MountPath: "/dev/shm"}},
			}},
			Volumes: []v1.Volume{{Name: "shm", VolumeSource: v1.VolumeSource{
				EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &shared},
			}}},
		},
	}
	c := &pod.Spec.Containers[0]
	if p.TopologyConfigMap != "" {
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "nccl-topology", MountPath: topologyFolder, ReadOnly: true})
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "nccl-topology", VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: p.TopologyConfigMap}},
		}})
	}
	if p.Workload == Inference {
		pod.Spec.RestartPolicy = v1.RestartPolicyAlways
		if p.Port != 0 {
			c.Ports = []v1.ContainerPort{{Name: "http", ContainerPort: p.Port}}
			health := v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/health", Port: intstr.FromString("http")}}
			c.StartupProbe = &v1.Probe{ProbeHandler: health, PeriodSeconds: 10, FailureThreshold: 60}
			c.ReadinessProbe = &v1.Probe{ProbeHandler: health, PeriodSeconds: 5}
			c.LivenessProbe = &v1.Probe{ProbeHandler: health, PeriodSeconds: 10}
		}
	}
	opt := &podrequest.Options{Resources: []string{p.Resource}, DefaultPolicy: nvtopo.PolicyBestEffort, Supported: podrequest.AllPolicies()}
	if _, err := podrequest.Parse(pod, opt); err != nil {
		return nil, err
	}
	return pod, nil
}

// Write returns the pod as YAML, with the reasons as comments.
func (p *Pod) Write() ([]byte, error) {
	pod, err := p.Object()
	if err != nil {
		return nil, err
	}
	return document(p.comment(), pod, "env")
}

func (p *Pod) check() error {
	switch {
	case p.Workload != Training && p.Workload != Inference:
		return fmt.Errorf("workload %q: want %s or %s", p.Workload, Training, Inference)
	case p.Image == "":
		return errors.New("an image is needed")
	case p.GPUs < 1 || p.GPUs > maxPodGPUs:
		return fmt.Errorf("%d GPUs: want 1 to %d", p.GPUs, maxPodGPUs)
	case p.CPUs < 1:
		return fmt.Errorf("%d CPUs: want 1 or more", p.CPUs)
	case p.Memory.Sign() <= 0:
		return fmt.Errorf("memory %s: want more than 0", &p.Memory)
	case p.SharedMemory.Sign() <= 0 || p.SharedMemory.Cmp(p.Memory) >= 0:
		return fmt.Errorf("shared memory %s: want more than 0, and less than the memory of %s, of which it is a part", &p.SharedMemory, &p.Memory)
	}
	return nil
}

// resources returns equal requests and limits for an inference server, which must not be disturbed.
// Training may use idle CPUs; its memory has a limit because /dev/shm is a part of it.
func (p *Pod) resources() v1.ResourceRequirements {
	gpus, cpus := *resource.NewQuantity(int64(p.GPUs), resource.DecimalSI), *resource.NewQuantity(int64(p.CPUs), resource.DecimalSI)
	out := v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: cpus, v1.ResourceMemory: p.Memory, v1.ResourceName(p.Resource): gpus},
		Limits:   v1.ResourceList{v1.ResourceMemory: p.Memory, v1.ResourceName(p.Resource): gpus},
	}
	if p.Workload == Inference {
		out.Limits[v1.ResourceCPU] = cpus
	}
	return out
}

// nccl returns NCCL's variables; none for one GPU.
func (p *Pod) nccl() []v1.EnvVar {
	if p.GPUs == 1 {
		return nil
	}
	out := []v1.EnvVar{{Name: "NCCL_DEBUG", Value: "INFO"}, {Name: "NCCL_IB_DISABLE", Value: "0"}}
	if p.Interface != "" {
		out = append(out, v1.EnvVar{Name: "NCCL_SOCKET_IFNAME", Value: p.Interface})
	}
	if p.TopologyConfigMap != "" {
		out = append(out, v1.EnvVar{Name: "NCCL_TOPO_FILE", Value: topologyFolder + "/" + topologyFile})
	}
	return out
}

func (p *Pod) comment() []string {
	out := []string{
		"CUDA indices restart at 0 inside the container: whichever GPUs the pod gets, the first is",
		"cuda:0. So CUDA_VISIBLE_DEVICES is not set here; the device plugin shows the chosen GPUs only.",
	}
	if p.Workload == Inference {
		out = append(out,
			"Class Guaranteed, since requests equal limits: under kubelet's cpuManagerPolicy static the",
			"container gets CPUs of its own, which kubelet chooses.")
	} else {
		out = append(out,
			"Class Burstable: data loaders may use idle CPUs, and kubelet's CPU manager gives it none of its",
			"own. With limits equal to requests it would.")
	}
	out = append(out,
		"shm: /dev/shm is 64 MB otherwise, too little for data loaders and NCCL; it counts as memory.",
		"OMP_NUM_THREADS: "+strconv.Itoa(max(1, p.CPUs/p.GPUs))+", the CPUs divided by the processes, one for each GPU.",
		"OMP_PLACES: whole cores, without a list of CPUs (GOMP_CPU_AFFINITY): which CPUs the container",
		"gets is not known before.")
	if p.GPUs == 1 {
		return append(out, "OMP_PROC_BIND: threads stay on neighbouring cores.")
	}
	out = append(out,
		"OMP_PROC_BIND: false, or all processes would bind to the same first cores.",
		"NCCL_DEBUG: the log says which rings and links NCCL uses.",
		"NCCL_IB_DISABLE: 0, so InfiniBand and RoCE are used where there are adapters.")
	if p.Interface != "" {
		out = append(out, "NCCL_SOCKET_IFNAME: the pod's interface, so NCCL does not try others.")
	}
	if p.TopologyConfigMap != "" {
		out = append(out, "NCCL_TOPO_FILE: for virtual machines that hide the PCIe tree; it must fit the node. The ConfigMap",
			"is made of the output of \"generate nccl-topo\", under the key topo.xml.")
	}
	return out
}
