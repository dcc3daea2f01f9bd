// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testkit"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// fromEnvironment returns a number of rounds; make test-long sets it higher.
func fromEnvironment(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// TestNoWrongEviction runs elastic jobs of three tenants that come and go at random, beside a tenant that
// tries to exceed its limit. No job with preemptible: false is evicted, and within a tenant a job is
// evicted only for one of a higher priority. A job waits only if there is no quota for it. Bills agree
// with the recorder's observations.
func TestNoWrongEviction(t *testing.T) { //nolint:tparallel // newScenario calls t.Parallel
	t.Parallel()
	for seed := range fromEnvironment(t, "NVTOPO_POOL_MIXES", 2) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { mix(t, uint64(seed)) })
	}
}

// mixed is one job of a mix.
type mixed struct {
	tenant, name string
	protected    bool
	deleted      bool
}

func mix(t *testing.T, seed uint64) {
	t.Helper()
	s := newScenario(t, dgx(4)...)
	tenants := []string{"a", "b", "c"}
	everybody := append([]string{hostileTenant}, tenants...)
	s.tenants(t, everybody...)
	s.accounts(t, everybody...)
	s.computePool(t, fmt.Sprintf(`
  poolType: gpu
  capacity: {total: 32, reserved: 4}
  quotas:
  - {tenant: POOL-a, limit: 20, guaranteed: 10, protectedLimit: 20}
  - {tenant: POOL-b, limit: 16, guaranteed: 8}
  - {tenant: POOL-c, limit: 12, protectedLimit: 12}
  - {tenant: POOL-%s, limit: %d}`, hostileTenant, hostileLimit))
	s.ready(t)
	stop := s.harass(t, s.attacker(t), seed)
	random := rand.New(rand.NewPCG(seed, 17))
	const jobs = 16
	all := make([]mixed, 0, jobs)
	for i := range jobs {
		job := mixed{tenant: tenants[random.IntN(len(tenants))], name: fmt.Sprintf("j%d", i), protected: random.IntN(2) == 0}
		least := 1 + random.IntN(3)
		s.elasticJob(t, job.tenant, job.name, fmt.Sprintf(`
  priority: %d
  preemptible: %t
  scaling: {minReplicas: %d, maxReplicas: %d, gpuPerReplica: %d}`,
			random.IntN(21)-10, !job.protected, least, least+random.IntN(4), 1<<random.IntN(3)))
		all = append(all, job)
		if random.IntN(4) == 0 {
			if gone := &all[random.IntN(len(all))]; !gone.deleted {
				gone.deleted = true
				s.remove(t, &poolv1alpha1.ElasticJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant(gone.tenant), Name: gone.name}})
			}
		}
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
	}
	stop()
	s.settled(t)
	s.noWrongEvictions(t)
	granted := 0
	testkit.Eventually(t, patience, "no job waits although there is quota, and those that must not be preempted are whole", func(ctx context.Context) (bool, string) {
		var wrong []string // on a busy machine Kueue may have made no change for long and still have work
		for _, waits := range s.idle() {
			wrong = append(wrong, "waits although there is quota: "+waits)
		}
		granted = 0
		for _, job := range all {
			if job.deleted || !job.protected {
				continue
			}
			runs, why := s.stillWhole(ctx, job.tenant, job.name)
			if why != "" {
				wrong = append(wrong, why)
			}
			if runs {
				granted++
			}
		}
		return len(wrong) == 0, strings.Join(wrong, "\n")
	})
	s.noWrongEvictions(t) // covers the changes since
	t.Logf("%d evictions; %d of the jobs that must not be preempted run", len(s.evictions()), granted)
	for _, tenant := range tenants {
		s.evict(t, tenant)
	}
	s.billed(t, true, everybody...)
}

// stillWhole reports whether a job that must not be preempted has quota. why describes a fault of its
// pods: too few or too many, or one that failed. An admitted job may wait for quota without end: Kueue
// does not evict jobs of its own tenant and of other tenants together for it
// (https://github.com/kubernetes-sigs/kueue/issues/14122).
func (s *scenario) stillWhole(ctx context.Context, tenant, name string) (runs bool, why string) {
	var base batchv1.Job
	if err := s.Get(ctx, client.ObjectKey{Namespace: s.tenant(tenant), Name: names.BaseJob(name)}, &base); err != nil {
		return false, err.Error()
	}
	if base.Annotations[kueue.AnnotationAdmissionGatedBy] != "" {
		return false, ""
	}
	w, err := s.workload(ctx, tenant, base.Name)
	if err != nil || w == nil {
		return false, fmt.Sprintf("%s/%s was let in, and has no Workload: %v", tenant, name, err)
	}
	want := 0
	runs = meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	if runs {
		want = int(*base.Spec.Parallelism)
	}
	var pods v1.PodList
	if err := s.List(ctx, &pods, client.InNamespace(s.tenant(tenant)), client.MatchingLabels{batchv1.JobNameLabel: base.Name}); err != nil {
		return false, err.Error()
	}
	if base.Status.Failed > 0 || len(pods.Items) != want {
		why = fmt.Sprintf("%s/%s was let in, quota %t (%s), and has %d pods, want %d; %d failed",
			tenant, name, runs, quotaMessage(w), len(pods.Items), want, base.Status.Failed)
	}
	return runs, why
}

func (s *scenario) noWrongEvictions(t *testing.T) {
	t.Helper()
	for _, wrong := range s.wrongEvictions() {
		testkit.Violation(t, "evicted: %s", wrong)
	}
}

// preemptor matches the preempting workload in Kueue's message.
var preemptor = regexp.MustCompile(`accommodate a workload \(UID: ([^,)]+).*due to prioritization in the ClusterQueue`)

// wrongEvictions returns the evictions of jobs that must not be preempted, and those within a queue for a
// job that is not of higher priority.
func (s *scenario) wrongEvictions() (out []string) {
	s.recorder.read(s.name, func(a *account) {
		for _, e := range a.evictions {
			if e.reason == kueue.EvictedByDeactivation || strings.HasPrefix(e.reason, kueue.EvictedByDeactivation) {
				continue // its ElasticJob was deleted, or has ended
			}
			if a.leaves(e.ofJob, e.version) {
				continue // its Job had been deleted, and Kueue had not noticed
			}
			if e.reason == kueue.EvictedByAdmissionCheck && !e.admitted {
				continue // there was quota for it, and no place: it had not started, and was evicted for no other job
			}
			line := fmt.Sprintf("%s/%s of priority %d: %s %s", e.tenant, e.job, e.priority, e.reason, e.detail)
			if e.protected {
				out = append(out, line)
				continue
			}
			if found := preemptor.FindStringSubmatch(e.detail); found != nil {
				if priority, known := a.priorities[types.UID(found[1])]; !known || priority <= e.priority {
					out = append(out, fmt.Sprintf("%s, which has priority %d (known: %t)", line, priority, known))
				}
			}
		}
	})
	return out
}
