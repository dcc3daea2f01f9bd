// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	proxies "github.com/nvtopo/nvtopo/internal/lab/devcluster/faults"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// oneNodePool is a pool of one node for tenant a.
const oneNodePool = `
  poolType: gpu
  capacity: {total: 8}
  quotas: [{tenant: POOL-a, limit: 8, guaranteed: 8}]`

// keptJob creates a Job whose pods are kept until their end is recorded.
func (s *scenario) keptJob(t *testing.T, tenant, name string, w work) *batchv1.Job {
	t.Helper()
	if err := s.priorityClass(t.Context(), w.priority); err != nil {
		t.Fatal(err)
	}
	job := s.jobObject(tenant, name, &w)
	job.Spec.Template.Finalizers = []string{names.FinalizerMetering}
	if err := s.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	return job
}

// sessions returns the records of a tenant in all namespaces, by their start and end.
func (e *testEnv) sessions(ctx context.Context, tenant string) ([]poolv1alpha1.UsageRecord, error) {
	var list poolv1alpha1.UsageRecordList
	if err := e.List(ctx, &list, client.MatchingFields{"spec.tenant": tenant}); err != nil {
		return nil, fmt.Errorf("list the records of %s: %w", tenant, err)
	}
	slices.SortFunc(list.Items, func(a, b poolv1alpha1.UsageRecord) int {
		if c := a.Spec.Start.Compare(b.Spec.Start.Time); c != 0 || a.Status.End == nil || b.Status.End == nil {
			return c
		}
		return a.Status.End.Compare(b.Status.End.Time) // times have whole seconds, and simulated pods are quick
	})
	return list.Items, nil
}

// waitSessions waits until the records of a tenant fulfil done.
func (s *scenario) waitSessions(t *testing.T, tenant, what string, done func([]poolv1alpha1.UsageRecord) bool) (records []poolv1alpha1.UsageRecord) {
	t.Helper()
	s.waitFor(t, what, func(ctx context.Context) (bool, string) {
		var err error
		if records, err = s.sessions(ctx, s.tenant(tenant)); err != nil {
			return false, err.Error()
		}
		return done(records), tellSessions(records)
	})
	return records
}

func tellSessions(records []poolv1alpha1.UsageRecord) string {
	var b strings.Builder
	for i := range records {
		r := &records[i]
		fmt.Fprintf(&b, "\n%s/%s of %s: %s of %s, %s to %v, estimated %v, deleted %v, cost %s", r.Namespace, r.Name, r.Spec.Pod, r.Spec.Quantity, r.Spec.Resource,
			r.Spec.Start.UTC().Format(time.TimeOnly), r.Status.End, r.Status.Estimated, r.DeletionTimestamp, r.Status.Cost)
	}
	return b.String()
}

func allEnded(n int) func([]poolv1alpha1.UsageRecord) bool {
	return func(records []poolv1alpha1.UsageRecord) bool {
		return len(records) == n && !slices.ContainsFunc(records, func(r poolv1alpha1.UsageRecord) bool { return r.Status.End == nil })
	}
}

// bound returns when a pod was bound, from its status.
func bound(t *testing.T, pod *v1.Pod) time.Time {
	t.Helper()
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled {
			return c.LastTransitionTime.Time
		}
	}
	t.Fatalf("pod %s was never bound", pod.Name)
	return time.Time{}
}

// TestSessionSpan checks that a pod's session lasts from its binding to the end of its container, and
// that the pod is released once that is recorded.
func TestSessionSpan(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.computePool(t, oneNodePool)
	s.keptJob(t, "a", "train", work{pods: 2, gpus: 4})
	pods := s.running(t, "a", "train", 2)
	open := s.waitSessions(t, "a", "both pods have a session", func(r []poolv1alpha1.UsageRecord) bool { return len(r) == 2 })
	for i := range open {
		r := &open[i]
		k := slices.IndexFunc(pods, func(p *v1.Pod) bool { return string(p.UID) == r.Name })
		if k < 0 {
			t.Fatalf("no pod has the UID %s", r.Name)
		}
		want := poolv1alpha1.UsageRecordSpec{
			Tenant: s.tenant("a"), Pool: s.name, Pod: pods[k].Name, PodUID: pods[k].UID, Node: pods[k].Spec.NodeName,
			Namespace: s.tenant("a"), Queue: s.name, Owner: "Job/train", Resource: "nvidia.com/gpu", Model: r.Spec.Model, Quantity: "4", Start: r.Spec.Start,
		}
		if r.Spec != want || !r.Spec.Start.Time.Equal(bound(t, pods[k])) || !strings.Contains(r.Spec.Model, "A100") {
			t.Errorf("record %+v, want %+v from %v", r.Spec, want, bound(t, pods[k]))
		}
		if r.Status.End != nil {
			t.Errorf("the session of %s has ended while it runs", r.Spec.Pod)
		}
	}
	for _, pod := range pods {
		s.end(t, pod)
	}
	ended := s.waitSessions(t, "a", "both sessions have ended", allEnded(2))
	for _, pod := range pods {
		s.waitFor(t, "the pod is let go", func(ctx context.Context) (bool, string) {
			var got v1.Pod
			if err := s.Get(ctx, client.ObjectKeyFromObject(pod), &got); err != nil {
				return false, err.Error()
			}
			return !slices.Contains(got.Finalizers, names.FinalizerMetering), fmt.Sprint(got.Finalizers)
		})
		var got v1.Pod
		s.get(t, &got, pod.Namespace, pod.Name)
		k := slices.IndexFunc(ended, func(r poolv1alpha1.UsageRecord) bool { return r.Name == string(pod.UID) })
		finished := got.Status.ContainerStatuses[0].State.Terminated.FinishedAt
		if r := ended[k]; !r.Status.End.Equal(&finished) || r.Status.Estimated {
			t.Errorf("the session of %s ends at %v, estimated %v; its container ended at %v", pod.Name, r.Status.End, r.Status.Estimated, finished)
		}
	}
}

