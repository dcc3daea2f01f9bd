// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// startCluster returns a cluster that the test has to itself until it ends. It was used by earlier tests
// and reset to its initial state, unless cfg is not empty. Such tests run in parallel: they wait for most
// of their time.
func startCluster(t *testing.T, cfg devcluster.Config) *devcluster.Cluster {
	t.Helper()
	t.Parallel()
	if !cmp.Equal(cfg, devcluster.Config{}) {
		return startAlone(t, cfg)
	}
	c := idle.take()
	if c == nil {
		c = &usedCluster{Cluster: start(t, cfg)}
		var err error
		if c.fresh, err = c.State(t.Context()); err != nil {
			t.Fatal("read the new cluster's state:", errors.Join(err, c.Stop()))
		}
	}
	t.Cleanup(func() {
		if err := c.Reset(context.Background(), c.fresh); err != nil {
			if err = errors.Join(err, c.Stop()); !t.Failed() {
				t.Errorf("bring the cluster back to how it started: %v", err)
			}
			return
		}
		idle.put(c)
	})
	return c.Cluster
}

// usedCluster is a cluster that is passed from test to test.
type usedCluster struct {
	*devcluster.Cluster
	fresh *devcluster.State
}

// idleClusters are the clusters that no test uses. There are as many as tests run in parallel.
type idleClusters struct {
	mu  sync.Mutex
	all []*usedCluster // guarded by mu
}

var idle idleClusters

func (i *idleClusters) take() *usedCluster {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.all) == 0 {
		return nil
	}
	last := len(i.all) - 1
	c := i.all[last]
	i.all = i.all[:last]
	return c
}

func (i *idleClusters) put(c *usedCluster) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all = append(i.all, c)
}

// stop stops the clusters, when all tests have ended.
func (i *idleClusters) stop() error {
	var errs []error
	for c := i.take(); c != nil; c = i.take() {
		errs = append(errs, c.Stop())
	}
	return errors.Join(errs...)
}

// starting is held by the test that starts a cluster: a start computes and does not wait.
var starting sync.Mutex

// startAlone is startCluster for a test beside which no other of this package may run.
func startAlone(t *testing.T, cfg devcluster.Config) *devcluster.Cluster {
	t.Helper()
	c := start(t, cfg)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	return c
}

func start(t *testing.T, cfg devcluster.Config) *devcluster.Cluster {
	t.Helper()
	if cfg.Log == nil {
		cfg.Log = testkit.Log()
	}
	starting.Lock()
	c, err := devcluster.Start(t.Context(), cfg)
	starting.Unlock()
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
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
	testkit.Eventually(t, waitLimit, "pod "+name+" becomes "+string(want), func(ctx context.Context) (bool, string) {
		var err error
		if pod, err = client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false, err.Error()
		}
		return pod.Status.Phase == want, string(pod.Status.Phase)
	})
	return pod
}
