// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/node/nodeverify"
)

// TestChart installs the chart with Helm from our images: scheduler, exporter, node agent and web view
// run as pods with their own tokens, users and network, and pods get the chosen GPUs. Helm waits until
// all are ready; the web view is when it has read the cluster.
func TestChart(t *testing.T) {
	l := startBeside(t, gpunode.Config{Chart: &gpunode.Chart{
		Folder: filepath.Join(testkit.Repository(), "charts", "nvtopo"), Images: filepath.Join(testkit.Bin(), "images"),
		// This kubelet signs its own certificate, as with kubeadm.
		Values: map[string]any{"nodeAgent": map[string]any{"kubeletCertificate": true}, "ui": map[string]any{"enabled": true}},
	}})

	t.Run("who runs", func(t *testing.T) {
		uids := map[string]string{"nvtopo-scheduler": "65532", "nvtopo-exporter": "65532", "nvtopo-node-agent": "0", "nvtopo": "65532"}
		count := map[string]int{}
		for _, p := range l.ourProcesses(t) {
			count[p.name]++
			// Without privileges, and without a way to gain them.
			for _, field := range []string{"Uid:\t" + uids[p.name] + "\t", "CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"} {
				if !strings.Contains(p.status, field) {
					t.Errorf("%s runs without %q:\n%s", p.name, field, p.status)
				}
			}
		}
		if want := map[string]int{"nvtopo-scheduler": 2, "nvtopo-exporter": 1, "nvtopo-node-agent": 1, "nvtopo": 1}; !maps.Equal(count, want) {
			t.Errorf("containers run %v, want %v", count, want)
		}
	})

	t.Run("pods get their GPUs", func(t *testing.T) {
		for _, gpus := range []int{1, 2, 4} {
			pod := l.create(t, gpunode.Pod(fmt.Sprintf("gpus-%d", gpus), gpus))
			pod = l.running(t, pod.Name)
			containers := l.observe(t, pod)
			for _, problem := range differences(pod.Name, containers) {
				t.Error(problem)
			}
			if n := len(containers[0].Environment); n != gpus {
				t.Errorf("pod %s has %d GPUs, want %d", pod.Name, n, gpus)
			}
			l.verify(t, pod.Name, gpus)
		}
	})

	t.Run("helm test", func(t *testing.T) {
		out, err := l.Helm(t.Context(), "test", gpunode.Release, "--timeout", patience.String())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, "Phase:          Succeeded") {
			t.Error(out)
		}
	})

	t.Run("helm uninstall", func(t *testing.T) {
		if _, err := l.Helm(t.Context(), "uninstall", gpunode.Release, "--wait"); err != nil {
			t.Fatal(err)
		}
		// The kinds and their objects stay; and pods run on.
		if _, err := l.Topology(t.Context()); err != nil {
			t.Error(err)
		}
		testkit.Eventually(t, patience, "no pod of the chart is left", func(ctx context.Context) (bool, string) {
			pods, err := l.Client.CoreV1().Pods(gpunode.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name"})
			if err != nil {
				return false, err.Error()
			}
			return len(pods.Items) == 0, fmt.Sprintf("%d pods", len(pods.Items))
		})
		if pod := l.running(t, "gpus-4"); pod.Status.Phase != v1.PodRunning {
			t.Errorf("a pod is %s", pod.Status.Phase)
		}
	})
}

// verify runs nvtopo verify-node for a pod on the real node: kubelet, the annotation and the container
// must agree on its GPUs.
func (e *testEnv) verify(t *testing.T, pod string, gpus int) {
	t.Helper()
	var out bytes.Buffer
	cmd := cli.New("nvtopo")
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"verify-node", pod, "--kubeconfig", e.Cluster.Kubeconfig(), "--root", e.Node.Path("/"), "-o", "json"})
	if err := cmd.ExecuteContext(t.Context()); err != nil && cli.ExitCode(err) != cli.ExitNoAnswer { // the probe's CPUs may be any
		t.Fatalf("verify-node %s: %v", pod, err)
	}
	var report nodeverify.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil || len(report.Containers) != 1 {
		t.Fatalf("verify-node %s: %v\n%s", pod, err, out.String())
	}
	c := report.Containers[0]
	if len(c.GPUs) != gpus || c.By != "kubelet's record" {
		t.Errorf("verify-node %s: GPUs %v by %q, want %d by kubelet's record", pod, c.GPUs, c.By, gpus)
	}
	for _, line := range c.Lines {
		if about := line.Check == "kubelet's record" || line.Check == "visible GPUs"; about && line.Verdict != nodeverify.OK {
			t.Errorf("verify-node %s: %s: %s, found %s, want %s", pod, line.Check, line.Verdict, line.Found, line.Want)
		}
	}
}

// process is a process of the node.
type process struct {
	name   string // of its program
	status string // as in /proc
}

// ourProcesses returns the processes of our programs in the node's containers; programs beside the
// containers have a path.
func (e *testEnv) ourProcesses(t *testing.T) []process {
	t.Helper()
	folders, err := filepath.Glob(e.Node.Path("/proc/[0-9]*"))
	if err != nil {
		t.Fatal(err)
	}
	var out []process
	for _, f := range folders {
		command, err := os.ReadFile(filepath.Join(f, "cmdline"))
		if err != nil {
			continue // it ended
		}
		program, _, _ := strings.Cut(string(command), "\x00")
		if program != "/nvtopo" && !strings.HasPrefix(program, "/nvtopo-") {
			continue
		}
		status, err := os.ReadFile(filepath.Join(f, "status"))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, process{strings.TrimPrefix(program, "/"), string(status)})
	}
	return out
}
