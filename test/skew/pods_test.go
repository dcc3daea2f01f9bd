// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/check"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

func container(name string, gpus int64) v1.Container {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")}
	if gpus > 0 {
		list[v1alpha1.DefaultResource] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	return v1.Container{Name: name, Image: "example.com/app:1", Resources: v1.ResourceRequirements{Limits: list, Requests: list}}
}

func gpuPod(name string, gpus int64, annotations map[string]string) *v1.Pod {
	return testobj.Pod(name).Annotations(annotations).Scheduler(schedulerName).GracePeriod(0).Containers(container("main", gpus)).Obj()
}

// residents are the pods that live through everything: 15 of the 32 GPUs.
func residents() []*v1.Pod {
	staged := gpuPod("staged", 2, nil)
	staged.Spec.InitContainers = []v1.Container{container("prepare", 2)}
	staged.Spec.Containers = append(staged.Spec.Containers, container("helper", 1))
	return []*v1.Pod{
		gpuPod("linked", 4, map[string]string{podrequest.MinLinkKey: "NVLINK"}),
		gpuPod("local", 2, map[string]string{podrequest.TopologyPolicyKey: "single-numa-node", podrequest.NUMAAffinityKey: "required"}),
		gpuPod("fast", 2, map[string]string{podrequest.MinBandwidthKey: "100"}),
		gpuPod("single", 1, nil),
		gpuPod("restricted", 3, map[string]string{podrequest.TopologyPolicyKey: "restricted"}),
		staged,
	}
}

func (e *testEnv) create(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, p := range pods {
		if _, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// running waits until a pod runs and returns it.
func (e *testEnv) running(t *testing.T, name string) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	testkit.Eventually(t, patience, "pod "+name+" runs", func(ctx context.Context) (bool, string) {
		var err error
		if pod, err = e.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return pod.Status.Phase == v1.PodRunning, fmt.Sprintf("%s on %q, %+v", pod.Status.Phase, pod.Spec.NodeName, pod.Status.Conditions)
	})
	return pod
}

// remove deletes pods and waits until they are gone.
func (e *testEnv) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, patience, "the deleted pods are gone", func(ctx context.Context) (bool, string) {
		pods := e.pods(ctx, t)
		left := slices.DeleteFunc(slices.Sorted(func(yield func(string) bool) {
			for i := range pods {
				if !yield(pods[i].Name) {
					return
				}
			}
		}), func(name string) bool { return !slices.Contains(names, name) })
		return len(left) == 0, strings.Join(left, " ")
	})
}

func (e *testEnv) pods(ctx context.Context, t *testing.T) []v1.Pod {
	t.Helper()
	list, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// life is what must not change of a running pod.
type life struct {
	UID, Node, Phase string
	Restarts         int32
	Started          string
	Annotations      map[string]string
}

func lifeOf(pod *v1.Pod) life {
	x := life{UID: string(pod.UID), Node: pod.Spec.NodeName, Phase: string(pod.Status.Phase), Annotations: pod.Annotations}
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		x.Restarts += c.RestartCount
		if c.State.Running != nil {
			x.Started += c.Name + " " + c.State.Running.StartedAt.String() + "; "
		}
	}
	return x
}

// unchanged reports what happened to pods that nothing should have happened to.
func (e *testEnv) unchanged(t *testing.T, when string, before map[string]life) {
	t.Helper()
	now := map[string]life{}
	pods := e.pods(t.Context(), t)
	for i := range pods {
		if _, ok := before[pods[i].Name]; ok {
			now[pods[i].Name] = lifeOf(&pods[i])
		}
	}
	if diff := cmp.Diff(before, now); diff != "" {
		t.Errorf("%s: pods were touched (-before +now):\n%s", when, diff)
	}
}

// sound reports every promise to which the cluster does not hold, once nothing is pending.
func (e *testEnv) sound(t *testing.T, when string) {
	t.Helper()
	var r *check.Report
	testkit.Eventually(t, patience, when+": nothing is pending, as nothing changes", func(ctx context.Context) (bool, string) {
		w, err := check.Read(ctx, e.client, e.dynamic, systemNamespace)
		if err != nil {
			return false, err.Error()
		}
		r = check.Examine(w)
		return len(r.Pending) == 0 || len(r.Violations) > 0, fmt.Sprint(r.Pending)
	})
	for _, v := range r.Violations {
		testkit.Violation(t, "%s: %s", when, v)
	}
	if want := len(residents()); r.Checked.Allocations < want {
		t.Errorf("%s: only %d allocations were looked at, there are at least %d", when, r.Checked.Allocations, want)
	}
}
