// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// countOf is how many pods a Job runs at first, 1 to MaxAsked.
func countOf(job *batchv1.Job) (int, error) {
	count := ptr.Deref(job.Spec.Parallelism, 1)
	if job.Spec.Completions != nil {
		count = min(count, *job.Spec.Completions)
	}
	if count < 1 || count > MaxAsked {
		return 0, fmt.Errorf("job %s: spec.parallelism: it runs %d pods, want 1 to %d", job.Name, count, MaxAsked)
	}
	return int(count), nil
}

// podsOf are the pods that a Job runs at first, as the Job controller makes them: with its labels,
// and its index where it is Indexed. That a Job is suspended is not counted: it is asked what would
// become of it once it runs.
func podsOf(job *batchv1.Job, count int) []*v1.Pod {
	uid := job.UID
	if uid == "" {
		uid = types.UID("what-if-job-" + job.Namespace + "-" + job.Name)
	}
	owner := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: uid}
	out := make([]*v1.Pod, count)
	for i := range out {
		pod := podOf(&job.Spec.Template, job.Namespace, fmt.Sprintf("%s-%d", job.Name, i), owner)
		metav1.SetMetaDataLabel(&pod.ObjectMeta, batchv1.JobNameLabel, job.Name)
		metav1.SetMetaDataLabel(&pod.ObjectMeta, batchv1.ControllerUidLabel, string(uid))
		if job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, strconv.Itoa(i))
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, strconv.Itoa(i))
		}
		out[i] = pod
	}
	return out
}

// podOf is a pod as a controller makes it of a template.
func podOf(of *v1.PodTemplateSpec, namespace, name string, owner metav1.OwnerReference) *v1.Pod {
	template := of.DeepCopy()
	pod := &v1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name, pod.GenerateName = namespace, name, ""
	owner.Controller, owner.BlockOwnerDeletion = new(true), new(true)
	pod.OwnerReferences = []metav1.OwnerReference{owner}
	return pod
}
