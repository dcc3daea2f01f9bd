// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	proxies "github.com/nvtopo/nvtopo/internal/lab/devcluster/faults"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/internal/testkit"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/virtualization"
)

const (
	// handovers is how often the leader is killed in make test-all; NVTOPO_HANDOVERS overrides it.
	handovers = 4
	// latest is the greatest delay of a standby's watches.
	latest = 30 * time.Second
)

// othersBeside are foreign objects beside those of the pool, and a pool whose objects would have their
// names.
const othersBeside = `apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: POOL-foreign}
spec: {nodeLabels: {example.com/own: "true"}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: POOL-foreign}
spec: {}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: foreign, namespace: POOL-a}
spec: {clusterQueue: POOL.POOL-a}
---
apiVersion: pool.nvtopo.dev/v1alpha1
kind: ComputePool
metadata: {name: POOL-foreign}
spec: {poolType: gpu, capacity: {total: 8}, nodeSelector: {example.com/none: "true"}, defaultQuota: {}}
`

// TestHandovers runs two pool controllers of which the leader is killed repeatedly. Their caches are
// late, and responses to their writes are lost or wrong. Jobs come and go, one is resized, one exceeds
// its time, and a node is divided again. In the end each session is billed exactly, no foreign object is
// changed, and no Workload that Kueue had stopped was activated.
func TestHandovers(t *testing.T) {
	rounds := fromEnvironment(t, "NVTOPO_HANDOVERS", handovers)
	random := rand.New(rand.NewPCG(33, 1))
	l := newTestEnv(t)
	if err := l.pools.Kill(); err != nil {
		t.Fatal(err)
	}
	pair := l.pair(t)
	s := newScenarioOn(t, l, dgx(4)...)
	s.tenants(t, "a", "b")
	s.accounts(t, "a", "b")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 32}
  quotas: [{tenant: POOL-a, limit: 24, guaranteed: 8}, {tenant: POOL-b, limit: 24, guaranteed: 8}]`)
	s.ready(t)
	s.yaml(t, othersBeside)
	before := s.foreign(t)
	s.elasticJob(t, "b", "grow", `
  scaling: {minReplicas: 1, maxReplicas: 2, gpuPerReplica: 4}`)
	divided := newScenarioOn(t, l, dgx(1)...)
	managers := newManagers(t, divided)
	divided.computePool(t, "  poolType: gpu\n  capacity: {total: 8}\n  virtualization: {enabled: true, strategy: mig, profile: all-3g.40gb}")

	load, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, every := range []struct {
		pause time.Duration
		do    func(context.Context)
	}{
		{400 * time.Millisecond, s.comeAndGo()},
		{200 * time.Millisecond, s.deleteEnded},
		{3 * time.Second, s.resize()},
		{20 * time.Second, s.exceed},
		{20 * time.Second, divided.switchProfile()},
	} {
		running.Go(func() { wait.UntilWithContext(load, every.do, every.pause) })
	}
	for range rounds {
		pair.handOver(t, s, random)
	}
	s.waitFor(t, "a job has exceeded its time, and a node was divided", func(context.Context) (bool, string) {
		stopped, told := 0, len(managers.toldOf("all-1g.10gb"))+len(managers.toldOf("all-3g.40gb"))
		s.recorder.read(s.name, func(a *account) {
			for _, e := range a.evictions {
				if strings.HasPrefix(e.job, "short") && strings.Contains(e.reason, kueue.EvictedByMaxExecution) {
					stopped++
				}
			}
		})
		return stopped > 0 && told > 0, fmt.Sprint(stopped, told)
	})
	stop()
	running.Wait()
	pair.calm()
	divided.divided(t, virtualization.ReasonApplied)
	for _, tenant := range []string{"a", "b"} {
		s.evict(t, tenant)
	}
	s.billed(t, true, "a", "b")
	pool := &poolv1alpha1.ComputePool{}
	pool.Name = s.name + "-foreign"
	s.remove(t, pool)
	s.waitGone(t, pool)
	if diff := cmp.Diff(before, s.foreign(t)); diff != "" {
		testkit.Violation(t, "objects of others changed (-before +after):\n%s", diff)
	}
	s.recorder.read(s.name, func(a *account) {
		for _, job := range a.activated {
			if !strings.HasPrefix(job, "grow") {
				testkit.Violation(t, "the Workload of job %s was activated, which the pool controller had not stopped", job)
			}
		}
	})
}

// pair are two pool controllers of which one leads, each behind a proxy.
type pair struct {
	controllers [2]*devcluster.PoolController
	proxies     [2]*proxies.Proxy
	leads       int
}

// pair starts both so that the first leads.
func (e *testEnv) pair(t *testing.T) *pair {
	t.Helper()
	p := &pair{}
	before, err := e.leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.controllers {
		proxy, err := e.StartProxy(t.Context(), uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = proxy.Close() })
		p.proxies[i] = proxy
		p.controllers[i], err = e.StartPoolController(t.Context(), devcluster.PoolControllerOptions{
			Binary: testkit.Program(t, "nvtopo-pool-controller"), ServiceAccount: controllerAccount, Log: e.refusals, Server: proxy.URL(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			testkit.Eventually(t, patience, "the first controller leads", func(ctx context.Context) (bool, string) {
				holder, err := e.leader(ctx)
				return err == nil && holder != before, fmt.Sprint(holder, err)
			})
		}
	}
	return p
}

// leader returns the present or last holder of the Lease.
func (e *testEnv) leader(ctx context.Context) (string, error) {
	var lease coordinationv1.Lease
	err := e.Get(ctx, client.ObjectKey{Namespace: release.Namespace, Name: "nvtopo-pool-controller"}, &lease)
	if err != nil || lease.Spec.HolderIdentity == nil {
		return "", client.IgnoreNotFound(err)
	}
	return *lease.Spec.HolderIdentity, nil
}

// handOver delays the standby's watches and makes its writes fail at times, kills the leader, waits until
// the standby leads, and restarts the killed one.
func (p *pair) handOver(t *testing.T, s *scenario, random *rand.Rand) {
	t.Helper()
	next := 1 - p.leads
	kinds := []string{"pods", "usagerecords", "namespaces", "nodes", "workloads", "jobs", "localqueues"}
	random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	p.proxies[next].DelayWatches(time.Duration(random.Int64N(int64(latest))), kinds[:1+random.IntN(len(kinds))]...)
	unsure := func(kind proxies.Kind) proxies.Rule {
		return proxies.Rule{Kind: kind, On: proxies.Writes, Share: 0.05 * random.Float64(), Without: []string{"leases", "events"}}
	}
	p.proxies[next].Set([]proxies.Rule{unsure(proxies.Lost), unsure(proxies.ConflictAfter), unsure(proxies.InternalAfter), unsure(proxies.TimedOut)})
	time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond) // any moment will do
	before, err := s.leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.controllers[p.leads].Kill(); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the standby leads", func(ctx context.Context) (bool, string) {
		now, err := s.leader(ctx)
		return err == nil && now != "" && now != before, fmt.Sprintf("%s, was %s, %v", now, before, err)
	})
	p.proxies[p.leads].DelayWatches(0)
	p.proxies[p.leads].Set(nil)
	if err := p.controllers[p.leads].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.leads = next
}

// calm removes all faults.
func (p *pair) calm() {
	for _, proxy := range p.proxies {
		proxy.DelayWatches(0)
		proxy.Set(nil)
	}
}

// comeAndGo creates a job at each call, of a random tenant and size, that runs for some seconds or is
// deleted while it runs.
func (s *scenario) comeAndGo() func(context.Context) {
	random, n := rand.New(rand.NewPCG(33, 2)), 0
	return func(ctx context.Context) {
		if s.priorityClass(ctx, 0) != nil {
			return
		}
		n++
		tenant := []string{"a", "b"}[random.IntN(2)]
		job := s.jobObject(tenant, fmt.Sprintf("j%d", n), &work{gpus: 1 + random.Int64N(8), runs: time.Duration(1+random.IntN(6)) * time.Second})
		if s.Create(ctx, job) != nil || random.IntN(4) > 0 {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(random.IntN(2000)) * time.Millisecond):
		}
		_ = s.Delete(ctx, job, client.PropagationPolicy("Background")) // the rest is evicted in the end
	}
}

// resize gives the elastic job another size at each call.
func (s *scenario) resize() func(context.Context) {
	random := rand.New(rand.NewPCG(33, 3))
	return func(ctx context.Context) {
		job := &poolv1alpha1.ElasticJob{}
		job.Namespace, job.Name = s.tenant("b"), "grow"
		_ = s.Patch(ctx, job, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"scaling":{"maxReplicas":%d}}}`, 1+random.IntN(5))))
	}
}

