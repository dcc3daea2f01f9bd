// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// Indices of the cache.
const (
	jobsByElasticJob = "elasticjob.owner" // Jobs by the name of the ElasticJob that controls them
	workloadsByJob   = "elasticjob.job"   // Workloads by the name of the Job that controls them
	jobsByPool       = "elasticjob.pool"  // ElasticJobs by the name of their pool
)

// controllerName returns the name of o's controller of that kind; "" if another kind controls o, or
// none.
func controllerName(o metav1.Object, kind string) string {
	if c := metav1.GetControllerOfNoCopy(o); c != nil && c.Kind == kind {
		return c.Name
	}
	return ""
}

// observe reads a job's existing Jobs, Workloads and Service. The objects belong to the cache and must
// not be changed.
func (r *reconciler) observe(ctx context.Context, ej *v1alpha1.ElasticJob) (*state, error) {
	jobs := &batchv1.JobList{}
	err := r.client.List(ctx, jobs, client.InNamespace(ej.Namespace), client.MatchingFields{jobsByElasticJob: ej.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the Jobs of ElasticJob %s/%s: %w", ej.Namespace, ej.Name, err)
	}
	s := &state{extras: map[int32]part{}}
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if !metav1.IsControlledBy(job, ej) { // left by an earlier ElasticJob of this name
			continue
		}
		workload, err := r.workloadOf(ctx, job)
		if err != nil {
			return nil, err
		}
		if job.Name == names.BaseJob(ej.Name) {
			s.base = &part{job: job, workload: workload}
		} else if n, ok := numberOf(job.Name, ej.Name); ok {
			s.extras[n] = part{job: job, workload: workload}
		}
	}
	s.served, err = r.serves(ctx, ej)
	return s, err
}

// workloadOf returns the Workload that Kueue made of a Job; nil if it does not exist yet.
func (r *reconciler) workloadOf(ctx context.Context, job *batchv1.Job) (*kueue.Workload, error) {
	list := &kueue.WorkloadList{}
	err := r.client.List(ctx, list, client.InNamespace(job.Namespace), client.MatchingFields{workloadsByJob: job.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the Workloads of Job %s/%s: %w", job.Namespace, job.Name, err)
	}
	for i := range list.Items {
		if w := &list.Items[i]; w.DeletionTimestamp == nil && metav1.IsControlledBy(w, job) {
			return w, nil
		}
	}
	return nil, nil
}

// serves reports whether the job's Service exists.
func (r *reconciler) serves(ctx context.Context, ej *v1alpha1.ElasticJob) (bool, error) {
	service := serviceMetadata()
	err := r.client.Get(ctx, client.ObjectKeyFromObject(ej), service)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return metav1.IsControlledBy(service, ej), nil
}

// serviceMetadata returns an object for a Service's metadata, the only part that is read and cached.
func serviceMetadata() *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Service"))
	return m
}

// numberOf returns the replica number in the name of an extra Job.
func numberOf(job, elasticJob string) (int32, bool) {
	number, ok := strings.CutPrefix(job, elasticJob+"-x")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || names.ExtraJob(elasticJob, int32(n)) != job {
		return 0, false
	}
	return int32(n), true
}
