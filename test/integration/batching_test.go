// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
)

// shippedProfile is the profile of the shipped configurations.
const shippedProfile = "topology-aware-scheduler"

// startShipped runs the scheduler with a shipped configuration and account.
func (e *testEnv) startShipped(t *testing.T, path string) *devcluster.Scheduler {
	t.Helper()
	s, err := e.StartScheduler(t.Context(), devcluster.SchedulerOptions{
		Binary: testkit.Program(t, "nvtopo-scheduler"), Config: withKubeconfig(t, path),
		ServiceAccount: e.schedulerAccount,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// nodesOf creates nodes of a machine and publishes them.
func (e *testEnv) nodesOf(t *testing.T, machine string, n int) []string {
	t.Helper()
	specs := make([]devcluster.NodeSpec, n)
	names := make([]string, n)
	for i := range specs {
		specs[i] = devcluster.NodeSpec{Name: e.freshName(machine), Machine: machine}
		names[i] = specs[i].Name
		g, err := specs[i].Graph()
		if err != nil {
			t.Fatal(err)
		}
		e.graphs[names[i]] = g
	}
	var g errgroup.Group
	g.SetLimit(8)
	for _, spec := range specs {
		g.Go(func() error { _, err := e.AddNode(t.Context(), spec); return err })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	e.publish(t, devcluster.ExporterOptions{}, specs...)
	return names
}

// createAll creates pods as fast as the API server accepts them.
func (e *testEnv) createAll(t *testing.T, pods []*v1.Pod) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(8)
	for _, pod := range pods {
		g.Go(func() error {
			_, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// awaitAllBound waits until every pod has a node.
func (e *testEnv) awaitAllBound(t *testing.T) []v1.Pod {
	t.Helper()
	var pods []v1.Pod
	testkit.Eventually(t, waitLimit, "every pod is bound", func(context.Context) (bool, string) {
		pods = e.pods(t)
		n := 0
		for i := range pods {
			if pods[i].Spec.NodeName != "" {
				n++
			}
		}
		return n == len(pods), fmt.Sprintf("%d of %d", n, len(pods))
	})
	return pods
}

// TestBatching gives equal pods to the shipped scheduler. Those that take whole nodes use one ranking of
// the nodes for many pods; those that take a part of one must be rated one by one, because the previous
// one changed the free devices.
func TestBatching(t *testing.T) {
	const nodes, whole, part = 70, 64, 48
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.nodesOf(t, "dgx1-v100", nodes)
	queue := func(n, gpus int) {
		pods := make([]*v1.Pod, n)
		for i := range pods {
			pods[i] = gpuPod(l.freshName("equal"), shippedProfile, gpus).Obj()
		}
		l.createAll(t, pods)
	}
	// The pods exist when the scheduler starts, so that it has them all at once.
	queue(whole, 8)
	s := l.startShipped(t, manifests.SchedulerConfigPath)
	taken := map[string]string{} // node -> pod
	for _, pod := range l.awaitAllBound(t) {
		if other, ok := taken[pod.Spec.NodeName]; ok {
			testkit.Violation(t, "%s and %s are both on %s", pod.Name, other, pod.Spec.NodeName)
		}
		taken[pod.Spec.NodeName] = pod.Name
		choiceOf(t, &pod, l.graphs[pod.Spec.NodeName])
	}
	attempts := func() (used, unused, without float64) {
		m := l.scrape(t, s)
		const name, profile = "scheduler_batch_attempts_total", `profile="` + shippedProfile + `"`
		return m.sum(name, profile, `result="hint_used"`), m.sum(name, profile, `result="hint_not_used"`), m.sum(name, profile, `result="no_hint"`)
	}
	used, unused, without := attempts()
	t.Logf("%d pods of 8 GPUs on %d nodes: hint_used %.0f, hint_not_used %.0f, no_hint %.0f", whole, nodes, used, unused, without)
	if used == 0 {
		t.Error("no pod used the ranking of the one before")
	}

	l.dropAll(t)
	queue(part, 2)
	l.awaitAllBound(t)
	after, _, afterWithout := attempts()
	t.Logf("%d pods of 2 GPUs: hint_used %.0f, no_hint %.0f", part, after-used, afterWithout-without)
	if after != used {
		t.Errorf("%.0f pods that take a part of a node used the ranking of the one before", after-used)
	}
	if afterWithout == without {
		t.Error("no attempt was counted")
	}
}
