// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// Each program is killed and started again while a job grows into an idle pool, and while another
// tenant takes back what is guaranteed to him. What is there in the end is the same as without.
func TestKilledProgramsChangeNothing(t *testing.T) { //nolint:tparallel // its rounds share one cluster
	t.Parallel()
	rounds := fromEnvironment(t, "NVTOPO_POOL_KILLS", 0)
	if rounds == 0 {
		t.Skip("NVTOPO_POOL_KILLS says how many rounds: make test-long has five, of a minute and more for each program")
	}
	l := newLab(t, nil)
	scheduler := l.Schedulers()[0]
	// The order is that of one round; nobody is killed in the first.
	nothing := func(context.Context) error { return nil }
	victims := []victim{
		{"nobody", nothing, nothing, false},
		{"Kueue", func(context.Context) error { return l.Kueue().Kill() }, l.Kueue().Restart, false},
		{"the pool controller", func(context.Context) error { return l.pools.Kill() }, l.pools.Restart, false},
		{"the scheduler", func(context.Context) error { return scheduler.Kill() }, scheduler.Restart, false},
		{"the API server", l.CrashAPIServer, l.StartAPIServer, true},
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

// victim is a program that is killed.
type victim struct {
	name          string
	kill, restart func(context.Context) error
	// unordered: the recorder then gets a new list, which has no order, in place of changes one
	// after the other; and the Job controller, which had no answer, makes a pod twice and takes
	// one back. An API server that starts refuses what it has not read the roles for yet.
	unordered bool
}

// between kills the victim and starts it again, and waits for what tenants hold in the end.
func (v *victim) between(t *testing.T, s *scenario, want map[string]int64) {
	t.Helper()
	s.recorder.read(s.name, func(a *account) { a.unordered = v.unordered })
	s.refusals.ignore(v.unordered)
	for _, step := range []func(context.Context) error{v.kill, v.restart} {
		if err := step(t.Context()); err != nil {
			t.Fatalf("kill and restart %s: %v", v.name, err)
		}
	}
	s.waitBound(t, want)
	s.settled(t)
	s.recorder.read(s.name, func(a *account) { a.unordered = false })
	s.refusals.ignore(false)
	if got := s.bound("a", "b"); !maps.Equal(got, want) {
		t.Errorf("settled: tenants hold %v, want %v", got, want)
	}
}

// growAndReclaim has a job of tenant a grow into the pool, and tenant b take back 24 devices. The
// victim is killed in the middle of both.
func growAndReclaim(t *testing.T, l *lab, v victim) {
	t.Helper()
	s := newScenarioOn(t, l, dgx(8)...)
	s.tenants(t, "a", "b")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 64, reserved: 8}
  quotas: [{tenant: POOL-a, guaranteed: 16}, {tenant: POOL-b, limit: 24, guaranteed: 24}]`)
	s.ready(t)
	replicas := func(want int32) {
		s.waitElastic(t, "a", "train", fmt.Sprintf("has %d replicas", want), func(st *poolv1alpha1.ElasticJobStatus) bool {
			return st.Replicas == want && st.ReadyReplicas == want && st.Phase == poolv1alpha1.JobRunning
		})
	}

	s.elasticJob(t, "a", "train", `
  scaling: {minReplicas: 2, maxReplicas: 7, gpuPerReplica: 8}`)
	s.waitFor(t, "the job begins to grow", func(context.Context) (bool, string) {
		return s.counts("a").bound >= 16, fmt.Sprint(s.counts("a"))
	})
	v.between(t, s, map[string]int64{"a": 56, "b": 0})
	replicas(7)
	base := uids(s.pods(t, "a", names.BaseJob("train")))

	s.jobs(t, "b", "claim", 3, work{gpus: 8})
	s.waitFor(t, "the job begins to shrink", func(context.Context) (bool, string) {
		return len(s.evictions()) > 0, fmt.Sprint(s.counts("a"))
	})
	v.between(t, s, map[string]int64{"a": 32, "b": 24})
	replicas(4)
	if got := uids(s.pods(t, "a", names.BaseJob("train"))); !slices.Equal(got, base) {
		t.Errorf("the base's pods are %v, and were %v", got, base)
	}
}
