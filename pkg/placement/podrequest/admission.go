// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
)

// readAdmission reads the pod in the form of kubelet's managers.
func (r *Request) readAdmission(pod *v1.Pod) {
	spec := &pod.Spec
	cs := make([]kubeletadmission.Container, 0, len(spec.InitContainers)+len(spec.Containers))
	pinned := GetsExclusive(pod)
	add := func(c *v1.Container, kind ContainerKind) {
		a := kubeletadmission.Container{Kind: admissionKind(kind)}
		if pinned {
			// In a Guaranteed pod requests equal limits, also where only limits are written.
			cpu, memory := c.Resources.Limits.Cpu(), c.Resources.Limits.Memory()
			if milli := milliOf(cpu); milli%1000 == 0 {
				a.CPUs = BoundedCount(milli / 1000)
			}
			a.Memory = amountOf(memory)
		}
		if pinned {
			r.ContainerNames = append(r.ContainerNames, c.Name)
		}
		cs = append(cs, a)
	}
	for i := range spec.InitContainers {
		add(&spec.InitContainers[i], initKind(&spec.InitContainers[i]))
	}
	for i := range spec.Containers {
		add(&spec.Containers[i], AppContainer)
	}
	for _, c := range r.Containers {
		copy(cs[c.Position].Devices[:], c.GPUs)
	}
	r.Admission = kubeletadmission.NewPod(cs)
}

func admissionKind(k ContainerKind) kubeletadmission.Kind {
	switch k {
	case InitContainer:
		return kubeletadmission.Init
	case SidecarContainer:
		return kubeletadmission.Sidecar
	case AppContainer:
		return kubeletadmission.App
	}
	return kubeletadmission.App
}

// GetsExclusive reports whether kubelet's static managers serve the pod: it is Guaranteed by its
// containers' requests.
func GetsExclusive(pod *v1.Pod) bool {
	if resource.IsPodLevelResourcesSet(pod) {
		return false
	}
	if pod.Status.QOSClass != "" {
		return pod.Status.QOSClass == v1.PodQOSGuaranteed
	}
	// For most pods the first container alone shows that they are not Guaranteed.
	if len(pod.Spec.Containers) == 0 || pod.Spec.Containers[0].Resources.Limits.Cpu().IsZero() {
		return false
	}
	return qos.ComputePodQOS(pod) == v1.PodQOSGuaranteed
}
