// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// lateCache reads pods from a cache that is behind the API server, and all other objects from the API
// server.
type lateCache struct {
	client.Client

	pods client.Reader
}

func (c lateCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*v1.PodList); ok {
		return c.pods.List(ctx, list, opts...)
	}
	return c.Client.List(ctx, list, opts...)
}

// TestLateCache: a pod that the cache does not show, or shows in an old state, gets no end because of
// that, and no second record.
func TestLateCache(t *testing.T) {
	team := []client.Object{
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: map[string]string{v1alpha1.LabelTenant: "a"}}},
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"pool": "training"}}},
		aPool(func(p *v1alpha1.ComputePool) { p.Spec.NodeSelector = map[string]string{"pool": "training"} }),
	}
	remade := aPod(func(p *v1.Pod) { p.UID = "u2" })
	for name, tc := range map[string]struct {
		cached, there *v1.Pod
		records       []v1alpha1.UsageRecord
		seen          *lost             // to go
		want          map[string]string // record: minutes of its start and end
	}{
		"it runs, and the cache does not show it yet": {
			there: aPod(), records: []v1alpha1.UsageRecord{aRecord(10)}, want: map[string]string{"u1": "10-"},
		},
		"it is gone":                           {records: []v1alpha1.UsageRecord{aRecord(10)}, want: map[string]string{"u1": "10-70 guessed"}},
		"it is gone, and another has its name": {there: remade, records: []v1alpha1.UsageRecord{aRecord(10)}, want: map[string]string{"u1": "10-70 guessed"}},
		"it runs, though its list was missed":  {there: aPod(), records: []v1alpha1.UsageRecord{aRecord(10)}, seen: &lost{aPod(), end{minute(60), true}}, want: map[string]string{"u1": "10-"}},
		"it went between two lists":            {records: []v1alpha1.UsageRecord{aRecord(10)}, seen: &lost{aPod(), end{minute(60), true}}, want: map[string]string{"u1": "10-60 guessed"}},
		"it was seen to go":                    {there: remade, records: []v1alpha1.UsageRecord{aRecord(10)}, seen: &lost{aPod(), end{minute(60), false}}, want: map[string]string{"u1": "10-60"}},
		"it runs though its record has ended":  {cached: aPod(), there: aPod(), records: []v1alpha1.UsageRecord{guessed(aRecord(10), 30)}, want: map[string]string{"u1": "10-30 guessed", names.RestRecord("u1", minute(30)): "30-"}},
		"the cache shows it as it was":         {cached: aPod(), there: aPod(finished(v1.PodSucceeded, 40)), records: []v1alpha1.UsageRecord{ended(aRecord(10), 40)}, want: map[string]string{"u1": "10-40"}},
		"the cache shows it, but it is gone":   {cached: aPod(), records: []v1alpha1.UsageRecord{ended(aRecord(10), 40)}, want: map[string]string{"u1": "10-40"}},
	} {
		t.Run(name, func(t *testing.T) {
			api := fakeAPI(t, slices.Concat(team, podsOf(tc.there), recordsOf(tc.records))...)
			r := &reconciler{
				client: lateCache{api, fakeAPI(t, podsOf(tc.cached)...)}, reader: api, namespace: "nvtopo-system",
				clock: clocktesting.NewFakePassiveClock(minute(100)), memory: newMemory(), heartbeat: &heartbeat{read: true, before: minute(70)},
			}
			if tc.seen != nil {
				r.memory.keep(tc.seen.pod, tc.seen.end)
			}
			for range 2 { // the writes of the first must not cause more in the second
				if _, err := r.Reconcile(t.Context(), "u1"); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, spansIn(t, api)); diff != "" {
				t.Errorf("records (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestBatchedPodGetsNoNewRecord: the record of a pod is deleted once a batch has its session. A cache
// that still shows the pod does not cause another record.
func TestBatchedPodGetsNoNewRecord(t *testing.T) {
	r := ended(aRecord(10), 40)
	r.Spec.Tenant, r.Status.Invoice = "a", "inv"
	batches, err := accounting.Batches([]v1alpha1.UsageRecord{r}, nil)
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", Labels: map[string]string{v1alpha1.LabelTenant: "a"}}},
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"pool": "training"}}},
		aPool(func(p *v1alpha1.ComputePool) { p.Spec.NodeSelector = map[string]string{"pool": "training"} }),
	}
	for name, tc := range map[string]struct {
		batches []v1alpha1.UsageBatch
		want    int
	}{
		"a pod that no batch has":    {want: 1},
		"a pod that is in a batch":   {batches: batches},
		"one that is in two of them": {batches: append(batches, v1alpha1.UsageBatch{ObjectMeta: metav1.ObjectMeta{Name: "again"}, Spec: batches[0].Spec})},
	} {
		t.Run(name, func(t *testing.T) {
			has := slices.Clone(objects)
			for i := range tc.batches {
				has = append(has, tc.batches[i].DeepCopy())
			}
			api := fakeAPI(t, has...)
			reconciler := &reconciler{
				client: lateCache{api, fakeAPI(t, aPod())}, reader: api, namespace: "nvtopo-system",
				clock: clocktesting.NewFakePassiveClock(minute(100)), memory: newMemory(), heartbeat: &heartbeat{read: true, before: minute(70)},
			}
			if _, err := reconciler.Reconcile(t.Context(), "u1"); err != nil {
				t.Fatal(err)
			}
			var records v1alpha1.UsageRecordList
			if err := api.List(t.Context(), &records); err != nil {
				t.Fatal(err)
			}
			if len(records.Items) != tc.want {
				t.Errorf("%d records were made, want %d", len(records.Items), tc.want)
			}
		})
	}
}

// spanOf returns a record's start and end in minutes.
func spanOf(r *v1alpha1.UsageRecord) string {
	minutes := func(at metav1.Time) string { return strconv.Itoa(int(at.Sub(minute(0)) / time.Minute)) }
	span := minutes(r.Spec.Start) + "-"
	if r.Status.End != nil {
		span += minutes(*r.Status.End)
	}
	if r.Status.Estimated {
		span += " guessed"
	}
	return span
}

func podsOf(pod *v1.Pod) []client.Object {
	if pod == nil {
		return nil
	}
	return []client.Object{pod.DeepCopy()}
}

func recordsOf(records []v1alpha1.UsageRecord) []client.Object {
	var out []client.Object
	for i := range records {
		out = append(out, records[i].DeepCopy())
	}
	return out
}

// fakeAPI returns a client with the objects and the reconciler's field indices.
func fakeAPI(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme, topologyv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	b := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithStatusSubresource(&v1alpha1.UsageRecord{}).
		WithIndex(&v1.Pod{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} })
	if err := index(indexer{b}); err != nil {
		t.Fatal(err)
	}
	return b.Build()
}

// indexer adds the manager's field indices to a fake API.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, values client.IndexerFunc) error {
	i.WithIndex(o, field, values)
	return nil
}
