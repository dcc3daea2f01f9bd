// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

const (
	// billingKills is how often the controller is killed in make test; NVTOPO_BILLING_KILLS overrides it.
	billingKills = 4
	// jobsPerKill jobs come and go between two kills.
	jobsPerKill = 15
	// killedCents is the price of a GPU hour here: so high that a second costs some cents.
	killedCents = 77777
)

// TestBillingKills is "must show" 5, on a real API server, with Kueue and the scheduler: while jobs come
// and go the controller is killed, 20 times in make test-long. Each pod has one record, with the times of
// its status, although pods are deleted as soon as they have ended, and the account is billed exactly
// their cost. (pkg/pools/metering has 10 000 sessions, by a clock of its own.)
func TestBillingKills(t *testing.T) {
	kills := billingKills
	if text := os.Getenv("NVTOPO_BILLING_KILLS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("NVTOPO_BILLING_KILLS=%s: want a number above 0", text)
		}
		kills = n
	}
	jobs := kills * jobsPerKill
	l := newTestEnv(t)
	if err := l.pools.Kill(); err != nil {
		t.Fatal(err)
	}
	// Without leader election, whose Lease the next one would wait 15 s for each time.
	controller, err := l.StartPoolController(t.Context(), devcluster.PoolControllerOptions{
		Binary: testkit.Program(t, "nvtopo-pool-controller"), Args: []string{"--leader-elect=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.apply(t, fmt.Sprintf(`apiVersion: pool.nvtopo.dev/v1alpha1
kind: PriceBook
metadata: {name: %s}
spec: {currency: USD, prices: [{resource: nvidia.com/gpu, pricePerHour: "777.77"}], minPeriodSeconds: 0}`, poolv1alpha1.DefaultPriceBook))
	s := newScenarioOn(t, l, dgx(4)...)
	s.tenants(t, "a")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 32}
  quotas: [{tenant: POOL-a, limit: 32, guaranteed: 32}]`)
	s.ready(t)

	done := make(chan error, 1)
	go func() { done <- s.submit(t.Context(), jobs) }()
	go wait.UntilWithContext(t.Context(), s.deleteEnded, time.Second/5)
	random := rand.New(rand.NewPCG(1, 17))
	for range kills {
		time.Sleep(time.Duration(200+random.IntN(1500)) * time.Millisecond) // any moment will do
		if err := controller.Kill(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
		if err := controller.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var records []poolv1alpha1.UsageRecord
	testkit.Eventually(t, patience, "all sessions have ended", func(ctx context.Context) (bool, string) {
		if records, err = s.sessions(ctx, s.tenant("a")); err != nil {
			return false, err.Error()
		}
		return allEnded(jobs)(records), fmt.Sprintf("%d records", len(records))
	})
	for i := range records {
		if records[i].Status.Estimated {
			testkit.Violation(t, "an end was guessed:%s", tellSessions(records[i:i+1]))
		}
	}
	s.billed(t, true, "a")
	s.waitFor(t, "all pods are let go", func(ctx context.Context) (bool, string) {
		var list v1.PodList
		err := s.List(ctx, &list, client.InNamespace(s.tenant("a")))
		return err == nil && len(list.Items) == 0, fmt.Sprint(err, len(list.Items))
	})
	t.Logf("%d sessions, %d kills", len(records), kills)
}

// deleteEnded deletes the pods that have ended.
func (s *scenario) deleteEnded(ctx context.Context) {
	var pods v1.PodList
	if err := s.List(ctx, &pods, client.InNamespace(s.tenant("a"))); err != nil {
		return // the test waits for pods to be gone
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == v1.PodSucceeded && p.DeletionTimestamp == nil {
			_ = s.Delete(ctx, p)
		}
	}
}

// submit creates jobs of one pod each that runs for some seconds.
func (s *scenario) submit(ctx context.Context, n int) error {
	if err := s.priorityClass(ctx, 0); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(2, 17))
	for i := range n {
		job := s.jobObject("a", fmt.Sprintf("j%d", i), &work{
			gpus: 1 + random.Int64N(8), runs: time.Duration(1+random.IntN(3)) * time.Second,
		})
		if err := s.Create(ctx, job); err != nil {
			return fmt.Errorf("make job %d: %w", i, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
