// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// now is the time of the tests.
var now = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// newJob returns an ElasticJob of 2 to 4 replicas of 8 GPUs, with the API server's
// defaults.
func newJob(change ...func(*v1alpha1.ElasticJob)) *v1alpha1.ElasticJob {
	ej := &v1alpha1.ElasticJob{
		ObjectMeta: metav1.ObjectMeta{Name: "train", Namespace: "team-a", UID: "u1", Generation: 3},
		Spec: v1alpha1.ElasticJobSpec{
			Pool: "pool", Priority: 5, Preemptible: new(true),
			Scaling: v1alpha1.Scaling{MinReplicas: 2, MaxReplicas: 4, GPUPerReplica: 8, Rendezvous: v1alpha1.RendezvousAuto},
			Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
				RestartPolicy: v1.RestartPolicyNever,
				Containers:    []v1.Container{{Name: "main", Image: "example.com/train"}},
			}},
		},
	}
	for _, f := range change {
		f(ej)
	}
	return ej
}

func newPool(change ...func(*v1alpha1.ComputePool)) *v1alpha1.ComputePool {
	pool := &v1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1alpha1.ComputePoolSpec{PoolType: v1alpha1.PoolGPU}}
	for _, f := range change {
		f(pool)
	}
	return pool
}

// read returns an object as a cache of unstructured objects has it.
func read(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}

// partOption changes a part for a test.
type partOption func(*part)

// newPart returns a Job that Kueue has started.
func newPart(name string, options ...partOption) *part {
	p := &part{
		job: &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team-a", Labels: map[string]string{
				kueue.LabelQueue: "pool", kueue.LabelPriorityClass: "nvtopo-p5",
			}},
			Spec:   batchv1.JobSpec{Suspend: new(false)},
			Status: batchv1.JobStatus{Active: 1, Ready: new(int32(1)), Terminating: new(int32(0))},
		},
		workload: &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Name: "w-" + name, Namespace: "team-a"}},
	}
	if name != names.BaseJob("train") {
		p.job.Labels[kueue.LabelPriorityClass] = "nvtopo-extra-p5"
	}
	set(p, kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "QuotaReserved", "")
	set(p, kueue.WorkloadAdmitted, metav1.ConditionTrue, "Admitted", "")
	p.workload.Status.Admission = &kueue.Admission{ClusterQueue: "pool.team-a"}
	for _, o := range options {
		o(p)
	}
	return p
}

func set(p *part, kind string, status metav1.ConditionStatus, reason, message string) {
	c := metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}
	for i := range p.workload.Status.Conditions {
		if p.workload.Status.Conditions[i].Type == kind {
			p.workload.Status.Conditions[i] = c
			return
		}
	}
	p.workload.Status.Conditions = append(p.workload.Status.Conditions, c)
}

// queued makes a part wait without quota and pods.
func queued(p *part) {
	p.job.Spec.Suspend = new(true)
	p.job.Status = batchv1.JobStatus{}
	set(p, kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", "insufficient quota for nvidia.com/gpu")
	set(p, kueue.WorkloadAdmitted, metav1.ConditionFalse, "NoReservation", "")
}

// unseen makes a part a Job that Kueue has not processed.
func unseen(p *part) {
	queued(p)
	p.workload = nil
}

// evicted makes a part lose its quota while its pods still exist.
func evicted(reason string) partOption {
	return func(p *part) {
		set(p, kueue.WorkloadEvicted, metav1.ConditionTrue, reason, "evicted: "+reason)
		if reason == kueue.EvictedByPreemption {
			p.workload.Status.SchedulingStats = &kueue.SchedulingStats{Evictions: []kueue.EvictionCount{{Reason: reason, Count: 1}}}
		}
	}
}

func inactive(p *part) { p.workload.Spec.Active = new(false) }

// deactivated makes a part one that this controller has deactivated.
func deactivated(p *part) {
	inactive(p)
	p.workload.Annotations = map[string]string{names.AnnotationDeactivated: "true"}
}

func gatedJob(p *part) {
	queued(p)
	p.job.Annotations = map[string]string{kueue.AnnotationAdmissionGatedBy: names.GateProtected}
}

// toldWhy sets the pool controller's reason why a protected job waits.
func toldWhy(text string) partOption {
	return func(p *part) { p.job.Annotations[names.AnnotationProtection] = text }
}

// endedJob makes a part one that succeeded or failed some time ago.
func endedJob(kind batchv1.JobConditionType, ago time.Duration) partOption {
	return func(p *part) {
		p.job.Status = batchv1.JobStatus{Conditions: []batchv1.JobCondition{{
			Type: kind, Status: v1.ConditionTrue, Reason: "Why", Message: "because", LastTransitionTime: metav1.NewTime(now.Add(-ago)),
		}}}
		set(p, kueue.WorkloadFinished, metav1.ConditionTrue, "Succeeded", "")
	}
}

// newState returns a state with a base, nil for none, and the extras of some numbers.
func newState(base *part, extras map[int32]*part) *state {
	s := &state{base: base, extras: map[int32]part{}, served: true}
	for n, extra := range extras {
		s.extras[n] = *extra
	}
	return s
}

func newBase(options ...partOption) *part { return newPart(names.BaseJob("train"), options...) }

func newExtra(n int32, options ...partOption) *part {
	return newPart(names.ExtraJob("train", n), options...)
}
