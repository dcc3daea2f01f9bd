// SPDX-License-Identifier: Apache-2.0

package computepool

import (
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/units"
)

// Protected is the state of a pool's non-preemptible jobs.
type Protected struct {
	Pins     Pins      // devices of the jobs that have been released
	Gone     Pins      // quota of workloads whose jobs are deleted or have ended
	Requests []Request // jobs that still wait for their release
}

// ProtectedOf finds the non-preemptible jobs by their priority class. One without the gate has been
// released, and is pinned until it has finished: also while it is evicted, so that it can come back. A
// workload with quota stays pinned until it has finished, also without its job, because a queue's own
// quota below the sum that such workloads hold gets them evicted; see withGone.
//
// namespaces maps each tenant's namespaces to the tenant. priority returns the priority of the
// ElasticJob whose base a job is.
func ProtectedOf(l *Layout, namespaces map[string]string, jobs []*batchv1.Job, workloads []*kueue.Workload, priority func(*batchv1.Job) int64) *Protected {
	out := &Protected{Pins: Pins{}, Gone: Pins{}}
	queueOf := l.byLocalQueue(namespaces)
	all := Units(l.pool)
	holding := reserving(workloads, all)
	for _, job := range jobs {
		if job.Labels[kueue.LabelPriorityClass] != names.ProtectedClass || finished(job) {
			continue
		}
		w := holding[job.UID]
		delete(holding, job.UID)
		devices := jobDevices(job, all)
		name := queueOf[job.Namespace+"/"+job.Labels[kueue.LabelQueue]]
		queue := l.find(name)
		switch {
		case w != nil:
			// The queue of the admission is used, also when the namespace has moved to another tenant.
			out.Pins.add(l, w.queue, greater(devices, w.devices))
		case queue == nil: // a queue of another pool, or of none
		case gated(job):
			out.Requests = append(out.Requests, Request{
				Job: job.Namespace + "/" + job.Name, Queue: name, Devices: devices,
				Priority: queue.jobPriority(priority(job)), Since: job.CreationTimestamp.Time,
			})
		default:
			out.Pins.with(name, devices)
		}
	}
	for _, w := range holding {
		out.Gone.add(l, w.queue, w.devices)
	}
	return out
}

// add pins devices in a queue of the layout; a queue of another pool is ignored.
func (p Pins) add(l *Layout, name string, devices Amounts) {
	if l.find(name) != nil {
		p.with(name, devices)
	}
}

// byLocalQueue returns the ClusterQueue of each LocalQueue, by namespace/name.
func (l *Layout) byLocalQueue(namespaces map[string]string) map[string]string {
	out := map[string]string{}
	for _, q := range l.localQueues(namespaces) {
		out[q.Namespace+"/"+q.Name] = q.Spec.ClusterQueue
	}
	return out
}

// reservation is the quota of a protected workload.
type reservation struct {
	queue   string
	devices Amounts
}

// reserving returns the reservations of unfinished protected workloads, by the UID of their job.
func reserving(workloads []*kueue.Workload, all []units.Unit) map[types.UID]*reservation {
	out := map[types.UID]*reservation{}
	for _, w := range workloads {
		ref := w.Spec.PriorityClassRef
		if ref == nil || ref.Name != names.ProtectedClass || w.Status.Admission == nil ||
			meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished) {
			continue
		}
		r := &reservation{queue: w.Status.Admission.ClusterQueue, devices: Amounts{}}
		for _, set := range w.Status.Admission.PodSetAssignments {
			for _, u := range all {
				name := resourceName(u.Resource)
				if q := set.ResourceUsage[name]; !q.IsZero() {
					r.devices[name] += q.Value()
				}
			}
		}
		uid := w.UID
		if owner := metav1.GetControllerOfNoCopy(w); owner != nil {
			uid = owner.UID
		}
		out[uid] = r
	}
	return out
}

// jobDevices returns the devices that all pods of a job hold together.
func jobDevices(job *batchv1.Job, all []units.Unit) Amounts {
	pods := int64(1)
	if job.Spec.Parallelism != nil {
		pods = int64(*job.Spec.Parallelism)
	}
	if job.Spec.Completions != nil {
		pods = min(pods, int64(*job.Spec.Completions))
	}
	out := heldBy(&job.Spec.Template.Spec, all)
	for r := range out {
		out[r] *= pods
	}
	return out
}

func greater(a, b Amounts) Amounts {
	out := Amounts{}
	maps.Copy(out, a)
	for r, n := range b {
		out[r] = max(out[r], n)
	}
	return out
}

// finished reports whether a job is complete or failed.
func finished(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == v1.ConditionTrue
	})
}

// gated reports whether a job still has this controller's gate.
func gated(job *batchv1.Job) bool {
	return slices.Contains(gates(job), names.GateProtected)
}

// gates returns a job's gates against admission by Kueue, which its annotation separates by commas.
func gates(job *batchv1.Job) []string {
	var out []string
	for g := range strings.SplitSeq(job.Annotations[kueue.AnnotationAdmissionGatedBy], ",") {
		if g = strings.TrimSpace(g); g != "" {
			out = append(out, g)
		}
	}
	return out
}
