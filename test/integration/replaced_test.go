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

// TestUnseenReplacement: a pod is replaced before it is seen bound. It takes the watch of pods away
// from a scheduler after it bound a pod and before it hears of that. Meanwhile the pod is made anew
// under its name, and the watch is so old when it comes back that the scheduler has to list: it is
// told of an update from one UID to the other. kube-scheduler's cache then had the first pod on the
// node for ever, and the second waited for its GPUs.
func TestUnseenReplacement(t *testing.T) {
	const (
		name = "replaced"
		// lag has to be longer than a pod takes from its binding to its end and back.
		lag = 10 * time.Second
	)
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.publish(t, devcluster.ExporterOptions{}, l.addNode(t, "node", "dgx1-v100"))
	proxy, err := l.StartProxy(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Errorf("close the proxy: %v", err)
		}
	})
	sched, err := l.StartScheduler(t.Context(), devcluster.SchedulerOptions{
		Binary: testkit.Program(t, "nvtopo-scheduler"),
		Config: schedulerConfig(profile{name: name, write: "Binding"}), ServiceAccount: l.schedulerAccount, Server: proxy.URL(),
	})
	if err != nil {
		t.Fatal(err)
	}
	l.create(t, gpuPod("first", name, 1).Obj()) // the scheduler knows the graph when it is bound
	l.bound(t, "first")
	l.remove(t, "first")

	proxy.DelayWatches(lag)
	l.create(t, gpuPod("worker-0", name, 8).Obj())
	before := l.bound(t, "worker-0")
	l.remove(t, before.Name)
	l.create(t, gpuPod("worker-0", name, 8).Obj())
	proxy.Set([]faults.Rule{{Kind: faults.Expired, On: faults.Watches, Share: 1}})
	proxy.CutWatches()
	testkit.Eventually(t, waitLimit, "the scheduler was told to list again", func(context.Context) (bool, string) {
		n := proxy.Counts()[faults.Expired]
		return n > 0, fmt.Sprintf("%d watches were too old", n)
	})
	proxy.Set(nil)
	proxy.DelayWatches(0)

	testkit.Eventually(t, waitLimit, "the second worker-0 is bound", func(ctx context.Context) (bool, string) {
		if !sched.Alive() { // as a Deployment does
			if err := sched.Restart(ctx); err != nil {
				return false, err.Error()
			}
		}
		pod, err := l.client.CoreV1().Pods(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return pod.UID != before.UID && pod.Spec.NodeName != "", fmt.Sprint(pod.Status.Conditions)
	})
}
