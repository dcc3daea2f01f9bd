// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// cudaPod returns the pod of the manifests with the probe in place of its image.
func cudaPod(t *testing.T, name string, gpus int64) *v1.Pod {
	t.Helper()
	text, err := manifests.FS.ReadFile("examples/cuda-visible-devices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict(text, pod); err != nil {
		t.Fatal(err)
	}
	stock := gpunode.Pod(name, 1)
	pod.Name, pod.Namespace = name, stock.Namespace
	pod.Spec.HostNetwork, pod.Spec.TerminationGracePeriodSeconds = true, stock.Spec.TerminationGracePeriodSeconds
	c := &pod.Spec.Containers[0]
	c.Image, c.ImagePullPolicy, c.Command, c.Args = stock.Spec.Containers[0].Image, v1.PullNever, nil, []string{"report"}
	c.Resources.Limits[v1.ResourceName(gpunode.Resource)] = *resource.NewQuantity(gpus, resource.DecimalSI)
	return pod
}

// checkCUDA checks that the variable names exactly the container's GPUs, in the
// order of the scheduler's ring.
func checkCUDA(t *testing.T, pod *v1.Pod, containers []gpunode.Observation) {
	t.Helper()
	for _, d := range differences(pod.Name, containers) {
		complain(t, d)
	}
	for _, c := range containers {
		visible := strings.Split(c.Report.Env["CUDA_VISIBLE_DEVICES"], ",")
		if !slices.Equal(slices.Sorted(slices.Values(visible)), c.Environment) {
			t.Errorf("CUDA_VISIBLE_DEVICES is %v, the container has %v", visible, c.Environment)
		}
		a, err := allocation.Parse(pod.Annotations[allocation.Key])
		if err != nil {
			t.Fatal(err)
		}
		if ring := a.Containers[0].GPUs; !slices.Equal(visible, ring) {
			t.Errorf("CUDA_VISIBLE_DEVICES is %v, the ring %v", visible, ring)
		}
	}
}

// TestCUDAVisibleDevices checks that a pod that reads its GPUs from our annotation sees exactly those,
// and is not placed where this could fail.
func TestCUDAVisibleDevices(t *testing.T) {
	t.Run("on an enforced node it sees its GPUs", func(t *testing.T) {
		l := startBeside(t, gpunode.Config{Agent: true})
		// Does not start at the first GPU, so that a match is no coincidence.
		l.create(t, gpunode.Pod("before", 1))
		l.running(t, "before")
		l.create(t, cudaPod(t, "cuda", 4))
		pod := l.running(t, "cuda")
		checkCUDA(t, pod, l.observe(t, pod))
	})

	t.Run("on an unenforced node it is placed only as a whole", func(t *testing.T) {
		l := startBeside(t, gpunode.Config{})
		l.create(t, cudaPod(t, "part", 4))
		var message string
		testkit.Eventually(t, patience, "the scheduler refuses the pod", func(ctx context.Context) (bool, string) {
			pod, err := l.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, "part", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			for _, c := range pod.Status.Conditions {
				if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
					message = c.Message
				}
			}
			return message != "" && pod.Spec.NodeName == "", pod.Spec.NodeName
		})
		t.Logf("refused: %s", message)
		l.create(t, cudaPod(t, "whole", 8))
		pod := l.running(t, "whole")
		checkCUDA(t, pod, l.observe(t, pod))
	})
}
