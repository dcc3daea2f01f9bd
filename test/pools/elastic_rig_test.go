// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/elasticjob"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// pool creates a pool with tenants, and waits until it admits jobs.
func (s *scenario) pool(t *testing.T, spec string, tenants ...string) {
	t.Helper()
	s.tenants(t, tenants...)
	s.computePool(t, spec)
	s.ready(t)
}

// single creates an ElasticJob of one replica that never grows.
func (s *scenario) single(t *testing.T, tenant, name string, gpus, priority int, queue string) {
	t.Helper()
	more := ""
	if queue != "" {
		more = "\n  queue: " + queue
	}
	s.elasticJob(t, tenant, name, fmt.Sprintf(`
  priority: %d
  scaling: {minReplicas: 1, maxReplicas: 1, gpuPerReplica: %d}%s`, priority, gpus, more))
}

// phase waits until an ElasticJob is in a phase.
func (s *scenario) phase(t *testing.T, tenant, name string, phase poolv1alpha1.JobPhase) {
	t.Helper()
	s.waitElastic(t, tenant, name, "is "+string(phase), func(st *poolv1alpha1.ElasticJobStatus) bool { return st.Phase == phase })
}

// scaledTo waits until an ElasticJob has a number of replicas, all of them ready.
func (s *scenario) scaledTo(t *testing.T, tenant, name string, replicas int32) {
	t.Helper()
	s.waitElastic(t, tenant, name, fmt.Sprintf("has %d replicas that are ready", replicas), func(st *poolv1alpha1.ElasticJobStatus) bool {
		return st.Phase == poolv1alpha1.JobRunning && st.Replicas == replicas && st.ReadyReplicas == replicas
	})
}

// condition waits until a condition of an ElasticJob has a status and a reason, and returns its
// message.
func (s *scenario) condition(t *testing.T, tenant, name, kind string, status metav1.ConditionStatus, reason string) (message string) {
	t.Helper()
	s.waitElastic(t, tenant, name, fmt.Sprintf("has %s=%s %s", kind, status, reason), func(st *poolv1alpha1.ElasticJobStatus) bool {
		c := meta.FindStatusCondition(st.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason {
			return false
		}
		message = c.Message
		return true
	})
	return message
}

// noQuota waits until an ElasticJob reports that Kueue has looked for quota and found too little.
func (s *scenario) noQuota(t *testing.T, tenant, name string) {
	t.Helper()
	s.waitElastic(t, tenant, name, "waits for quota", func(st *poolv1alpha1.ElasticJobStatus) bool {
		c := meta.FindStatusCondition(st.Conditions, poolv1alpha1.ConditionAdmitted)
		return st.Phase == poolv1alpha1.JobQueued && c != nil && c.Reason == elasticjob.ReasonWaitingForQuota &&
			strings.Contains(c.Message, "insufficient")
	})
}

// succeed lets the base of an ElasticJob end, once all of it runs.
func (s *scenario) succeed(t *testing.T, tenant, name string) {
	t.Helper()
	replicas := int(s.elastic(t, tenant, name).Spec.Scaling.MinReplicas)
	for _, pod := range s.running(t, tenant, names.BaseJob(name), replicas) {
		s.end(t, pod)
	}
}

// change patches the spec of an ElasticJob.
func (s *scenario) change(t *testing.T, tenant, name, patch string) {
	t.Helper()
	job := &poolv1alpha1.ElasticJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant(tenant), Name: name}}
	if err := s.Patch(t.Context(), job, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":%s}`, patch))); err != nil {
		t.Fatal(err)
	}
}

// extras returns the names of the extra Jobs of an ElasticJob, sorted.
func (s *scenario) extras(t *testing.T, tenant, name string) (out []string) {
	t.Helper()
	var list batchv1.JobList
	labels := client.MatchingLabels{names.LabelElasticJob: name, names.LabelRole: names.RoleExtra}
	if err := s.List(t.Context(), &list, client.InNamespace(s.tenant(tenant)), labels); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	slices.Sort(out)
	return out
}

// nextSecond waits until later events have another time than earlier ones: the API has whole seconds, and
// Kueue does not order events of one second.
func nextSecond(t *testing.T) {
	t.Helper()
	from := time.Now()
	testkit.Eventually(t, patience, "two seconds pass", func(context.Context) (bool, string) {
		return time.Since(from) > 2*time.Second, ""
	})
}

// phases records every phase of an ElasticJob, until the test ends.
type phases struct {
	mu   sync.Mutex
	seen []poolv1alpha1.JobPhase // each differs from the one before; guarded by mu
}

func (p *phases) all() []poolv1alpha1.JobPhase {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

func (s *scenario) watchPhases(t *testing.T, tenant, name string) *phases {
	t.Helper()
	watcher, err := client.NewWithWatch(s.RESTConfig(), client.Options{Scheme: kinds()})
	if err != nil {
		t.Fatal(err)
	}
	w, err := watcher.Watch(t.Context(), &poolv1alpha1.ElasticJobList{}, client.InNamespace(s.tenant(tenant)), client.MatchingFields{"metadata.name": name})
	if err != nil {
		t.Fatal(err)
	}
	p := &phases{}
	var done sync.WaitGroup
	done.Go(func() {
		for event := range w.ResultChan() {
			job, ok := event.Object.(*poolv1alpha1.ElasticJob)
			if !ok || job.Status.Phase == "" {
				continue
			}
			p.mu.Lock()
			if len(p.seen) == 0 || p.seen[len(p.seen)-1] != job.Status.Phase {
				p.seen = append(p.seen, job.Status.Phase)
			}
			p.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		w.Stop()
		done.Wait()
	})
	return p
}

// rawConditions returns the conditions of an ElasticJob, even if its template is invalid.
func (s *scenario) rawConditions(ctx context.Context, tenant, name string) ([]metav1.Condition, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(poolv1alpha1.SchemeGroupVersion.WithKind(poolv1alpha1.ElasticJobKind))
	if err := s.Get(ctx, client.ObjectKey{Namespace: s.tenant(tenant), Name: name}, u); err != nil {
		return nil, fmt.Errorf("read ElasticJob %s: %w", name, err)
	}
	fields, _, err := unstructured.NestedMap(u.Object, "status")
	if err != nil {
		return nil, fmt.Errorf("read ElasticJob %s: %w", name, err)
	}
	var status poolv1alpha1.ElasticJobStatus
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &status); err != nil {
		return nil, fmt.Errorf("read ElasticJob %s: %w", name, err)
	}
	return status.Conditions, nil
}
