// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
)

// whatWasRead matches the metrics of the exporter's readings of the machine.
var whatWasRead = regexp.MustCompile(`(?m)^nvtopo_exporter_(gpus|gpus_healthy|gpus_degraded|fabric_links|problems) .*$`)

// readsAsShipped runs the exporter in a container with the rights of its DaemonSet: a user other than
// root, no capability, the runtime's seccomp profile. It must read the same as the one on the node, which
// runs as root.
func (e *testEnv) readsAsShipped(t *testing.T, library string) {
	t.Helper()
	root, err := e.ExporterMetrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := manifests.FS.ReadFile("exporter/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	shipped := &appsv1.DaemonSet{}
	if err := yaml.UnmarshalStrict(text, shipped); err != nil {
		t.Fatal(err)
	}
	port, err := devcluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := readable(t, e.ExporterKubeconfig())
	pod := programPod(t, "exporter", e.Graph.Len(), library, filepath.Join(testkit.Bin(), "nvtopo-exporter"),
		"--source=nvml", "--node-name="+e.Node.Name(), "--kubeconfig="+kubeconfig, "-v=2",
		"--metrics-address=127.0.0.1:"+strconv.Itoa(port), "--metrics-insecure")
	withFolder(pod, filepath.Dir(kubeconfig))
	pod.Spec.SecurityContext = shipped.Spec.Template.Spec.SecurityContext
	pod.Spec.Containers[0].SecurityContext = shipped.Spec.Template.Spec.Containers[0].SecurityContext

	if err := e.Exporter.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.create(t, pod)
	pod = e.running(t, pod.Name)
	testkit.Eventually(t, patience, "the exporter in the container has read the machine", func(ctx context.Context) (bool, string) {
		page, err := gpunode.Scrape(ctx, port)
		if err != nil {
			printed, _ := e.Node.Output(pod, "main") // only for the message
			return false, err.Error() + "\n" + printed
		}
		diff := cmp.Diff(whatWasRead.FindAllString(root, -1), whatWasRead.FindAllString(page, -1))
		return diff == "", "(-root, +user of the DaemonSet):\n" + diff
	})
	printed, err := e.Node.Output(pod, "main")
	if err != nil {
		t.Error(err)
	}
	t.Logf("read as user %d: %q\n%s", *pod.Spec.SecurityContext.RunAsUser, whatWasRead.FindAllString(root, -1), printed)
	e.remove(t, pod)
	if err := e.Exporter.Restart(); err != nil {
		t.Fatal(err)
	}
}

// readable copies a file to a folder that every user may read.
func readable(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(folder, filepath.Base(path))
	if err := os.WriteFile(out, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return out
}

// programPod returns a pod with a number of GPUs that runs a program of the machine: it sees the folders
// that the program and the driver's libraries need.
func programPod(t *testing.T, name string, gpus int, library string, command ...string) *v1.Pod {
	t.Helper()
	folders := []string{"/usr", "/lib", "/lib64", filepath.Dir(library), filepath.Dir(nvidiaSMI(t)), filepath.Dir(command[0])}
	pod := gpunode.Pod(name, gpus)
	c := &pod.Spec.Containers[0]
	c.Command, c.Args = command, nil
	c.Env = []v1.EnvVar{
		{Name: "LD_LIBRARY_PATH", Value: filepath.Dir(library)},
		{Name: "PATH", Value: filepath.Dir(nvidiaSMI(t)) + ":/usr/bin"},
	}
	for i, folder := range folders {
		above := func(f string) bool { return folder == f || strings.HasPrefix(folder, f+"/") }
		if _, err := os.Stat(folder); err == nil && !slices.ContainsFunc(folders[:i], above) {
			withFolder(pod, folder)
		}
	}
	return pod
}

// withFolder lets a pod read a folder of the machine.
func withFolder(pod *v1.Pod, folder string) {
	volume := fmt.Sprintf("folder-%d", len(pod.Spec.Volumes))
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{
		Name: volume, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: folder}},
	})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: volume, MountPath: folder, ReadOnly: true})
}

// nvidiaSMI returns the path of NVIDIA's program.
func nvidiaSMI(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

//go:embed testdata/cuda.c
var cudaSource string

// cudaProgram compiles a program that computes on every GPU that CUDA shows, and prints their UUIDs.
func cudaProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cuda")
	gcc := exec.CommandContext(t.Context(), "gcc", "-x", "c", "-O1", "-o", path, "-", "-ldl")
	gcc.Stdin = strings.NewReader(cudaSource)
	if out, err := gcc.CombinedOutput(); err != nil {
		t.Fatalf("compile a program for CUDA: %v\n%s", err, out)
	}
	return path
}
