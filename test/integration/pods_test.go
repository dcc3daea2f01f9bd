// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const gpuResource = v1.ResourceName(v1alpha1.DefaultResource)

// notes are annotations.
type notes = map[string]string

// container is one that asks for GPUs and two CPUs.
func container(name string, gpus int) v1.Container {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")}
	if gpus > 0 {
		list[gpuResource] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
	}
	return v1.Container{Name: name, Image: "example.com/app:1", Resources: v1.ResourceRequirements{Limits: list, Requests: list}}
}

func sidecar(name string, gpus int) v1.Container {
	c := container(name, gpus)
	c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	return c
}

// gpuPod starts a pod as a user writes it, of one container, which goes at once when deleted.
func gpuPod(name, scheduler string, gpus int) *schedtest.PodWrapper {
	return schedtest.Pod(name).Namespace("").UID("").Scheduler(scheduler).Containers(container("main", gpus)).GracePeriod(0)
}

// host is a selector of one node.
func host(node string) map[string]string { return map[string]string{v1.LabelHostname: node} }

// constraintOf reads a pod's demands on the links between its GPUs, as the
// documentation of the annotations says.
func constraintOf(tb testing.TB, pod *v1.Pod) nvtopo.Constraint {
	tb.Helper()
	c := nvtopo.Constraint{AllowMixedModels: pod.Annotations[podrequest.AllowMixedModelsKey] == "true"}
	var err error
	if s, ok := pod.Annotations[podrequest.TopologyPolicyKey]; ok {
		if c.Policy, err = nvtopo.ParsePolicy(s); err != nil {
			tb.Fatal(err)
		}
	}
	if s, ok := pod.Annotations[podrequest.MinLinkKey]; ok {
		if c.MinLink, err = nvtopo.ParseClass(s); err != nil {
			tb.Fatal(err)
		}
	}
	if s, ok := pod.Annotations[podrequest.MinBandwidthKey]; ok {
		// 1 GB/s is a million kB/s, which is what the suffix M multiplies by.
		q, err := resource.ParseQuantity(s + "M")
		if err != nil {
			tb.Fatal(err)
		}
		c.MinBandwidth = q.Value()
	}
	return c
}

// allowedOf is the set of GPUs whose model and memory a pod accepts.
func allowedOf(tb testing.TB, pod *v1.Pod, g *nvtopo.Graph) nvtopo.Mask {
	tb.Helper()
	var least int64
	if s, ok := pod.Annotations[podrequest.MinGPUMemoryKey]; ok {
		q, err := resource.ParseQuantity(s)
		if err != nil {
			tb.Fatal(err)
		}
		least = q.Value()
	}
	var allowed nvtopo.Mask
	for i := range g.GPUs {
		if strings.Contains(g.GPUs[i].Model, pod.Annotations[podrequest.GPUModelKey]) && g.GPUs[i].Memory >= least {
			allowed |= nvtopo.MaskOf(i)
		}
	}
	return allowed
}
