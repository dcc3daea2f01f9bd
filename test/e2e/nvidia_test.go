// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nvml/fakedriver"
)

const (
	// nvidiaPods is the number of pods that come and go with NVIDIA's plugin.
	nvidiaPods = 60
	// nvidiaHold is the longest time for which each keeps its GPUs.
	nvidiaHold = 300 * time.Millisecond
	// cdiPods is the number of pods that get their devices by CDI.
	cdiPods = 10
)

// TestNVIDIAPlugin tests NVIDIA's own device plugin, unmodified, and our exporter, both on the fake
// driver. The plugin registers with kubelet first; the agent is rolled out and back while pods run.
func TestNVIDIAPlugin(t *testing.T) {
	l := startBeside(t, gpunode.Config{NVIDIA: true})
	// They run through all later steps.
	l.create(t, gpunode.Pod("first", 1))
	first := l.running(t, "first")
	had := map[string][]gpunode.Observation{"first": l.observe(t, first)}
	for _, problem := range inside(first, had["first"]) {
		t.Error(problem)
	}

	t.Run("the exporter publishes the machine", func(t *testing.T) {
		topology, err := l.Topology(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		published, err := topology.Graphs()
		if err != nil {
			t.Fatal(err)
		}
		want, err := v1alpha1.FromGraph(l.Node.Name(), gpunode.Resource, l.Graph).Graphs()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, published, cmp.AllowUnexported(nvtopo.Graph{})); diff != "" {
			t.Errorf("(-machine,+published):\n%s", diff)
		}
	})

	t.Run("the agent is rolled out", func(t *testing.T) {
		if err := l.RollOut(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.steers(t, "rolled-out")
		// Kubelet's own choice is in the annotation now.
		testkit.Eventually(t, patience, "the annotation of first is corrected", func(ctx context.Context) (bool, string) {
			return l.asBefore(ctx, first, had["first"])
		})
	})

	t.Run("sixty pods", func(t *testing.T) {
		n, rng := min(nvidiaPods, number(t, "NVTOPO_E2E_PODS", nvidiaPods)), seed(t)
		c := &churn{env: l, hold: nvidiaHold, rng: rng, judge: judgePod}
		took := c.run(t, workload(n, rng), burst)
		c.report(t, n, took)
	})

	l.create(t, gpunode.Pod("second", 2))
	second := l.running(t, "second")
	had["second"] = l.observe(t, second)
	survivors := func(t *testing.T) {
		t.Helper()
		for _, s := range []*v1.Pod{first, second} {
			testkit.Eventually(t, patience, s.Name+" is as it was", func(ctx context.Context) (bool, string) {
				return l.asBefore(ctx, s, had[s.Name])
			})
		}
	}
	for _, part := range []*realnode.Process{l.Plugin, l.Agent, l.Node.Kubelet(), l.Exporter} {
		t.Run("a restart of "+part.Name(), func(t *testing.T) {
			if err := part.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := part.Restart(); err != nil {
				t.Fatal(err)
			}
			l.steers(t, "after-"+part.Name())
			survivors(t)
		})
	}

	// Also shows that the exporter reads on after its restart.
	t.Run("a lost GPU", func(t *testing.T) {
		const index = 7
		if err := l.Driver.Faults.Set(fakedriver.Lost(index)); err != nil {
			t.Fatal(err)
		}
		l.publishedHealth(t, index, "GPU is lost")
		if err := l.Driver.Faults.Set(); err != nil {
			t.Fatal(err)
		}
		l.publishedHealth(t, index, "")
	})

	t.Run("the agent is rolled back", func(t *testing.T) {
		// Its last report is valid until its Lease has expired.
		testkit.Eventually(t, patience, "only the two pods are published", func(ctx context.Context) (bool, string) {
			topology, err := l.Topology(ctx)
			if err != nil {
				return false, err.Error()
			}
			return len(topology.Status.Allocations) == len(had), fmt.Sprintf("%+v", topology.Status.Allocations)
		})
		if err := l.RollBack(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.WaitGPUs(t.Context()); err != nil {
			t.Fatal(err)
		}
		pod := l.admitted(t, "rolled-back")
		for _, problem := range inside(pod, l.observe(t, pod)) {
			t.Error(problem)
		}
		survivors(t)
	})
}

// TestNVIDIAPluginWithCDI is the same with a CDI specification by the plugin and containerd adding the
// devices. It compares the containers' device nodes. NVIDIA's hooks, which prepare the driver's libraries
// in the container, are another project's program; here they do nothing.
func TestNVIDIAPluginWithCDI(t *testing.T) {
	hook, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	l := startBeside(t, gpunode.Config{
		Agent: true, NVIDIA: true, PluginArgs: []string{"--device-list-strategy=cdi-cri", "--nvidia-cdi-hook-path=" + hook},
	})
	rng := seed(t)
	c := &churn{env: l, hold: nvidiaHold, rng: rng, judge: func(pod *v1.Pod, containers []gpunode.Observation) []string {
		out := differences(pod.Name, containers)
		for _, o := range containers {
			if o.Report.Env["NVIDIA_VISIBLE_DEVICES"] != "void" {
				out = append(out, fmt.Sprintf("pod %s, container %s: it was not CDI that gave it its devices", pod.Name, o.Container))
			}
		}
		return out
	}}
	took := c.run(t, workload(cdiPods, rng), burst)
	c.report(t, cdiPods, took)
}

// whole waits until kubelet offers every GPU and the node is enforced by the agent.
func (e *testEnv) whole(t *testing.T) {
	t.Helper()
	for _, wait := range []func(context.Context) error{e.Node.WaitReady, e.WaitGPUs, e.WaitEnforced} {
		if err := wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// steers waits until the node is whole, and then checks that a pod gets the scheduler's choice.
func (e *testEnv) steers(t *testing.T, name string) {
	t.Helper()
	e.whole(t)
	pod := e.admitted(t, name)
	for _, problem := range differences(pod.Name, e.observe(t, pod)) {
		t.Error(problem)
	}
	if err := e.Client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// publishedHealth waits until the node's object has the health of a GPU: healthy if reason is empty, or a
// reason that begins with it.
func (e *testEnv) publishedHealth(t *testing.T, index int, reason string) {
	t.Helper()
	testkit.Eventually(t, patience, fmt.Sprintf("GPU %d is published with %q", index, reason), func(ctx context.Context) (bool, string) {
		topology, err := e.Topology(ctx)
		if err != nil {
			return false, err.Error()
		}
		for _, h := range topology.Status.GPUHealth {
			if h.ID == e.Graph.GPUs[index].UUID {
				return h.Healthy == (reason == "") && strings.HasPrefix(h.Reason, reason), fmt.Sprintf("%+v", h)
			}
		}
		return reason == "", "it has no entry" // which is healthy
	})
}

// admitted creates a pod of two GPUs and, as its controller would, another one if kubelet refuses it: the
// node in the API server is a moment old, and the plugin may not have registered again.
func (e *testEnv) admitted(t *testing.T, name string) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	tries := 0
	testkit.Eventually(t, patience, "a pod "+name+" runs", func(ctx context.Context) (bool, string) {
		pods := e.Client.CoreV1().Pods(metav1.NamespaceDefault)
		var err error
		if pod == nil || pod.Status.Phase == v1.PodFailed {
			tries++
			pod, err = pods.Create(ctx, gpunode.Pod(fmt.Sprintf("%s-%d", name, tries), 2), metav1.CreateOptions{})
		} else {
			pod, err = pods.Get(ctx, pod.Name, metav1.GetOptions{})
		}
		if err != nil {
			pod = nil
			return false, err.Error()
		}
		return pod.Status.Phase == v1.PodRunning, fmt.Sprintf("%s: %s %s %v", pod.Name, pod.Status.Phase, pod.Status.Message, pod.Status.Conditions)
	})
	if tries > 1 {
		t.Logf("kubelet refused %d pods before %s", tries-1, pod.Name)
	}
	return pod
}

// asBefore reports whether a pod still runs in the same container with the same GPUs, and all accounts
// agree.
func (e *testEnv) asBefore(ctx context.Context, pod *v1.Pod, had []gpunode.Observation) (bool, string) {
	now, err := e.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if err != nil {
		return false, err.Error()
	}
	containers, err := e.Observe(ctx, now)
	if err != nil {
		return false, err.Error()
	}
	problems := differences(pod.Name, containers)
	if was, is := pod.Status.ContainerStatuses[0].ContainerID, now.Status.ContainerStatuses[0].ContainerID; was != is {
		problems = append(problems, fmt.Sprintf("it ran in %s and runs in %s", was, is))
	}
	if !slices.Equal(held(had), held(containers)) {
		problems = append(problems, fmt.Sprintf("it had %v and has %v", held(had), held(containers)))
	}
	return len(problems) == 0 && now.Status.Phase == v1.PodRunning, fmt.Sprintf("%s %q", now.Status.Phase, problems)
}
