// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// TestLateElasticJob: a Job is created for an ElasticJob that may still run according to the API server,
// not for one that may only according to a late cache.
func TestLateElasticJob(t *testing.T) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1alpha1.AddToScheme, kueue.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	ended := func(kind string) func(*v1alpha1.ElasticJob) {
		return func(ej *v1alpha1.ElasticJob) {
			ej.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: "Why"}}
		}
	}
	for name, tc := range map[string]struct {
		gone   bool // the API server has none
		now    func(*v1alpha1.ElasticJob)
		wanted bool
	}{
		"it is as the cache shows it":             {now: func(*v1alpha1.ElasticJob) {}, wanted: true},
		"it has completed":                        {now: ended(v1alpha1.ConditionComplete)},
		"it has failed":                           {now: ended(v1alpha1.ConditionFailed)},
		"it was suspended":                        {now: func(ej *v1alpha1.ElasticJob) { ej.Spec.Suspend = true }},
		"it was deleted":                          {gone: true},
		"it was deleted and another has its name": {now: func(ej *v1alpha1.ElasticJob) { ej.UID = "u2" }},
		"it is being deleted, kept by a finalizer": {now: func(ej *v1alpha1.ElasticJob) {
			ej.DeletionTimestamp, ej.Finalizers = &metav1.Time{Time: now}, []string{"a/b"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(s)
			if !tc.gone {
				object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(newJob(tc.now))
				if err != nil {
					t.Fatal(err)
				}
				u := &unstructured.Unstructured{Object: object}
				u.SetGroupVersionKind(newObject().GroupVersionKind())
				builder = builder.WithObjects(u)
			}
			api := builder.Build()
			r := &reconciler{client: api, live: api}
			cached := newJob()
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: cached.Namespace, Name: names.BaseJob(cached.Name)}}
			err := r.carryOutOne(t.Context(), cached, &Rendered{}, &step{create: job}, &findings{})
			if made := err == nil; made != tc.wanted || err != nil && !errors.Is(err, errStop) {
				t.Errorf("made %t, error %v; want made %t", made, err, tc.wanted)
			}
			var jobs batchv1.JobList
			if err := api.List(t.Context(), &jobs); err != nil {
				t.Fatal(err)
			}
			if made := len(jobs.Items) == 1; made != tc.wanted {
				t.Errorf("%d Jobs are there; one wanted: %t", len(jobs.Items), tc.wanted)
			}
		})
	}
}
