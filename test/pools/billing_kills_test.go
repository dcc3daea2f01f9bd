// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	// billingKills is how often the controller is killed in make test; NVTOPO_BILLING_KILLS says
	// another number.
	billingKills = 4
	// jobsPerKill come and go between two kills.
	jobsPerKill = 15
	// killedCents is what an hour of a GPU costs here: so much that a second is some cents.
	killedCents = 77777
)

// Must show 5, on a real API server, with Kueue and the scheduler: while jobs come and go the
// controller is killed, 20 times in make test-long. Each pod has one record, of the times that its
// status has, and the account is billed to the cent what these cost. (pkg/pools/metering has 10 000
// sessions, by a clock of its own.)
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
	// Without an election, for whose end the next one would wait 15 s each time.
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
	var cents int64
	pods := s.podsOf(t, "a")
	for _, pod := range pods {
		k := slices.IndexFunc(records, func(r poolv1alpha1.UsageRecord) bool { return r.Spec.PodUID == pod.UID })
		if k < 0 {
			testkit.Violation(t, "pod %s has no record", pod.Name)
			continue
		}
		start, end := bound(t, pod), pod.Status.ContainerStatuses[0].State.Terminated.FinishedAt.Time
		if r := &records[k]; !r.Spec.Start.Time.Equal(start) || !r.Status.End.Time.Equal(end) || r.Status.Estimated {
			t.Errorf("pod %s held its GPUs from %v to %v:%s", pod.Name, start, end, tellSessions(records[k:k+1]))
		}
		work := devicesOf(&pod.Spec) * (end.Unix() - start.Unix())
		cents += (2*work*killedCents + 3600) / (2 * 3600)
	}
	if len(pods) != jobs || len(records) != jobs {
		testkit.Violation(t, "there are %d records of %d pods of %d jobs", len(records), len(pods), jobs)
	}
	want := fmt.Sprintf("%d.%02d", cents/100, cents%100)
	var account poolv1alpha1.TenantAccount
	s.waitFor(t, "the account is billed "+want, func(ctx context.Context) (bool, string) {
		err := s.Get(ctx, client.ObjectKey{Name: s.tenant("a")}, &account)
		return string(account.Status.Billed) == want, fmt.Sprint(err, account.Status)
	})
	s.waitFor(t, "all pods are let go", func(ctx context.Context) (bool, string) {
		var list v1.PodList
		err := s.List(ctx, &list, client.InNamespace(s.tenant("a")))
		held := slices.ContainsFunc(list.Items, func(p v1.Pod) bool { return slices.Contains(p.Finalizers, names.FinalizerMetering) })
		return err == nil && !held, fmt.Sprint(err)
	})
	t.Logf("%d sessions cost %s, %d kills", len(records), want, kills)
}

// submit makes jobs of one pod each that runs for some seconds; of two in three the pod is kept
// until its end is written.
func (s *scenario) submit(ctx context.Context, n int) error {
	if err := s.priorityClass(ctx, 0); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(2, 17))
	for i := range n {
		job := s.jobObject("a", fmt.Sprintf("j%d", i), &work{
			gpus: 1 + random.Int64N(8), runs: time.Duration(1+random.IntN(3)) * time.Second,
		})
		if i%3 > 0 {
			job.Spec.Template.Finalizers = []string{names.FinalizerMetering}
		}
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
