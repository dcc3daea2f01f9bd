// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

const (
	// most is how many pods of the storm there are at a time.
	most = 6
	// handovers is how often the leader is killed or told to end.
	handovers = 6
)

// TestLeadersOfTwoReleases: a scheduler of each release runs, pods come and go, and
// the one that leads is killed or told to end again and again. Who leads next knows
// from the pods alone what is used.
func TestLeadersOfTwoReleases(t *testing.T) {
	l := newTestEnv(t, after())
	l.rollExporters(t, after(), false)
	l.create(t, residents()...)
	schedulers := map[string]*devcluster.Scheduler{"old": l.startScheduler(t, before())}
	lives := map[string]life{}
	for _, p := range residents() {
		lives[p.Name] = lifeOf(l.running(t, p.Name))
	}
	schedulers["new"] = l.startScheduler(t, after())

	ctx, cancel := context.WithCancel(t.Context())
	var storm sync.WaitGroup
	storm.Go(func() { l.storm(ctx, t) })
	t.Cleanup(func() { cancel(); storm.Wait() })
	leading, holder := "old", l.leads(t, "")
	led := map[string]int{}
	for i := range handovers {
		time.Sleep(2 * time.Second) // in which it schedules
		led[leading]++
		s := schedulers[leading]
		end := func() error { return s.Stop(t.Context()) }
		if i%3 != 2 {
			end = s.Kill
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		// The other is the only one that can.
		leading, holder = map[string]string{"old": "new", "new": "old"}[leading], l.leads(t, holder)
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	storm.Wait()
	// What the killed ones left behind is settled, and nothing waits for ever.
	testkit.Eventually(t, patience, "every pod of the storm runs", func(ctx context.Context) (bool, string) {
		waiting := 0
		pods := l.pods(ctx, t)
		for i := range pods {
			if pods[i].Status.Phase != v1.PodRunning {
				waiting++
			}
		}
		return waiting == 0, fmt.Sprintf("%d of %d pods wait", waiting, len(pods))
	})
	l.unchanged(t, "after the storm", lives)
	l.sound(t, "after the storm")
	t.Logf("led: %v; %d pods came, %d are there", led, l.made, len(l.pods(t.Context(), t)))
	if led["old"] == 0 || led["new"] == 0 {
		t.Errorf("led: %v, want both", led)
	}
}

// leads waits until another than the last holder has the Lease and returns who.
func (e *testEnv) leads(t *testing.T, last string) string {
	t.Helper()
	var holder string
	testkit.Eventually(t, patience, "another scheduler leads", func(ctx context.Context) (bool, string) {
		lease, err := e.client.CoordinationV1().Leases(systemNamespace).Get(ctx, "nvtopo-scheduler", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		if holder = ptr.Deref(lease.Spec.HolderIdentity, ""); holder == "" {
			return false, "nobody"
		}
		return holder != last, holder
	})
	return holder
}

// storm creates and deletes pods until ctx ends. Requests that fail are made again.
func (e *testEnv) storm(ctx context.Context, t *testing.T) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	var here []string
	pods := e.client.CoreV1().Pods(metav1.NamespaceDefault)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
		if len(here) > most {
			i := rng.IntN(len(here))
			if err := pods.Delete(ctx, here[i], metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				t.Errorf("delete: %v", err)
			}
			here = append(here[:i], here[i+1:]...)
			continue
		}
		name := fmt.Sprintf("storm-%d", e.made)
		if _, err := pods.Create(ctx, gpuPod(name, int64(1+rng.IntN(2)), nil), metav1.CreateOptions{}); err != nil {
			if ctx.Err() == nil {
				t.Errorf("create: %v", err)
			}
			continue
		}
		e.made++
		here = append(here, name)
	}
}
