// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
)

// TestKueueRetryQuota checks the behaviour of Kueue that docs/decisions/0025-placement-check.md
// describes: it keeps the quota of a Retry with a time until then, and otherwise takes it at once. If
// this fails with another Kueue, the workaround in pkg/pools/placementcheck may go.
func TestKueueRetryQuota(t *testing.T) {
	const pause = 8 * time.Second
	s := newScenario(t, dgx(1)...)
	kind := metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: kueue.AdmissionCheckKind}
	byHand := &kueue.AdmissionCheck{
		TypeMeta: kind, ObjectMeta: metav1.ObjectMeta{Name: s.name + "-by-hand"}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/by-hand"},
	}
	t.Cleanup(func() {
		if err := s.Delete(context.Background(), byHand); err != nil {
			t.Error(err)
		}
	})
	if err := s.Create(t.Context(), byHand); err != nil {
		t.Fatal(err)
	}
	// Kueue writes to its status as well, so this is a patch.
	active := &kueue.AdmissionCheck{
		TypeMeta: kind, ObjectMeta: metav1.ObjectMeta{Name: byHand.Name},
		Status: kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{{
			Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", LastTransitionTime: metav1.Now(), ObservedGeneration: byHand.Generation,
		}}},
	}
	if err := s.Status().Patch(t.Context(), active, client.Apply, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	s.tenants(t, "a")
	s.yaml(t, strings.NewReplacer("QUOTA", "8", "nvtopo-placement", byHand.Name).Replace(checked))
	s.job(t, "a", "train", work{gpus: 8})
	// A lower bound, which a slow machine only exceeds. Times have whole seconds.
	if withTime := s.retry(t, byHand.Name, int32(pause/time.Second)); withTime < pause-time.Second {
		t.Errorf("a Retry with a time of %s kept the quota for %s", pause, withTime)
	}
	s.retry(t, byHand.Name, 0) // the quota goes without any other action
}

// retry waits until job train has quota, answers Retry with a number of seconds, and returns the time
// until the quota is gone.
func (s *scenario) retry(t *testing.T, check string, seconds int32) time.Duration {
	t.Helper()
	var w *kueue.Workload
	reserved := func(ctx context.Context) (bool, string) {
		var err error
		if w, err = s.workload(ctx, "a", "train"); err != nil || w == nil {
			return false, fmt.Sprint(w, err)
		}
		evicted := meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadEvicted)
		return meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved) && !evicted && len(w.Status.AdmissionChecks) == 1, fmt.Sprint(w.Status)
	}
	s.waitFor(t, "job train has quota", reserved)
	patch := &kueue.Workload{
		TypeMeta:   metav1.TypeMeta{APIVersion: kueue.SchemeGroupVersion.String(), Kind: kueue.WorkloadKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name},
		Status: kueue.WorkloadStatus{AdmissionChecks: []kueue.AdmissionCheckState{{
			Name: check, State: kueue.CheckRetry, LastTransitionTime: metav1.Now(), Message: "by hand", RequeueAfterSeconds: &seconds,
		}}},
	}
	before := len(s.evictions()) // without a time Kueue may evict as soon as it sees the answer
	began := time.Now()
	if err := s.Status().Patch(t.Context(), patch, client.Apply, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
	s.waitFor(t, "the quota is gone", func(context.Context) (bool, string) {
		return len(s.evictions()) > before, fmt.Sprint(s.evictions())
	})
	took := time.Since(began)
	t.Logf("Retry after %d s: evicted after %s", seconds, took.Round(100*time.Millisecond))
	return took
}
