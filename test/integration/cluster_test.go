// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/internal/testrig"
)

// startCluster starts a cluster that ends with the test. Tests with a cluster of their own
// run side by side: they wait for most of their time.
func startCluster(t *testing.T, cfg devcluster.Config) *devcluster.Cluster {
	t.Helper()
	t.Parallel()
	return startAlone(t, cfg)
}

// starting is held by the test that starts a cluster: a start computes and does not wait.
var starting sync.Mutex

// startAlone is startCluster for a test beside which no other of this package may run.
func startAlone(t *testing.T, cfg devcluster.Config) *devcluster.Cluster {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = testrig.Log()
	}
	starting.Lock()
	c, err := devcluster.Start(t.Context(), cfg)
	starting.Unlock()
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	return c
}

// clientFor returns an administrator's client.
func clientFor(t *testing.T, c *devcluster.Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// waitPhase waits until a pod is in a phase and returns it.
func waitPhase(t *testing.T, client kubernetes.Interface, namespace, name string, want v1.PodPhase) *v1.Pod {
	t.Helper()
	var pod *v1.Pod
	testrig.Eventually(t, waitLimit, "pod "+name+" becomes "+string(want), func(ctx context.Context) (bool, string) {
		var err error
		if pod, err = client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return pod.Status.Phase == want, string(pod.Status.Phase)
	})
	return pod
}
