// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/elasticjob"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// ill waits until a condition of an ElasticJob reports a fault. The job is read unstructured: its
// template may be invalid.
func (s *scenario) ill(t *testing.T, tenant, name, kind, reason, says string) {
	t.Helper()
	s.waitFor(t, fmt.Sprintf("%s has %s %s", name, kind, reason), func(ctx context.Context) (bool, string) {
		conditions, err := s.rawConditions(ctx, tenant, name)
		if err != nil {
			return false, err.Error()
		}
		i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind })
		if i < 0 {
			return false, fmt.Sprint(conditions)
		}
		c := conditions[i]
		return c.Status == metav1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, says), fmt.Sprintf("%+v", c)
	})
}

// TestImpossibleJob checks that the fault of a job that cannot be created is in its status, with field
// and object, and that other jobs run.
func TestImpossibleJob(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.pool(t, fmt.Sprintf(onePool, 8), "a")
	s.tenants(t, "c")
	const job = `apiVersion: pool.nvtopo.dev/v1alpha1
kind: ElasticJob
metadata: {name: %s, namespace: POOL-%s}
spec:
  pool: %s
  scaling: {minReplicas: 1, maxReplicas: 1, gpuPerReplica: 2}
  template: %s
`
	const good = `{spec: {containers: [{name: main, image: example.com/train}]}}`
	tests := []struct{ name, tenant, pool, template, kind, reason, says string }{
		{"no-containers", "a", "POOL", `{spec: {containers: 3}}`, poolv1alpha1.ConditionTemplateValid, elasticjob.ReasonInvalid, "cannot unmarshal number"},
		{"unknown-field", "a", "POOL", `{spec: {containers: [{name: main, imagge: x}]}}`, poolv1alpha1.ConditionTemplateValid, elasticjob.ReasonInvalid, `unknown field "spec.containers[0].imagge"`},
		{"other-devices", "a", "POOL", `{spec: {containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 4}}}]}}`, poolv1alpha1.ConditionTemplateValid, elasticjob.ReasonInvalid, "gpuPerReplica is 2"},
		{"no-image", "a", "POOL", `{spec: {containers: [{name: main}]}}`, poolv1alpha1.ConditionTemplateValid, elasticjob.ReasonInvalid, "image: Required value"},
		{"no-pool", "a", "POOL-other", good, poolv1alpha1.ConditionAdmitted, elasticjob.ReasonPoolNotFound, "there is no ComputePool"},
		{"no-quota", "c", "POOL", good, poolv1alpha1.ConditionAdmitted, elasticjob.ReasonQuotaNotConfigured, "gives tenant POOL-c no quota"},
	}
	for _, tc := range tests {
		s.yaml(t, fmt.Sprintf(job, tc.name, tc.tenant, tc.pool, tc.template))
	}
	for _, tc := range tests {
		s.ill(t, tc.tenant, tc.name, tc.kind, tc.reason, strings.ReplaceAll(tc.says, "POOL", s.name))
	}
	s.single(t, "a", "other-queue", 2, 0, "urgent")
	s.ill(t, "a", "other-queue", poolv1alpha1.ConditionAdmitted, elasticjob.ReasonQueueNotFound, `"urgent": ComputePool `+s.name+" has no queues; leave spec.queue out")
	s.single(t, "a", "good", 2, 0, "")
	s.phase(t, "a", "good", poolv1alpha1.JobRunning)
	var jobs batchv1.JobList
	if err := s.List(t.Context(), &jobs, client.InNamespace(s.tenant("a"))); err != nil {
		t.Fatal(err)
	}
	if len(jobs.Items) != 1 {
		t.Errorf("%d Jobs, want that of the good one alone", len(jobs.Items))
	}
}

// TestForeignJob checks that another user's Job with the name stays unchanged, and is reported.
func TestForeignJob(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.pool(t, fmt.Sprintf(onePool, 8), "a")
	s.job(t, "a", names.BaseJob("train"), work{gpus: 1})
	pods := s.running(t, "a", names.BaseJob("train"), 1)
	var before, after batchv1.Job
	s.get(t, &before, s.tenant("a"), names.BaseJob("train"))

	s.elasticJob(t, "a", "train", `
  scaling: {minReplicas: 2, maxReplicas: 3, gpuPerReplica: 1}`)
	s.ill(t, "a", "train", poolv1alpha1.ConditionAdmitted, elasticjob.ReasonNameTaken, "Job "+s.tenant("a")+"/train-base")
	s.settled(t)
	s.get(t, &after, s.tenant("a"), names.BaseJob("train"))
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" || before.UID != after.UID || len(after.OwnerReferences) > 0 {
		t.Errorf("owners %v (-before +after)\n%s", after.OwnerReferences, diff)
	}
	if diff := cmp.Diff(uids(pods), uids(s.pods(t, "a", names.BaseJob("train")))); diff != "" {
		t.Errorf("pods (-before +after)\n%s", diff)
	}
}

