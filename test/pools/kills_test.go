// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// Each program is killed and started again while a job grows into an idle pool, and while another
// tenant takes back what is guaranteed to him. What is there in the end is the same as without.
func TestKilledProgramsChangeNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, nil)
	scheduler := l.Schedulers()[0]
	// The order is that of one round; nobody is killed in the first.
	victims := []struct {
		name          string
		kill, restart func(context.Context) error
	}{
		{"nobody", func(context.Context) error { return nil }, func(context.Context) error { return nil }},
		{"Kueue", func(context.Context) error { return l.Kueue().Kill() }, l.Kueue().Restart},
		{"the pool controller", func(context.Context) error { return l.pools.Kill() }, l.pools.Restart},
		{"the scheduler", func(context.Context) error { return scheduler.Kill() }, scheduler.Restart},
		{"the API server", l.CrashAPIServer, l.StartAPIServer},
	}
	var want []growth
	for round := range fromEnvironment(t, "NVTOPO_POOL_KILLS", 1) {
		for _, v := range victims {
			if round > 0 && v.name == "nobody" {
				continue
			}
			t.Run(fmt.Sprintf("%s, round %d", v.name, round), func(t *testing.T) {
				got := growAndReclaim(t, l, func() {
					for _, step := range []func(context.Context) error{v.kill, v.restart} {
						if err := step(t.Context()); err != nil {
							t.Fatalf("kill and restart %s: %v", v.name, err)
						}
					}
				})
				if want == nil {
					want = []growth{{bound: map[string]int64{"a": 56, "b": 0}, replicas: 7}, {bound: map[string]int64{"a": 32, "b": 24}, replicas: 4}}
				}
				if diff := cmp.Diff(want, got, cmp.AllowUnexported(growth{})); diff != "" {
					t.Errorf("after both steps (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// growth is what is settled after a step.
type growth struct {
	bound    map[string]int64 // devices by tenant
	replicas int32
}

// growAndReclaim has a job of tenant a grow into the pool, and tenant b take back 24 devices. kill
// is called in the middle of both.
func growAndReclaim(t *testing.T, l *lab, kill func()) (out []growth) {
	t.Helper()
	s := newScenarioOn(t, l, dgx(8)...)
	s.tenants(t, "a", "b")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 64, reserved: 8}
  quotas: [{tenant: POOL-a, guaranteed: 16}, {tenant: POOL-b, limit: 24, guaranteed: 24}]`)
	s.ready(t)
	see := func() {
		s.settled(t)
		out = append(out, growth{bound: s.bound("a", "b"), replicas: s.elastic(t, "a", "train").Status.Replicas})
	}

	s.elasticJob(t, "a", "train", `
  scaling: {minReplicas: 2, maxReplicas: 7, gpuPerReplica: 8}`)
	s.waitFor(t, "the job begins to grow", func(context.Context) (bool, string) {
		return s.counts("a").bound >= 16, fmt.Sprint(s.counts("a"))
	})
	kill()
	see()
	base := uids(s.pods(t, "a", names.BaseJob("train")))

	s.jobs(t, "b", "claim", 3, work{gpus: 8})
	s.waitFor(t, "the job begins to shrink", func(context.Context) (bool, string) {
		return len(s.evictions()) > 0, fmt.Sprint(s.counts("a"))
	})
	kill()
	see()
	if got := uids(s.pods(t, "a", names.BaseJob("train"))); !slices.Equal(got, base) {
		t.Errorf("the base's pods are %v, and were %v", got, base)
	}
	return out
}

func uids(pods []*v1.Pod) (out []types.UID) {
	for _, p := range pods {
		out = append(out, p.UID)
	}
	slices.Sort(out)
	return out
}