// TestEvictedJobSessions is scenario 47: a job that is evicted and comes back has two sessions that do
// not overlap, and pays nothing for the time in the queue. Its pods have no finalizer.
func TestEvictedJobSessions(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.computePool(t, oneNodePool)
	s.job(t, "a", "low", work{gpus: 8, priority: 1})
	first := s.running(t, "a", "low", 1)[0]
	s.job(t, "a", "high", work{gpus: 8, priority: 9})
	high := s.running(t, "a", "high", 1)[0]
	s.end(t, high)
	second := s.running(t, "a", "low", 1)[0]
	if first.UID == second.UID {
		t.Fatal("the low job was not evicted")
	}
	s.end(t, second)
	records := s.waitSessions(t, "a", "three sessions have ended", allEnded(3))
	var held []string
	for i := range records {
		held = append(held, records[i].Spec.Pod)
		if i > 0 && records[i].Spec.Start.Time.Before(records[i-1].Status.End.Time) {
			testkit.Violation(t, "sessions on the same eight GPUs overlap:%s", tellSessions(records))
		}
		if records[i].Status.Estimated {
			t.Errorf("an end that was seen is estimated:%s", tellSessions(records))
		}
	}
	// Two that begin and end within one second have no defined order.
	slices.Sort(held)
	if want := slices.Sorted(slices.Values([]string{first.Name, high.Name, second.Name})); !slices.Equal(held, want) {
		t.Errorf("sessions are of %v, want %v", held, want)
	}
}

// TestDeletedPodEnd checks that the session of a pod without a finalizer that is deleted while it runs
// ends when the deletion is observed.
func TestDeletedPodEnd(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.computePool(t, oneNodePool)
	job := s.job(t, "a", "train", work{gpus: 8})
	pod := s.running(t, "a", "train", 1)[0]
	s.waitSessions(t, "a", "it has a session", func(r []poolv1alpha1.UsageRecord) bool { return len(r) == 1 })
	before := time.Now()
	s.remove(t, job)
	if err := s.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	r := s.waitSessions(t, "a", "the session has ended", allEnded(1))[0]
	// The order of three moments, independent of durations: before, the end, and now.
	if at := r.Status.End.Time; at.Before(before.Truncate(time.Second)) || at.After(time.Now()) || r.Status.Estimated {
		t.Errorf("it ended at %v, estimated %v; it was deleted after %v", at, r.Status.Estimated, before)
	}
}

// TestNamespaceRecords checks that the records of a deleted namespace are first copied elsewhere, once.
func TestNamespaceRecords(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.computePool(t, oneNodePool)
	s.keptJob(t, "a", "train", work{pods: 2, gpus: 4})
	pods := s.running(t, "a", "train", 2)
	s.waitSessions(t, "a", "both pods have a session", func(r []poolv1alpha1.UsageRecord) bool { return len(r) == 2 })
	s.end(t, pods[0]) // one session has ended when the namespace is deleted, the other has not
	s.waitSessions(t, "a", "a session has ended", func(r []poolv1alpha1.UsageRecord) bool {
		return slices.ContainsFunc(r, func(r poolv1alpha1.UsageRecord) bool { return r.Status.End != nil })
	})
	var namespace v1.Namespace
	s.get(t, &namespace, "", s.tenant("a"))
	s.remove(t, &namespace)
	s.waitFor(t, "the namespace is gone", func(ctx context.Context) (bool, string) {
		err := s.Get(ctx, client.ObjectKeyFromObject(&namespace), &namespace)
		return apierrors.IsNotFound(err), fmt.Sprint(err, namespace.Status)
	})
	records, err := s.sessions(t.Context(), s.tenant("a"))
	if err != nil {
		t.Fatal(err)
	}
	var uids []types.UID
	for i := range records {
		uids = append(uids, records[i].Spec.PodUID)
		if records[i].Namespace != release.Namespace || records[i].Status.End == nil {
			t.Errorf("a record is not kept, or has no end:%s", tellSessions(records[i:i+1]))
		}
	}
	if want := []types.UID{pods[0].UID, pods[1].UID}; len(uids) != 2 || !slices.Contains(uids, want[0]) || !slices.Contains(uids, want[1]) {
		t.Errorf("records of %v, want %v", uids, want)
	}
}

