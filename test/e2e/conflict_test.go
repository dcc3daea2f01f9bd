// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// conflict binds a pod to GPUs of which another already has one.
func conflict(t *testing.T, l *testEnv) (pod *v1.Pod, taken []string) {
	t.Helper()
	holder := l.create(t, gpunode.Pod("holder", 2, scheduledBy(nobody)))
	l.bind(t, holder, l.allocation(t, holder, 0, 3))
	taken = held(l.observe(t, l.running(t, holder.Name)))
	if want := l.uuids(0, 3); !slices.Equal(taken, want) {
		t.Fatalf("the holder has %v, want %v", taken, want)
	}
	pod = l.create(t, gpunode.Pod("late", 2, scheduledBy(nobody)))
	l.bind(t, pod, l.allocation(t, pod, 0, 4))
	return pod, taken
}

// TestConflict checks a chosen GPU that belongs to another pod when kubelet calls the agent.
func TestConflict(t *testing.T) {
	t.Run("repair: the best GPUs left, and the annotation follows", func(t *testing.T) {
		l := startBeside(t, gpunode.Config{Agent: true})
		pod, taken := conflict(t, l)
		pod = l.running(t, pod.Name)
		got := held(l.observe(t, pod))
		if both := common(got, taken); len(both) > 0 {
			testkit.Violation(t, "it got %v; %v are another's", got, both)
		}
		if len(got) != 2 {
			t.Errorf("it got %v, want two", got)
		}
		if best := l.bestPair(taken); !slices.Contains(best, strings.Join(got, " ")) {
			t.Errorf("it got %v, want one of the pairs with the most links left: %q", got, best)
		}
		var last []string
		testkit.Eventually(t, patience, "the annotation tells what kubelet recorded", func(ctx context.Context) (bool, string) {
			now, err := l.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			containers, err := l.Observe(ctx, now)
			if err != nil {
				return false, err.Error()
			}
			last = differences(pod.Name, containers)
			return len(last) == 0, fmt.Sprint(last)
		})
		l.published(t, pod, v1alpha1.StateConfirmed)
	})

	t.Run("strict: the pod fails and says why", func(t *testing.T) {
		l := startBeside(t, gpunode.Config{Agent: true, AgentArgs: []string{"--mode=strict"}})
		pod, taken := conflict(t, l)
		var message string
		testkit.Eventually(t, patience, "kubelet refuses the pod", func(ctx context.Context) (bool, string) {
			now, err := l.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			message = now.Status.Reason + ": " + now.Status.Message
			return now.Status.Phase == v1.PodFailed, string(now.Status.Phase)
		})
		t.Log(message)
		if !strings.Contains(message, common(taken, l.uuids(0, 4))[0]) {
			t.Errorf("%q does not name the GPU that it cannot have", message)
		}
		// The holder's container was started with PreStartContainer in use.
		l.create(t, gpunode.Pod("ours", 2))
		ours := l.running(t, "ours")
		for _, d := range differences(ours.Name, l.observe(t, ours)) {
			complain(t, d)
		}
	})
}

// bestPair returns the free pairs with the greatest bandwidth, as sorted UUIDs.
func (e *testEnv) bestPair(taken []string) []string {
	var out []string
	var best int64
	for i := range e.Graph.GPUs {
		for j := i + 1; j < e.Graph.Len(); j++ {
			pair := e.uuids(i, j)
			if len(common(pair, taken)) > 0 {
				continue
			}
			bandwidth := e.Graph.Link(i, j).Bandwidth
			if bandwidth > best {
				best, out = bandwidth, nil
			}
			if bandwidth == best {
				out = append(out, strings.Join(pair, " "))
			}
		}
	}
	return out
}

// TestEscapedEnvironment checks that a container whose environment requests more than kubelet gave it
// gets it, from today's runtimes, and is reported.
func TestEscapedEnvironment(t *testing.T) {
	l := startBeside(t, gpunode.Config{Agent: true, NRI: true, AgentArgs: []string{"--nri=report"}})
	l.create(t, gpunode.Pod("greedy", 1, func(p *v1.Pod) {
		p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
	}))
	pod := l.running(t, "greedy")
	got := l.observe(t, pod)[0]
	// The agent relies on this: the pod's own variable overrides the plugin's.
	if !slices.Equal(got.Environment, []string{"all"}) {
		t.Errorf("the container sees %v, want what the pod's environment says", got.Environment)
	}
	if !slices.Equal(got.Annotation, got.Checkpoint) {
		t.Errorf("annotation %v, checkpoint %v", got.Annotation, got.Checkpoint)
	}
	testkit.Eventually(t, patience, "the agent reports the container", func(ctx context.Context) (bool, string) {
		families, err := l.AgentMetrics(ctx)
		if err != nil {
			return false, err.Error()
		}
		for _, m := range families["nvtopo_agent_mismatch_total"].GetMetric() {
			if labelsOf(m)["kind"] == "escaped" && m.GetCounter().GetValue() > 0 {
				return true, ""
			}
		}
		return false, "no escaped container in the metrics"
	})
}
