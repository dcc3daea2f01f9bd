// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/transcript"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/smi"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// driverVariable names the machine's own libnvidia-ml.so.1.
const driverVariable = "NVTOPO_E2E_DRIVER"

// realDriver returns that library. The test is skipped on a machine without GPUs.
func realDriver(t *testing.T) string {
	t.Helper()
	library := os.Getenv(driverVariable)
	if library == "" {
		t.Skip(driverVariable + " names no libnvidia-ml.so.1, so that there are no real GPUs to test on")
	}
	return library
}

// TestRealGPUs tests the machine's own GPUs and driver, NVIDIA's device plugin, our exporter and agent.
// The published object and the containers' GPUs are compared with the output of NVIDIA's own programs.
func TestRealGPUs(t *testing.T) {
	library := realDriver(t)
	l := start(t, gpunode.Config{Agent: true, Library: library, PluginArgs: []string{"--pass-device-specs"}})
	t.Run("the exporter publishes what nvidia-smi prints", func(t *testing.T) { l.publishesTheMachine(t) })
	t.Run("the exporter reads the same as the user that its DaemonSet names", func(t *testing.T) {
		l.readsAsShipped(t, library)
	})
	t.Run("the driver shows a container the chosen GPU", func(t *testing.T) {
		l.showsTheChosen(t, programPod(t, "smi", 1, library, nvidiaSMI(t), "-L"))
	})
	t.Run("nvtopo verify-node finds the chosen GPU from inside", func(t *testing.T) {
		l.showsTheChosen(t, programPod(t, "verify", 1, library, testkit.Program(t, "nvtopo"), "verify-node", "-o", "wide"))
	})
	t.Run("CUDA computes on the chosen GPU", func(t *testing.T) {
		l.showsTheChosen(t, programPod(t, "cuda", 1, library, cudaProgram(t)))
	})

	if others := l.Graph.Len() - 1; others > 0 {
		l.create(t, gpunode.Pod("others", others))
		l.running(t, "others")
	}
	l.create(t, gpunode.Pod("first", 1))
	first := l.running(t, "first")
	l.checkReal(t, first)
	l.create(t, gpunode.Pod("second", 1))
	t.Run("a pod waits for a GPU that is in use", func(t *testing.T) {
		testkit.Eventually(t, patience, "second is explained", func(ctx context.Context) (bool, string) {
			e, err := l.explained(ctx, "second")
			return err == nil && e.Cause == explain.FewGPUs, fmt.Sprintf("%+v, %v", e, err)
		})
		s := transcript.New("real-gpus", "--kubeconfig", l.Cluster.Kubeconfig())
		if out := s.Run(t, "explain", "pod/second"); !strings.Contains(out, "default/first") {
			t.Error("nvtopo explain does not name the pod that has the GPU")
		}
		for _, command := range [][]string{
			{"explain", "pod/first"},
			{"topology"},
			{"topology", l.Node.Name()},
			{"top"},
			{"verify-node", "first", "-o", "wide", "--root", l.Node.Path("/")},
		} {
			s.Run(t, command...)
		}
		if out := s.Run(t, "check"); !strings.HasPrefix(out, "0 violations") {
			t.Error("nvtopo check found violations")
		}
		t.Logf("\n%s", s.Text())
		l.verify(t, "first", 1)
	})

	l.remove(t, first)
	second := l.running(t, "second")
	l.checkReal(t, second)
	had := l.observe(t, second)
	for _, part := range []*realnode.Process{l.Plugin, l.Agent, l.Node.Kubelet(), l.Exporter} {
		t.Run("a restart of "+part.Name(), func(t *testing.T) {
			if err := part.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := part.Restart(); err != nil {
				t.Fatal(err)
			}
			l.whole(t)
			testkit.Eventually(t, patience, "second is as it was", func(ctx context.Context) (bool, string) {
				return l.asBefore(ctx, second, had)
			})
		})
	}

	l.remove(t, second)
	t.Run("a program's own fault leaves the GPU in service", func(t *testing.T) {
		cuda := cudaProgram(t)
		pod, printed := l.ends(t, programPod(t, "fault", 1, library, cuda, "fault"))
		if pod.Status.Phase != v1.PodFailed || !strings.Contains(printed, illegalAddress) {
			t.Errorf("the pod is %s and printed %q, want an illegal address", pod.Status.Phase, printed)
		}
		l.showsTheChosen(t, programPod(t, "after", 1, library, cuda))
		topology, err := l.Topology(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]v1alpha1.GPUHealth(nil), topology.Status.GPUHealth); diff != "" {
			t.Errorf("health of GPUs (-want +got):\n%s", diff)
		}
	})
}

// illegalAddress is CUDA_ERROR_ILLEGAL_ADDRESS in the program's output: the driver reports an Xid, 31 or
// 13, caused by the application.
const illegalAddress = "cuMemcpyDtoH_v2: 700"

// TestRealGPUsWithCDI is the same with a CDI specification of the machine's driver by NVIDIA's plugin.
// NVIDIA's hooks do nothing here, as in TestNVIDIAPluginWithCDI.
func TestRealGPUsWithCDI(t *testing.T) {
	library := realDriver(t)
	hook, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	l := start(t, gpunode.Config{
		Agent: true, Library: library, PluginArgs: []string{"--device-list-strategy=cdi-cri", "--nvidia-cdi-hook-path=" + hook},
	})
	l.create(t, gpunode.Pod("one", 1))
	pod := l.running(t, "one")
	l.checkReal(t, pod)
	l.remove(t, pod)
	l.showsTheChosen(t, programPod(t, "cuda", 1, library, cudaProgram(t)))
}

