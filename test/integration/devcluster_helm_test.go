// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// helmCluster is a running `nvtopo-devcluster up --helm`.
type helmCluster struct {
	cmd        *exec.Cmd
	tmp        string
	kubeconfig string
	stderr     string // file
	client     kubernetes.Interface
	dyn        dynamic.Interface
}

// chartFolder returns the chart's folder.
func chartFolder() string { return filepath.Join(testkit.Repository(), "charts", "nvtopo") }

// upByHelm starts the program with a node, and waits until it prints how to reach the cluster.
func upByHelm(t *testing.T) *helmCluster {
	t.Helper()
	helm := filepath.Join(testkit.Bin(), "helm")
	if _, err := os.Stat(helm); err != nil {
		t.Fatalf("Helm is not built (make bin/helm): %v", err)
	}
	c := &helmCluster{stderr: filepath.Join(t.TempDir(), "stderr")}
	stderr, err := os.Create(c.stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stderr.Close() })
	c.cmd, c.tmp = devclusterCommand(t, "up", "--helm", "--helm-program", helm, "--chart", chartFolder(), "--nodes", "dgx-a100=1")
	c.cmd.Stderr = stderr
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGINT) } // a failing test leaves nothing either
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			t.Log(c.cmd.Wait(), c.said(t))
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	path, ok := strings.CutPrefix(strings.TrimSpace(line), "export KUBECONFIG=")
	if err != nil || !ok {
		t.Fatalf("it says %q, %v", line, err)
	}
	c.kubeconfig = path
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err == nil {
		c.client, err = kubernetes.NewForConfig(config)
	}
	if err == nil {
		c.dyn, err = dynamic.NewForConfig(config)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// said returns the program's output so far.
func (c *helmCluster) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(c.stderr)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// again runs the printed command that installs nvtopo again.
func (c *helmCluster) again(t *testing.T) {
	t.Helper()
	for line := range strings.Lines(c.said(t)) {
		if strings.Contains(line, "helm upgrade --install ") {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
			cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HOME="+t.TempDir())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", line, err, out)
			}
			return
		}
	}
	t.Fatalf("no command installs nvtopo again:\n%s", c.said(t))
}

// helm runs Helm's program on the cluster.
func (c *helmCluster) helm(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(testkit.Bin(), "helm"), append(args, "--namespace", systemNamespace, "--kubeconfig", c.kubeconfig, "--wait")...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("helm %s: %v\n%s", args[0], err, out)
	}
}

// runs creates a pod and waits until it runs.
func (c *helmCluster) runs(t *testing.T, pod *v1.Pod) *v1.Pod {
	t.Helper()
	if _, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return waitPhase(t, c.client, metav1.NamespaceDefault, pod.Name, v1.PodRunning)
}

// scale sets the replicas of the scheduler's Deployment, as kubectl scale does.
func (c *helmCluster) scale(t *testing.T, replicas int32) {
	t.Helper()
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "nvtopo-scheduler", Namespace: systemNamespace}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if _, err := c.client.AppsV1().Deployments(systemNamespace).UpdateScale(t.Context(), scale.Name, scale, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// schedulers waits until a number of schedulers run beside the cluster.
func (c *helmCluster) schedulers(t *testing.T, want int) {
	t.Helper()
	testkit.Eventually(t, waitLimit, fmt.Sprint(want, " schedulers run"), func(context.Context) (bool, string) {
		running := processesWith(t, filepath.Join(filepath.Dir(c.kubeconfig), "scheduler-"))
		return len(running) == want, fmt.Sprint(running)
	})
}

// TestDevclusterHelm checks the cluster of `nvtopo-devcluster up --helm`: the chart's pods are reported
// as running, its scheduler places pods while its Deployment has replicas, `helm upgrade` gives it
// another configuration, `helm uninstall` ends it and leaves running pods and the definitions, the
// printed command installs it again, and an interrupt leaves nothing.
func TestDevclusterHelm(t *testing.T) {
	c := upByHelm(t)
	pods, err := c.client.CoreV1().Pods(systemNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]int{}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == v1.PodRunning {
			programs[p.Labels["app.kubernetes.io/name"]]++
		}
	}
	if diff := cmp.Diff(map[string]int{"nvtopo-scheduler": 2, "nvtopo-exporter": 1, "nvtopo-node-agent": 1}, programs); diff != "" {
		t.Errorf("running pods of the chart (-want +got):\n%s", diff)
	}
	c.schedulers(t, 2) // the chart's, and a kube-scheduler
	pod := c.runs(t, gpuPod("first", shippedProfile, 2).Obj())
	if pod.Annotations[allocation.Key] == "" {
		t.Errorf("the pod has no allocation: %v", pod.Annotations)
	}

	// As an operator stops and restarts it.
	c.scale(t, 0)
	c.schedulers(t, 1)
	if _, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), gpuPod("meanwhile", shippedProfile, 2).Obj(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.scale(t, 2)
	c.schedulers(t, 2)
	waitPhase(t, c.client, metav1.NamespaceDefault, "meanwhile", v1.PodRunning)

	shipped, err := manifests.FS.ReadFile(manifests.SchedulerConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	const renamed = "renamed-scheduler"
	own := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(own, bytes.ReplaceAll(shipped, []byte("schedulerName: "+shippedProfile), []byte("schedulerName: "+renamed)), 0o600); err != nil {
		t.Fatal(err)
	}
	c.helm(t, "upgrade", "nvtopo", chartFolder(), "--set-file", "scheduler.config="+own)
	if second := c.runs(t, gpuPod("second", renamed, 2).Obj()); second.Annotations[allocation.Key] == "" {
		t.Errorf("the pod has no allocation: %v", second.Annotations)
	}

	c.helm(t, "uninstall", "nvtopo")
	c.schedulers(t, 1)
	now, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), "first", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lasting(pod), lasting(now)); diff != "" {
		t.Errorf("the pod after helm uninstall (-before +after):\n%s", diff)
	}
	if _, err := c.dyn.Resource(v1alpha1.GroupVersionResource).Get(t.Context(), now.Spec.NodeName, metav1.GetOptions{}); err != nil {
		t.Errorf("the node's graph after helm uninstall: %v", err)
	}
	c.runs(t, gpuPod("third", v1.DefaultSchedulerName, 1).Obj())
	c.again(t)
	c.runs(t, gpuPod("fourth", shippedProfile, 1).Obj())

	if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("after an interrupt: %v\n%s", err, c.said(t))
	}
	checkNothingLeft(t, c.tmp)
}
