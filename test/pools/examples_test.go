// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nvtopo/nvtopo/manifests"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// TestQueuesExample applies the example with the requirement's three queues: each queue has its
// guarantee, and with jobs waiting in all of them the other 16 GPUs are shared by the weights 100, 50 and
// 10.
func TestQueuesExample(t *testing.T) {
	s := newScenario(t, dgx(8)...)
	s.tenants(t, "a", "b")
	text, err := manifests.FS.ReadFile("examples/pools/queues-pool.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.yaml(t, strings.Replace(string(text), "name: queues-pool", "name: POOL", 1))
	s.ready(t)
	type share struct{ Guaranteed, Limit, Used int32 }
	shares := func(status *poolv1alpha1.ComputePoolStatus) map[string]share {
		out := map[string]share{}
		for _, q := range status.Shares {
			out[strings.Trim(q.Tenant+"/"+q.Queue, "/")] = share{q.Guaranteed, q.Limit, q.Used}
		}
		return out
	}
	want := map[string]share{"high-priority": {Guaranteed: 32, Limit: 48}, "normal": {Guaranteed: 16, Limit: 64}, "preemptible": {Limit: 64}}
	if diff := cmp.Diff(want, shares(s.status(t))); diff != "" {
		t.Fatalf("the shares of the pool that was applied (-want +got):\n%s", diff)
	}
	// Jobs of the queue that does not preempt come first: it would get nothing of a full pool.
	for _, w := range []struct {
		tenant, queue string
		jobs          int
	}{{"b", "preemptible", 8}, {"a", "normal", 30}, {"b", "high-priority", 50}} {
		s.jobs(t, w.tenant, w.queue, w.jobs, work{gpus: 1, queue: w.queue})
	}
	want = map[string]share{
		"high-priority": {Guaranteed: 32, Limit: 48, Used: 42}, "normal": {Guaranteed: 16, Limit: 64, Used: 21}, "preemptible": {Limit: 64, Used: 1},
	}
	full := func(status *poolv1alpha1.ComputePoolStatus) bool { return cmp.Equal(want, shares(status)) }
	s.waitPool(t, "the queues hold 42, 21 and 1", full)
	s.settled(t)
	if status := s.status(t); !full(status) || status.AllocatedCapacity != 64 {
		t.Errorf("settled: %d devices are allocated; shares (-want +got):\n%s", status.AllocatedCapacity, cmp.Diff(want, shares(status)))
	}
	if c := meta.FindStatusCondition(s.status(t).Conditions, poolv1alpha1.ConditionGuaranteesReduced); c == nil || c.Status != "False" {
		t.Errorf("condition %+v", c)
	}
	t.Logf("%d evictions", len(s.evictions()))
}
