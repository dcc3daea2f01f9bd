// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const (
	// stockScheduler is the name of a profile without our plugins.
	stockScheduler = "default-scheduler"
	// nobody is the scheduler name of pods that the test binds itself.
	nobody = "nobody"
)

// withStockProfile adds the stock profile to the shipped one.
func withStockProfile(fields map[string]any) {
	fastRetries(fields)
	profiles, _ := fields["profiles"].([]any)
	named := func(name string) []any { return []any{map[string]any{"name": name}} }
	fairSort := map[string]any{"enabled": named("FairSort")} // all profiles share one order of the queue
	fields["profiles"] = append(profiles, map[string]any{"schedulerName": stockScheduler, "plugins": map[string]any{
		"queueSort": map[string]any{"enabled": named("FairSort"), "disabled": named("PrioritySort")}, "preFilter": fairSort, "multiPoint": fairSort,
	}})
}

func scheduledBy(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.SchedulerName = name }
}

// bind binds a pod with annotations on the Binding, as an administrator may.
func (e *testEnv) bind(t *testing.T, pod *v1.Pod, annotations map[string]string) {
	t.Helper()
	err := e.Client.CoreV1().Pods(pod.Namespace).Bind(t.Context(), &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, Annotations: annotations},
		Target:     v1.ObjectReference{Kind: "Node", Name: e.Node.Name()},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("bind pod %s: %v", pod.Name, err)
	}
}

// allocation returns annotations that give the pod's container main the GPUs at these positions of the
// node's graph.
func (e *testEnv) allocation(t *testing.T, pod *v1.Pod, positions ...int) map[string]string {
	t.Helper()
	a := &allocation.Allocation{
		Version: allocation.Version, Node: e.Node.Name(), PodUID: pod.UID, Assumed: time.Now(), Enforced: true,
		Containers: []allocation.Container{{Name: "main", Resource: gpunode.Resource, GPUs: e.uuids(positions...)}},
	}
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{allocation.Key: text}
}

func (e *testEnv) uuids(positions ...int) []string {
	var out []string
	for _, i := range positions {
		out = append(out, e.Graph.GPUs[i].UUID)
	}
	slices.Sort(out)
	return out
}

// published waits until the node's status has the pod's allocation in a state and returns it.
func (e *testEnv) published(t *testing.T, pod *v1.Pod, state string) *v1alpha1.Allocation {
	t.Helper()
	var found *v1alpha1.Allocation
	testkit.Eventually(t, patience, pod.Name+" is in the node's status as "+state, func(ctx context.Context) (bool, string) {
		topology, err := e.Topology(ctx)
		if err != nil {
			return false, err.Error()
		}
		for i, a := range topology.Status.Allocations {
			if a.PodUID == pod.UID && a.State == state {
				found = &topology.Status.Allocations[i]
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", topology.Status.Allocations)
	})
	return found
}

// common returns the GPUs in both lists.
func common(a, b []string) []string {
	var out []string
	for _, id := range a {
		if slices.Contains(b, id) {
			out = append(out, id)
		}
	}
	return out
}

// TestForeignPod checks that a pod that our scheduler did not place gets no reserved GPU, and is counted.
func TestForeignPod(t *testing.T) {
	l := startBeside(t, gpunode.Config{Agent: true, Scheduler: withStockProfile})

	t.Run("beside a running pod", func(t *testing.T) {
		l.create(t, gpunode.Pod("ours", 4))
		ours := held(l.observe(t, l.running(t, "ours")))
		foreign := l.create(t, gpunode.Pod("foreign", 2, scheduledBy(stockScheduler)))
		foreign = l.running(t, foreign.Name)
		begun := time.Now()
		published := l.published(t, foreign, v1alpha1.StateForeign)
		t.Logf("counted %.1f s after it was seen running", time.Since(begun).Seconds())
		got := held(l.observe(t, foreign))
		if both := common(got, ours); len(both) > 0 {
			testkit.Violation(t, "it got %v; %v are reserved for another", got, both)
		}
		if len(got) != 2 {
			t.Errorf("it got %v, want two", got)
		}
		if !slices.Equal(slices.Sorted(slices.Values(published.GPUs)), got) {
			t.Errorf("the node's status says %v, its container sees %v", published.GPUs, got)
		}
		// The next pod may only get the two remaining GPUs.
		l.create(t, gpunode.Pod("next", 2))
		next := l.observe(t, l.running(t, "next"))
		for _, d := range differences("next", next) {
			complain(t, d)
		}
		if both := common(held(next), slices.Concat(got, ours)); len(both) > 0 {
			testkit.Violation(t, "the next pod was given %v, which others have", both)
		}
		l.clear(t)
	})

	t.Run("before the pod that the GPUs are reserved for", func(t *testing.T) {
		// While kubelet is paused the foreign pod is bound first, ours second: kubelet calls the agent for the
		// foreign one when it does not know ours yet. Only the agent does.
		foreign := l.create(t, gpunode.Pod("foreign", 4, scheduledBy(nobody)))
		ours := l.create(t, gpunode.Pod("ours", 4, scheduledBy(nobody)))
		if err := l.Node.Kubelet().Pause(); err != nil {
			t.Fatal(err)
		}
		known := l.agentPods(t)
		l.bind(t, foreign, nil)
		// A choice across both NUMA nodes that neither kubelet nor the scheduler would make by itself.
		reserved := l.uuids(0, 2, 5, 7)
		l.bind(t, ours, l.allocation(t, ours, 0, 2, 5, 7))
		testkit.Eventually(t, patience, "the agent has heard of both pods", func(context.Context) (bool, string) {
			now := l.agentPods(t)
			return now >= known+2, fmt.Sprintf("%d pods, %d before", now, known)
		})
		if err := l.Node.Kubelet().Resume(); err != nil {
			t.Fatal(err)
		}
		got := held(l.observe(t, l.running(t, "foreign")))
		if want := l.uuids(1, 3, 4, 6); !slices.Equal(got, want) {
			t.Errorf("the foreign pod got %v, want %v: all that is not reserved", got, want)
		}
		for _, o := range l.observe(t, l.running(t, "ours")) {
			if !slices.Equal(o.Environment, reserved) || !slices.Equal(o.Checkpoint, reserved) {
				t.Errorf("our pod got %v (recorded: %v), want %v", o.Environment, o.Checkpoint, reserved)
			}
		}
		l.published(t, foreign, v1alpha1.StateForeign)
		l.published(t, ours, v1alpha1.StateConfirmed)
		l.clear(t)
	})
}

// agentPods returns the number of the node's pods that the agent has received.
func (e *testEnv) agentPods(t *testing.T) int {
	t.Helper()
	families, err := e.AgentMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families["nvtopo_agent_pods"].GetMetric() {
		return int(m.GetGauge().GetValue())
	}
	t.Fatal("the agent has no metric nvtopo_agent_pods")
	return 0
}

// clear deletes all pods and waits until they are gone.
func (e *testEnv) clear(t *testing.T) {
	t.Helper()
	pods := e.Client.CoreV1().Pods(metav1.NamespaceDefault)
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, patience, "all pods are gone", func(ctx context.Context) (bool, string) {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		return len(list.Items) == 0, fmt.Sprintf("%d pods", len(list.Items))
	})
}