// TestUsageMetric is scenario 53: the gauge reports the devices that a tenant holds, and is gone when it
// holds none.
func TestUsageMetric(t *testing.T) {
	s := newScenario(t, dgx(4)...)
	s.tenants(t, "a")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 32}
  quotas: [{tenant: POOL-a, limit: 32, guaranteed: 16}]`)
	want := fmt.Sprintf(`compute_pool_usage{pool=%q,resource_type="nvidia.com/gpu",tenant_id=%q} 32`, s.name, s.tenant("a"))
	s.job(t, "a", "train", work{pods: 4, gpus: 8})
	pods := s.running(t, "a", "train", 4)
	s.waitFor(t, want, func(ctx context.Context) (bool, string) {
		text := s.metrics(ctx, "compute_pool_usage", s.name)
		return strings.TrimSpace(text) == want, text
	})
	for _, pod := range pods {
		s.end(t, pod)
	}
	s.waitFor(t, "the gauge is gone", func(ctx context.Context) (bool, string) {
		text := s.metrics(ctx, "compute_pool_usage", s.name)
		return text == "", text
	})
}

// metrics returns the lines of a metric of the pool controller that contain about.
func (e *testEnv) metrics(ctx context.Context, metric, about string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.pools.MetricsURL(), http.NoBody)
	if err != nil {
		return err.Error()
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Sprint(answer.Status, err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, metric+"{") && strings.Contains(line, fmt.Sprintf("%q", about)) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// TestLateStandby checks that a controller that becomes leader before it has received pods ends none of
// their sessions.
func TestLateStandby(t *testing.T) {
	const late = 30 * time.Second // longer than a leader's Lease is valid
	l := newTestEnv(t)
	proxy, err := l.StartProxy(t.Context(), 33)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	proxy.DelayWatches(late, "pods")
	_, err = l.StartPoolController(t.Context(), devcluster.PoolControllerOptions{
		Binary: testkit.Program(t, "nvtopo-pool-controller"), ServiceAccount: controllerAccount, Log: l.refusals, Server: proxy.URL(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := newScenarioOn(t, l, dgx(1)...)
	s.waitFor(t, "the standby has a list of pods", func(context.Context) (bool, string) {
		i := slices.IndexFunc(proxy.Watches(), func(w proxies.Watch) bool { return w.Resource == "pods" && !w.Delivered.IsZero() })
		return i >= 0, fmt.Sprintf("%+v", proxy.Watches())
	})
	s.tenants(t, "a")
	s.computePool(t, oneNodePool)
	s.ready(t)
	s.job(t, "a", "train", work{pods: 2, gpus: 4})
	pods := s.running(t, "a", "train", 2)
	s.waitSessions(t, "a", "both pods have a session", func(r []poolv1alpha1.UsageRecord) bool { return len(r) == 2 })
	if err := l.pools.Kill(); err != nil {
		t.Fatal(err)
	}
	var before, lease coordinationv1.Lease // that all pods were seen, which is not written while a session has none
	s.get(t, &before, release.Namespace, "nvtopo-pool-metering")
	s.waitFor(t, "the standby leads, and knows the pod of each session", func(ctx context.Context) (bool, string) {
		err := s.Get(ctx, client.ObjectKeyFromObject(&before), &lease)
		return err == nil && lease.Spec.RenewTime.After(before.Spec.RenewTime.Time), fmt.Sprintf("%v, %+v", err, lease.Spec)
	})
	s.waitSessions(t, "a", "both sessions go on", func(r []poolv1alpha1.UsageRecord) bool {
		return len(r) == 2 && r[0].Status.End == nil && r[1].Status.End == nil
	})
	for _, pod := range pods {
		s.end(t, pod)
	}
	for _, r := range s.waitSessions(t, "a", "both sessions have ended", allEnded(2)) {
		if r.Status.Estimated {
			t.Errorf("an end that was seen is estimated:%s", tellSessions([]poolv1alpha1.UsageRecord{r}))
		}
	}
}