// publishesTheMachine compares the published object with nvidia-smi: its XML describes each GPU, its
// matrix the GPUs' places and links.
func (e *testEnv) publishesTheMachine(t *testing.T) {
	t.Helper()
	installed, err := gpunode.Installed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var published []gpunode.InstalledGPU
	for i := range e.Graph.GPUs {
		g := &e.Graph.GPUs[i]
		if g.Unhealthy != "" || g.Degraded != "" {
			t.Errorf("GPU %s: unhealthy %q, degraded %q", g.UUID, g.Unhealthy, g.Degraded)
		}
		published = append(published, gpunode.InstalledGPU{
			UUID: g.UUID, Model: g.Model, PCIBusID: g.PCIBusID, Memory: fmt.Sprintf("%d MiB", g.Memory>>20),
		})
	}
	for i := range installed {
		installed[i].Minor = 0 // not published
		installed[i].PCIBusID = strings.ToLower(strings.TrimPrefix(installed[i].PCIBusID, "0000"))
	}
	if diff := cmp.Diff(installed, published); diff != "" {
		t.Errorf("(-nvidia-smi -q, +published):\n%s", diff)
	}

	text, err := exec.CommandContext(t.Context(), "nvidia-smi", "topo", "-m").Output()
	if err != nil {
		t.Fatal(err)
	}
	matrix, err := smi.Parse(bytes.NewReader(text), smi.Options{Model: e.Graph.GPUs[0].Model})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(places(matrix), places(e.Graph)); diff != "" {
		t.Errorf("(-nvidia-smi topo -m, +published):\n%s", diff)
	}

	topology, err := e.Topology(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	topology.ManagedFields = nil
	object, err := yaml.Marshal(topology)
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := e.ExporterMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("published:\n%s\nmetrics:\n%s", object, metrics)
}

// explained returns the output of nvtopo explain for a pod.
func (l *testEnv) explained(ctx context.Context, pod string) (*explain.Explanation, error) {
	cmd := cli.New("nvtopo")
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"explain", "pod/" + pod, "-o", "json", "--kubeconfig", l.Cluster.Kubeconfig()})
	if err := cmd.ExecuteContext(ctx); err != nil {
		return nil, err
	}
	e := &explain.Explanation{}
	return e, json.Unmarshal(out.Bytes(), e)
}

// place is the place of a GPU, and its link to each other GPU.
type place struct {
	NUMANode int
	CPUs     string
	Links    []string
}

func places(g *nvtopo.Graph) []place {
	var out []place
	for i := range g.GPUs {
		p := place{NUMANode: g.GPUs[i].NUMANode, CPUs: g.GPUs[i].CPUs.String()}
		for j := range g.GPUs {
			if i != j {
				p.Links = append(p.Links, g.Link(i, j).Class.String())
			}
		}
		out = append(out, p)
	}
	return out
}

// checkReal checks that annotation, kubelet's record and environment of a pod agree, that the driver has
// these GPUs, and that the container has the device nodes of no other.
func (e *testEnv) checkReal(t *testing.T, pod *v1.Pod) {
	t.Helper()
	containers := e.observe(t, pod)
	for _, problem := range differences(pod.Name, containers) {
		t.Error(problem)
	}
	for _, o := range containers {
		owners, err := e.Owners(o.Report.GPUs)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(owners, o.Environment) {
			t.Errorf("pod %s, container %s: device nodes %v of %v, environment %v", pod.Name, o.Container, o.Report.GPUs, owners, o.Environment)
		}
		t.Logf("pod %s, container %s: annotation %v, checkpoint %v, PodResources %v, NVIDIA_VISIBLE_DEVICES %q, device nodes %v",
			pod.Name, o.Container, o.Annotation, o.Checkpoint, o.PodResources, o.Report.Env["NVIDIA_VISIBLE_DEVICES"], o.Report.GPUs)
	}
}

var printedUUID = regexp.MustCompile(`GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// showsTheChosen runs a pod whose program prints UUIDs, to its end: they must be those that the scheduler
// chose.
func (e *testEnv) showsTheChosen(t *testing.T, pod *v1.Pod) {
	t.Helper()
	pod, printed := e.ends(t, pod)
	if pod.Status.Phase != v1.PodSucceeded {
		t.Fatalf("pod %s is %s: %s %v", pod.Name, pod.Status.Phase, pod.Status.Message, pod.Status.ContainerStatuses)
	}
	shown := printedUUID.FindAllString(printed, -1)
	slices.Sort(shown)
	a, err := allocation.Parse(pod.Annotations[allocation.Key])
	if err != nil {
		t.Fatal(err)
	}
	if chosen := slices.Sorted(slices.Values(a.Containers[0].GPUs)); !slices.Equal(slices.Compact(shown), chosen) {
		t.Errorf("the container shows %v, chosen were %v", shown, chosen)
	}
}

// ends runs a pod to its end and removes it; printed is its container's output.
func (e *testEnv) ends(t *testing.T, pod *v1.Pod) (_ *v1.Pod, printed string) {
	t.Helper()
	e.create(t, pod)
	testkit.Eventually(t, patience, "pod "+pod.Name+" ends", func(ctx context.Context) (bool, string) {
		var err error
		if pod, err = e.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		phase := pod.Status.Phase
		return phase == v1.PodSucceeded || phase == v1.PodFailed, fmt.Sprintf("%s %v", phase, pod.Status.ContainerStatuses)
	})
	printed, err := e.Node.Output(pod, "main")
	if err != nil {
		t.Error(err)
	}
	t.Logf("printed in the container of pod %s:\n%s", pod.Name, printed)
	e.remove(t, pod)
	return pod, printed
}

// remove deletes a pod.
func (e *testEnv) remove(t *testing.T, pod *v1.Pod) {
	t.Helper()
	if err := e.Client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete pod %s: %v", pod.Name, err)
	}
}