// exceed recreates a job that Kueue stops soon, since it exceeds its time.
func (s *scenario) exceed(ctx context.Context) {
	short := &poolv1alpha1.ElasticJob{}
	short.Namespace, short.Name = s.tenant("a"), "short"
	_ = s.Delete(ctx, short, client.PropagationPolicy("Background"))
	_ = s.tryYAML(ctx, `apiVersion: pool.nvtopo.dev/v1alpha1
kind: ElasticJob
metadata: {name: short, namespace: POOL-a}
spec:
  pool: POOL
  maxRunSeconds: 5
  priority: 9
  template: {spec: {containers: [{name: main, image: example.com/train}]}}
  scaling: {minReplicas: 1, maxReplicas: 2, gpuPerReplica: 1}
`)
}

// switchProfile divides the pool's nodes into other slices at each call.
func (s *scenario) switchProfile() func(context.Context) {
	profiles, n := []string{"all-1g.10gb", "all-3g.40gb"}, 0
	return func(ctx context.Context) {
		n++
		pool := &poolv1alpha1.ComputePool{}
		pool.Name = s.name
		_ = s.Patch(ctx, pool, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"virtualization":{"profile":%q}}}`, profiles[n%2])))
	}
}

// foreign returns the contents of foreign objects.
func (s *scenario) foreign(t *testing.T) map[string]any {
	t.Helper()
	var (
		flavor kueue.ResourceFlavor
		cohort kueue.Cohort
		queue  kueue.LocalQueue
	)
	s.get(t, &flavor, "", s.name+"-foreign")
	s.get(t, &cohort, "", s.name+"-foreign")
	s.get(t, &queue, s.tenant("a"), "foreign")
	return map[string]any{
		"flavor": flavor.Spec, "cohort": cohort.Spec, "queue": queue.Spec, "labels": []map[string]string{flavor.Labels, cohort.Labels, queue.Labels},
		"UIDs": []types.UID{flavor.UID, cohort.UID, queue.UID},
	}
}
