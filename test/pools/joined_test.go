// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// TestLateTenant checks that a pod that ran before its namespace became a tenant's holds its devices for
// the tenant from then on.
func TestLateTenant(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.namespace(t, "a", nil)
	s.computePool(t, oneNodePool)
	s.ready(t)
	pod := s.foreignPod(t, "a", "early", 4)
	var ran time.Time
	s.waitFor(t, "the pod runs, and the API server's clock has gone on", func(ctx context.Context) (bool, string) {
		if err := s.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil || pod.Status.Phase != v1.PodRunning {
			return false, fmt.Sprint(err, pod.Status)
		}
		ran = bound(t, pod)
		later := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: "later-"}}
		err := s.Create(ctx, later)
		return err == nil && later.CreationTimestamp.After(ran.Add(2*time.Second)), fmt.Sprint(ran, later.CreationTimestamp, err)
	})
	before := time.Now().Truncate(time.Second)
	label := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, poolv1alpha1.LabelTenant, s.tenant("a"))
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.tenant("a")}}
	if err := s.Patch(t.Context(), namespace, client.RawPatch(types.MergePatchType, label)); err != nil {
		t.Fatal(err)
	}
	records := s.waitSessions(t, "a", "the pod has a session", func(r []poolv1alpha1.UsageRecord) bool { return len(r) == 1 })
	if start := records[0].Spec.Start.Time; start.Before(before) || start.After(time.Now()) {
		t.Errorf("the session began at %v; the pod was bound at %v, its namespace became a tenant's after %v", start, ran, before)
	}
	s.end(t, pod)
	s.waitSessions(t, "a", "the session has ended", allEnded(1))
}
