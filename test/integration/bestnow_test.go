// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// TestBestIsChosen checks that a recreated pod gets the choice that explain calls the best at present, in
// a cluster of several kinds with another profile than the shipped one. By the shipped profile explain
// would be wrong.
func TestBestIsChosen(t *testing.T) {
	x := &unequal{testEnv: newTestEnv(t, devcluster.Config{})}
	x.install(t)
	x.kinds()
	x.makeUnequalNodes(t, 3)
	x.startScheduler(t, profile{
		name: gangProfile, write: "PreBind", plugins: []string{topologyPlugin, numaPlugin},
		args: map[string]string{topologyPlugin: "singleGPUs: LeastLost\n      largerPodsHeadroom: 0\n      bandwidthWeight: 0\n      latencyWeight: 0"},
	})
	x.wantPublished(t)
	r := rand.New(rand.NewPCG(37, 2))
	pods := map[string]int{} // GPUs by name
	for i := range 28 {
		name, gpus := fmt.Sprint("pod-", i), []int{1, 1, 2, 2, 4, 8}[r.IntN(6)]
		x.create(t, gpuPod(name, gangProfile, gpus).Obj())
		x.bound(t, name)
		pods[name] = gpus
	}
	others := 0
	for i := range 20 {
		name := fmt.Sprint("pod-", r.IntN(len(pods)))
		said := x.best(t, name)
		if x.bestByShipped(t, name) != said {
			others++
		}
		x.remove(t, name)
		x.create(t, gpuPod(name, gangProfile, pods[name]).Obj())
		x.bound(t, name)
		if got := x.has(t, name); got != said {
			t.Errorf("round %d: explain said that %s would get %s, and it got %s", i, name, said, got)
		}
	}
	if others == 0 {
		t.Error("the shipped profile would have chosen as much each time, so this test shows nothing")
	}
}

// kinds resets the recorded state of the nodes.
func (x *unequal) kinds() {
	x.kind, x.fast, x.free = map[string]string{}, map[string]bool{}, map[string]nvtopo.Mask{}
}

// wantPublished waits until the scheduler has published its profile.
func (e *testEnv) wantPublished(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, waitLimit, "the scheduler publishes its profiles", func(ctx context.Context) (bool, string) {
		c, err := e.client.CoreV1().ConfigMaps(systemNamespace).Get(ctx, diagnosis.ProfilesName, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		p, err := diagnosis.ParseProfiles(c.Data)
		return err == nil && p != nil && len(p.Profiles) > 0, fmt.Sprint(p, err)
	})
}

// best returns the kind of machine and the ring that explain calls the best for a pod. Between equal
// nodes the scheduler chooses at random, so the node's name is left out.
func (x *unequal) best(t *testing.T, name string) string {
	t.Helper()
	e, err := x.explained(t.Context(), t, name)
	if err != nil {
		t.Fatal(err)
	}
	if e.Choice == nil || e.Choice.Best == nil {
		t.Fatalf("pod %s has no best set: %+v", name, e)
	}
	return x.ring(e.Choice.BestNode, e.Choice.Best)
}

// has returns the same for the pod's present place.
func (x *unequal) has(t *testing.T, name string) string {
	t.Helper()
	e, err := x.explained(t.Context(), t, name)
	if err != nil {
		t.Fatal(err)
	}
	if e.Choice == nil || e.Choice.Set == nil {
		t.Fatalf("pod %s has no GPUs: %+v", name, e)
	}
	return x.ring(e.Choice.Node, e.Choice.Set)
}

func (x *unequal) ring(node string, s *explain.Set) string {
	return fmt.Sprintf("%d GPUs of %s, %s %g GB/s", len(s.Ring), x.kind[node], s.LinkClass, s.BandwidthGBps)
}

// bestByShipped is best without a published profile.
func (x *unequal) bestByShipped(t *testing.T, name string) string {
	t.Helper()
	maps := x.client.CoreV1().ConfigMaps(systemNamespace)
	c, err := maps.Get(t.Context(), diagnosis.ProfilesName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), c.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	said := x.best(t, name)
	c.ResourceVersion, c.UID = "", ""
	if _, err := maps.Create(t.Context(), c, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return said
}
