// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/ptr"
)

// epoch is the creation time of pod number 0.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Pod returns pod number i, created i seconds after number 0. Its UID has the form of the API server's
// and depends on i.
func Pod(name string, i int, containers ...v1.Container) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default",
			UID:               types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012x", i)),
			CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(i) * time.Second)),
		},
		Spec:   v1.PodSpec{Containers: containers},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

// WithInit adds init containers to a pod.
func WithInit(pod *v1.Pod, init ...v1.Container) *v1.Pod {
	pod.Spec.InitContainers = append(pod.Spec.InitContainers, init...)
	return pod
}

// Container returns a container that requests n devices; 0 means no request.
func Container(name, resourceName string, n int) v1.Container {
	c := v1.Container{Name: name}
	if n > 0 {
		list := v1.ResourceList{v1.ResourceName(resourceName): *resource.NewQuantity(int64(n), resource.DecimalSI)}
		c.Resources = v1.ResourceRequirements{Requests: list, Limits: list.DeepCopy()}
	}
	return c
}

// Sidecar returns a restartable init container that requests n devices.
func Sidecar(name, resourceName string, n int) v1.Container {
	c := Container(name, resourceName, n)
	c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	return c
}

// Devices returns n healthy devices, prefix + number, the first half of them on
// NUMA node 0 and so on; numaNodes 0 means that no NUMA nodes are reported.
func Devices(prefix string, n, numaNodes int) []*pluginapi.Device {
	out := make([]*pluginapi.Device, n)
	for i := range out {
		out[i] = &pluginapi.Device{ID: fmt.Sprintf("%s%d", prefix, i), Health: pluginapi.Healthy}
		if numaNodes > 0 {
			out[i].Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(i * numaNodes / n)}}}
		}
	}
	return out
}
