// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// TestProgramKills kills and restarts each program while a job grows into an idle pool, and while another
// tenant reclaims its guarantee, beside a tenant that tries to exceed its limit. The final state is the
// same as without kills, and the bills agree with the recorder's observations.
func TestProgramKills(t *testing.T) {
	rounds := fromEnvironment(t, "NVTOPO_POOL_KILLS", 0)
	if rounds == 0 {
		t.Skip("NVTOPO_POOL_KILLS says how many rounds: make test-long has five, of a minute and more for each program")
	}
	l := newTestEnv(t)
	scheduler := l.Schedulers()[0]
	t.Cleanup(l.keepRunning())
	// The order is that of one round; the first has no kill.
	victims := []victim{
		{name: "nobody", kill: func() error { return nil }},
		{name: "Kueue", kill: l.Kueue().Kill},
		{name: "the pool controller", kill: l.pools.Kill},
		{name: "the scheduler", kill: scheduler.Kill},
		{name: "the API server", kill: func() error { return errors.Join(l.CrashAPIServer(t.Context()), l.StartAPIServer(t.Context())) }, unordered: true},
	}
	for round := range rounds {
		for _, v := range victims {
			if round > 0 && v.name == "nobody" {
				continue
			}
			t.Run(fmt.Sprintf("%s, round %d", v.name, round), func(t *testing.T) { growAndReclaim(t, l, v) })
		}
	}
}

// program is one that a node's kubelet would keep running.
type program interface {
	Alive() bool
	Restart(ctx context.Context) error
}

// keepRunning restarts programs that have ended, until stop is called: those that were killed, and those
// that lost their Lease, because of an API server that is down or a busy machine.
func (e *testEnv) keepRunning() (stop func()) {
	programs := map[string]program{"Kueue": e.Kueue(), "the pool controller": e.pools, "the scheduler": e.Schedulers()[0]}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			for name, p := range programs {
				if p.Alive() {
					continue
				}
				if err := p.Restart(ctx); err != nil && ctx.Err() == nil {
					fmt.Fprintf(testkit.Log(), "start %s again: %v\n", name, err)
				}
			}
		}, time.Second)
	}()
	return func() {
		cancel()
		<-done
	}
}

// victim is a program that is killed, and restarted soon.
type victim struct {
	name string
	kill func() error
	// unordered: the recorder then gets a new list, which has no order, instead of changes one after the
	// other; and the Job controller, which had no response, creates a pod twice and deletes one. A starting
	// API server refuses requests whose roles it has not read yet.
	unordered bool
}

// between kills the victim, stops the hostile tenant, and waits until tenants hold the wanted devices.
func (v *victim) between(t *testing.T, s *scenario, stop func(), want map[string]int64) {
	t.Helper()
	s.recorder.read(s.name, func(a *account) { a.unordered = v.unordered })
	s.refusals.ignore(v.unordered)
	if err := v.kill(); err != nil {
		t.Fatalf("kill %s: %v", v.name, err)
	}
	stop()
	s.waitBound(t, want)
	s.settled(t)
	s.recorder.read(s.name, func(a *account) { a.unordered = false })
	s.refusals.ignore(false)
	if got := s.bound("a", "b"); !maps.Equal(got, want) {
		t.Errorf("settled: tenants hold %v, want %v", got, want)
	}
}

// growAndReclaim grows a job of tenant a into the pool, and makes tenant b reclaim 24 devices. The victim
// is killed in the middle of both.
func growAndReclaim(t *testing.T, l *testEnv, v victim) {
	t.Helper()
	s := newScenarioOn(t, l, dgx(8)...)
	everybody := []string{"a", "b", hostileTenant}
	s.tenants(t, everybody...)
	s.accounts(t, everybody...)
	s.computePool(t, fmt.Sprintf(`
  poolType: gpu
  capacity: {total: 64, reserved: 8}
  quotas: [{tenant: POOL-a, guaranteed: 16}, {tenant: POOL-b, limit: 24, guaranteed: 24}, {tenant: POOL-%s, limit: %d}]`,
		hostileTenant, hostileLimit))
	s.ready(t)
	replicas := func(want int32) {
		s.waitElastic(t, "a", "train", fmt.Sprintf("has %d replicas", want), func(st *poolv1alpha1.ElasticJobStatus) bool {
			return st.Replicas == want && st.ReadyReplicas == want && st.Phase == poolv1alpha1.JobRunning
		})
	}

	tenant := s.attacker(t)
	stop := s.harass(t, tenant, 1)
	s.elasticJob(t, "a", "train", `
  scaling: {minReplicas: 2, maxReplicas: 7, gpuPerReplica: 8}`)
	s.waitFor(t, "the job begins to grow", func(context.Context) (bool, string) {
		return s.counts("a").bound >= 16, fmt.Sprint(s.counts("a"))
	})
	v.between(t, s, stop, map[string]int64{"a": 56, "b": 0})
	replicas(7)
	base := uids(s.pods(t, "a", names.BaseJob("train")))

	stop = s.harass(t, tenant, 2)
	s.jobs(t, "b", "claim", 3, work{gpus: 8})
	s.waitFor(t, "the job begins to shrink", func(context.Context) (bool, string) {
		return len(s.evicted("a")) > 0, fmt.Sprint(s.counts("a"))
	})
	v.between(t, s, stop, map[string]int64{"a": 32, "b": 24})
	replicas(4)
	if got := uids(s.pods(t, "a", names.BaseJob("train"))); !slices.Equal(got, base) {
		t.Errorf("the base's pods are %v, and were %v", got, base)
	}
	for _, tenant := range everybody {
		s.evict(t, tenant)
	}
	s.billed(t, !v.unordered, everybody...)
}