// TestEvictedExtraQuota checks that an extra that the scheduler evicts for another pod returns its quota,
// and comes back when there is room; the base is not affected.
func TestEvictedExtraQuota(t *testing.T) {
	s := newScenario(t, dgx(3)...)
	s.pool(t, `
  poolType: gpu
  capacity: {total: 24, reserved: 8}
  quotas: [{tenant: POOL-a}]`, "a")
	s.namespace(t, "system", nil)
	s.elasticJob(t, "a", "train", `
  scaling: {minReplicas: 1, maxReplicas: 2, gpuPerReplica: 8}`)
	s.scaledTo(t, "a", "train", 2)
	base := uids(s.pods(t, "a", names.BaseJob("train")))

	// Two pods outside of tenants' namespaces take the reserved devices, and the place of the extra.
	for i := range 2 {
		pod := gpuPod(s.tenant("system"), fmt.Sprintf("free-%d", i), 8).NodeSelector(map[string]string{poolv1alpha1.LabelPool: s.name}).Obj()
		if err := s.Create(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	s.scaledTo(t, "a", "train", 1)
	s.waitBound(t, map[string]int64{"a": 8})
	s.waitFor(t, "the quota of the extra is free", func(context.Context) (bool, string) {
		c := s.counts("a")
		return c.admitted == 1, fmt.Sprintf("%+v", c)
	})
	for i := range 2 {
		s.remove(t, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("free-%d", i), Namespace: s.tenant("system")}})
	}
	s.scaledTo(t, "a", "train", 2)
	if diff := cmp.Diff(base, uids(s.pods(t, "a", names.BaseJob("train")))); diff != "" {
		t.Errorf("the pods of the base are others than before (-before +after)\n%s", diff)
	}
}

// TestDeletedJob checks that a deleted job leaves nothing behind, in any state.
func TestDeletedJob(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.pool(t, fmt.Sprintf(onePool, 8), "a")
	s.elasticJob(t, "a", "train", `
  scaling: {minReplicas: 2, maxReplicas: 6, gpuPerReplica: 2}`)
	s.scaledTo(t, "a", "train", 4)
	s.remove(t, s.elastic(t, "a", "train"))
	s.waitFor(t, "nothing is left", func(ctx context.Context) (bool, string) {
		left := map[string]int{}
		for name, list := range map[string]client.ObjectList{"Jobs": &batchv1.JobList{}, "pods": &v1.PodList{}, "Services": &v1.ServiceList{}} {
			if err := s.List(ctx, list, client.InNamespace(s.tenant("a")), client.MatchingLabels{names.LabelElasticJob: "train"}); err != nil {
				return false, err.Error()
			}
			if n := meta.LenList(list); n > 0 {
				left[name] = n
			}
		}
		return len(left) == 0, fmt.Sprint(left)
	})
	if c := s.counts("a"); c.admitted > 0 {
		t.Errorf("somebody has quota: %+v", c)
	}
}

// TestRefusedJob checks that a refusal by the API server is in a job's status, instead of a wait for
// quota, and that the job starts once it is allowed.
func TestRefusedJob(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.pool(t, fmt.Sprintf(onePool, 8), "a")
	s.yaml(t, `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: POOL-no-jobs}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {pool.nvtopo.dev/tenant: POOL-a}}
    resourceRules: [{apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}]
  validations: [{expression: "false", message: no jobs today, reason: Forbidden}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: POOL-no-jobs}
spec: {policyName: POOL-no-jobs, validationActions: [Deny]}
`)
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: s.name + "-no-jobs"}}
	s.waitFor(t, "jobs are refused", func(ctx context.Context) (bool, string) {
		err := s.Create(ctx, s.jobObject("a", "none", &work{gpus: 1}), client.DryRunAll)
		return apierrors.IsForbidden(err), fmt.Sprint(err)
	})
	s.elasticJob(t, "a", "train", `
  scaling: {minReplicas: 1, maxReplicas: 1, gpuPerReplica: 2}`)
	s.ill(t, "a", "train", poolv1alpha1.ConditionAdmitted, refusal.Reason, "the API server refuses Job "+s.tenant("a")+"/train-base: ")
	s.events(t, "a", "train", refusal.Reason)
	s.remove(t, binding)
	s.phase(t, "a", "train", poolv1alpha1.JobRunning)
	s.remove(t, &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: binding.ObjectMeta})
}
