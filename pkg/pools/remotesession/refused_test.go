// SPDX-License-Identifier: Apache-2.0

package remotesession

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// TestRefusedSession: the refusal of a session's object is in its status and one event, and the
// write is retried; once it succeeds, the session waits for quota.
func TestRefusedSession(t *testing.T) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	session := &v1alpha1.RemoteGPUSession{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "notebook", UID: "u"},
		Spec:       v1alpha1.RemoteGPUSessionSpec{Pool: "training", GPUs: 1, TTLSeconds: 3600, Operations: []v1alpha1.RemoteOperation{v1alpha1.ModelForward}},
	}
	refused := true
	api := fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(session).WithObjects(session,
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: map[string]string{v1alpha1.LabelTenant: "a"}}},
		&v1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: "training"}, Spec: v1alpha1.ComputePoolSpec{PoolType: v1alpha1.PoolGPU}},
	).WithInterceptorFuncs(interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*batchv1.Job); ok && refused {
			return apierrors.NewForbidden(batchv1.Resource("jobs"), o.GetName(), errors.New("exceeded quota"))
		}
		return c.Create(ctx, o, opts...)
	}}).Build()
	events := record.NewFakeRecorder(10)
	r := &reconciler{Client: api, api: api, events: events, clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)), image: "gate"}
	look := func(wantReason string) ctrl.Result {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(session)})
		if err != nil {
			t.Fatal(err)
		}
		now := &v1alpha1.RemoteGPUSession{}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(session), now); err != nil {
			t.Fatal(err)
		}
		if c := apimeta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != wantReason {
			t.Errorf("condition %+v, want reason %s", c, wantReason)
		}
		return result
	}
	for range 2 {
		if got := look(refusal.Reason); got.RequeueAfter != refusal.Again {
			t.Errorf("looked at again after %v, want %v", got.RequeueAfter, refusal.Again)
		}
	}
	warned := 0
	for len(events.Events) > 0 {
		e := <-events.Events
		if strings.HasPrefix(e, "Warning Refused the API server refuses Job team-a/"+Name("notebook")) && strings.HasSuffix(e, "exceeded quota") {
			warned++
		}
	}
	if warned != 1 {
		t.Errorf("%d events say that the Job was refused, want 1", warned)
	}
	refused = false
	look(ReasonWaitingForQuota)
}
