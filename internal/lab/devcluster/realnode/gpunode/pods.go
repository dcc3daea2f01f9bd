// SPDX-License-Identifier: Apache-2.0

package gpunode

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode"
)

// Pod makes a pod of the shipped scheduler with one container, "main", that has
// so many GPUs, reports and then waits. Options change it.
func Pod(name string, gpus int, options ...func(*v1.Pod)) *v1.Pod {
	grace := int64(2) // seconds; the probe ends as soon as it is told to
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: v1.PodSpec{
			SchedulerName: SchedulerName, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
			HostNetwork: true, // the node has no other
			Containers:  []v1.Container{Container("main", gpus)},
		},
	}
	for _, o := range options {
		o(pod)
	}
	return pod
}

// Container makes a container of the probe.
func Container(name string, gpus int) v1.Container {
	c := v1.Container{Name: name, Image: realnode.Image, ImagePullPolicy: v1.PullNever, Args: []string{"report"}}
	if gpus > 0 {
		c.Resources.Limits = v1.ResourceList{v1.ResourceName(Resource): *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
	}
	return c
}

// WithContainer adds an app container.
func WithContainer(name string, gpus int) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, Container(name, gpus)) }
}

// WithInit adds an init container that reports and ends.
func WithInit(name string, gpus int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		c := Container(name, gpus)
		c.Args = []string{"report", "0s"}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}

// WithSidecar adds an init container that goes on beside the app containers.
func WithSidecar(name string, gpus int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		always := v1.ContainerRestartPolicyAlways
		c := Container(name, gpus)
		c.RestartPolicy = &always
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
}
