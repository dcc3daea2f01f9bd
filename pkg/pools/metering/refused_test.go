// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// TestRefusedRecord: a refusal of a write of a pod's record is an event on the pod, and the write is
// retried each minute. Until it succeeds the pod keeps its finalizer, so that nothing is lost.
func TestRefusedRecord(t *testing.T) {
	forbid := func(o client.Object) error {
		return apierrors.NewForbidden(v1.Resource("things"), o.GetName(), errors.New("a policy says no"))
	}
	for name, tc := range map[string]struct {
		refuse interceptor.Funcs
		pod    *v1.Pod
		record *v1alpha1.UsageRecord // the existing one; nil if there is none
		want   map[string]string     // record: minutes of its start and end, once nothing is refused
	}{
		"a record": {
			refuse: interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
				return forbid(o)
			}},
			pod: aPod(finished(v1.PodSucceeded, 40), deleted(50, 0)), want: map[string]string{"u1": "10-40"},
		},
		"the end of one": {
			refuse: interceptor.Funcs{SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
				return forbid(o)
			}},
			pod: aPod(finished(v1.PodSucceeded, 40), deleted(50, 0)), record: new(aRecord(10)), want: map[string]string{"u1": "10-40"},
		},
		"the pod's release": {
			refuse: interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
				return forbid(o)
			}},
			pod: aPod(finished(v1.PodSucceeded, 40), deleted(50, 0)), record: new(ended(aRecord(10), 40)), want: map[string]string{"u1": "10-40"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{
				&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: map[string]string{v1alpha1.LabelTenant: "a"}}},
				&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{v1alpha1.LabelPool: "training"}}}, aPool(), tc.pod,
			}
			if tc.record != nil {
				objects = append(objects, tc.record)
			}
			api := fakeAPI(t, objects...)
			events := record.NewFakeRecorder(10)
			r := &reconciler{
				client: interceptor.NewClient(api, tc.refuse), reader: api, namespace: "nvtopo-system", events: events,
				clock: clocktesting.NewFakePassiveClock(minute(100)), memory: newMemory(), heartbeat: &heartbeat{read: true},
			}
			result, err := r.Reconcile(t.Context(), "u1")
			if err != nil || result.RequeueAfter != refusal.Again {
				t.Fatalf("looked at again after %v, %v; want after %v", result.RequeueAfter, err, refusal.Again)
			}
			if len(events.Events) != 1 {
				t.Fatalf("%d events, want 1", len(events.Events))
			}
			if e := <-events.Events; !strings.HasPrefix(e, "Warning Refused the API server refuses what pod team-a/trainer used: ") || !strings.HasSuffix(e, "a policy says no") {
				t.Errorf("the event is %q", e)
			}
			if !podKeeps(t, api, names.FinalizerMetering) {
				t.Error("the pod has gone, and its end is not written")
			}
			r.client = api
			if result, err := r.Reconcile(t.Context(), "u1"); err != nil || result.RequeueAfter != 0 || len(events.Events) > 0 {
				t.Errorf("once it is let: again after %v, %v, and %d events", result.RequeueAfter, err, len(events.Events))
			}
			if diff := cmp.Diff(tc.want, spansIn(t, api)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if podKeeps(t, api, names.FinalizerMetering) {
				t.Error("the pod is kept though all is written")
			}
		})
	}
}

// podKeeps reports whether the pod exists and has a finalizer.
func podKeeps(t *testing.T, api client.Reader, finalizer string) bool {
	t.Helper()
	var pod v1.Pod
	err := api.Get(t.Context(), types.NamespacedName{Namespace: "team-a", Name: "trainer"}, &pod)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return err == nil && len(pod.Finalizers) == 1 && pod.Finalizers[0] == finalizer
}

// spansIn returns the starts and ends of all records, by name.
func spansIn(t *testing.T, api client.Reader) map[string]string {
	t.Helper()
	var records v1alpha1.UsageRecordList
	if err := api.List(t.Context(), &records); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for i := range records.Items {
		got[records.Items[i].Name] = spanOf(&records.Items[i])
	}
	return got
}
