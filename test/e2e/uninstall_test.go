// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/cli"
)

// pluginSet returns NVIDIA's DaemonSet as docs/node-agent.md has an operator patch it. It selects no
// node: the plugin itself runs beside, with the DaemonSet's settings.
func pluginSet() *appsv1.DaemonSet {
	labels := map[string]string{"name": "nvidia-device-plugin-ds"}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "nvidia-device-plugin-daemonset", Namespace: metav1.NamespaceSystem},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: v1.PodSpec{
					NodeSelector: map[string]string{"there-is": "none"},
					Containers: []v1.Container{{
						Name: "nvidia-device-plugin-ctr", Image: "plugin",
						Env: []v1.EnvVar{{Name: "KUBELET_SOCKET", Value: gpunode.RegistrySocket}},
					}},
				},
			},
		},
	}
}

// TestUninstall checks that after `nvtopo uninstall` NVIDIA's plugin registers with kubelet, kubelet has
// its GPUs, a pod without nvtopo gets one of them, and the running pods keep theirs.
func TestUninstall(t *testing.T) {
	l := startBeside(t, gpunode.Config{NVIDIA: true, Agent: true, Controllers: true})
	sets := l.Client.AppsV1().DaemonSets(metav1.NamespaceSystem)
	if _, err := sets.Create(t.Context(), pluginSet(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	had := map[string][]gpunode.Observation{}
	pods := map[string]*v1.Pod{}
	for name, gpus := range map[string]int{"first": 1, "second": 2} {
		l.create(t, gpunode.Pod(name, gpus))
		pods[name] = l.running(t, name)
		had[name] = l.observe(t, pods[name])
		for _, problem := range differences(name, had[name]) {
			t.Error(problem)
		}
	}

	// The programs run beside the node, while their pods would end with their workloads.
	if err := l.Scheduler.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Exporter.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Agent.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := cli.New("nvtopo")
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs([]string{"uninstall", "--kubeconfig", l.Cluster.Kubeconfig()})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("nvtopo uninstall: %v\n%s", err, out.String())
	}
	t.Log(out.String())
	set, err := sets.Get(t.Context(), pluginSet().Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if env := set.Spec.Template.Spec.Containers[0].Env; len(env) != 0 {
		t.Fatalf("NVIDIA's plugin has variables %+v, want none", env)
	}

	// In place of the DaemonSet's controller.
	if err := l.MovePlugin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.WaitGPUs(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.create(t, gpunode.Pod("stock", 1, func(p *v1.Pod) {
		p.Spec.SchedulerName, p.Spec.NodeName = "", l.Node.Name()
	}))
	stock := l.running(t, "stock")
	seen := l.observe(t, stock)
	for _, problem := range inside(stock, seen) {
		t.Error(problem)
	}
	if got := seen[0]; len(got.Environment) != 1 || len(got.Annotation) != 0 {
		t.Errorf("a stock pod has GPUs %v and annotation %v, want one GPU by NVIDIA's plugin alone", got.Environment, got.Annotation)
	}
	for name, pod := range pods {
		testkit.Eventually(t, patience, name+" is as it was", func(ctx context.Context) (bool, string) {
			return l.asBefore(ctx, pod, had[name])
		})
	}
}
