// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const testResource = "nvidia.com/gpu"

func testOptions() *Options {
	return &Options{Resources: []string{testResource}, Supported: AllPolicies()}
}

func container(name string, gpus int) v1.Container {
	c := v1.Container{Name: name}
	if gpus > 0 {
		c.Resources.Limits = v1.ResourceList{testResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI)}
		c.Resources.Requests = c.Resources.Limits
	}
	return c
}

func sidecar(name string, gpus int) v1.Container {
	c := container(name, gpus)
	c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	return c
}

// gpuPod is a waiting pod of one container with the given number of GPUs.
func gpuPod(name string, gpus int) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec:       v1.PodSpec{Containers: []v1.Container{container("main", gpus)}},
	}
}

func annotated(pod *v1.Pod, key, value string) *v1.Pod {
	pod.Annotations = map[string]string{key: value}
	return pod
}
