// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/faults"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestConflictingBindings simulates an etcd that changes its leader under load: half of the Bindings are
// carried out and answered with a conflict, and the watch of pods is late. All 60 pods were bound, and 30
// GPUs had two owners. Without leader election, no new leader reads the pods before it carries a choice
// out.
func TestConflictingBindings(t *testing.T) {
	const (
		nodes, gpus, pods = 11, 88, 60
		lag               = 4 * time.Second
	)
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	var specs []devcluster.NodeSpec
	for i := range nodes {
		specs = append(specs, l.addNode(t, fmt.Sprintf("node-%02d", i), "dgx1-v100"))
	}
	l.publish(t, devcluster.ExporterOptions{}, specs...)
	proxy, err := l.StartProxy(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Errorf("close the proxy: %v", err)
		}
	})
	const name = "committed"
	if _, err := l.StartScheduler(t.Context(), devcluster.SchedulerOptions{
		Binary: testkit.Program(t, "nvtopo-scheduler"),
		Config: schedulerConfig(profile{name: name, write: "Binding"}), ServiceAccount: l.schedulerAccount, Server: proxy.URL(),
	}); err != nil {
		t.Fatal(err)
	}
	l.create(t, gpuPod("first", name, 1).Obj()) // the scheduler knows the graphs when it is bound
	l.bound(t, "first")
	l.remove(t, "first")
	proxy.DelayWatches(lag)
	proxy.Set([]faults.Rule{{Kind: faults.ConflictAfter, On: faults.Writes, Share: 0.5, Without: []string{"leases", "events"}}})
	for i := range pods {
		l.create(t, gpuPod(fmt.Sprintf("p-%02d", i), name, 2).Obj())
	}
	owners, twice, bound := map[string]string{}, []string{}, 0
	look := func(ctx context.Context) (bool, string) {
		list, err := l.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		clear(owners)
		twice, bound = nil, 0
		for i := range list.Items {
			pod := &list.Items[i]
			if pod.Spec.NodeName == "" {
				continue
			}
			bound++
			for _, id := range choiceOf(t, pod, l.graphs[pod.Spec.NodeName]).GPUs(string(gpuResource)) {
				key := pod.Spec.NodeName + "/" + id
				if other, ok := owners[key]; ok {
					twice = append(twice, fmt.Sprintf("%s: %s and %s", key, other, pod.Name))
				}
				owners[key] = pod.Name
			}
		}
		return len(owners) == gpus, fmt.Sprintf("%d pods bound, %d GPUs owned, %d of them twice", bound, len(owners), len(twice))
	}
	testkit.Eventually(t, waitLimit, "every GPU has an owner", look)
	time.Sleep(2 * lag) // for a scheduler that still takes them for free
	look(t.Context())
	if len(twice) > 0 {
		testkit.Violation(t, "%d GPUs have two owners: %q", len(twice), twice)
	}
	if bound != gpus/2 {
		t.Errorf("%d pods of two GPUs are bound on %d GPUs", bound, gpus)
	}
	if n := proxy.Counts()[faults.ConflictAfter]; n < pods/4 {
		t.Errorf("%d writes were carried out and answered with a conflict", n)
	}
}
