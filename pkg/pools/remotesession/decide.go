// SPDX-License-Identifier: Apache-2.0

package remotesession

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// ConditionStarted of a session is true from when it was first ready; ttlSeconds counts from its
// transition time.
const ConditionStarted = "Started"

// Reasons of ConditionReady.
const (
	// ReasonServes: the endpoint answers.
	ReasonServes = "Serves"
	// ReasonNoTenant: the session's namespace belongs to no tenant, so that no quota would apply.
	ReasonNoTenant = "NoTenant"
	// ReasonPoolNotFound: the pool does not exist.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonNoDevice: the pool has no device for the session.
	ReasonNoDevice = "NoDevice"
	// ReasonNoGate: the pool controller was started without the gate's image.
	ReasonNoGate = "NoGate"
	// ReasonNameTaken: another object has the name of the session's Job, Service or NetworkPolicy.
	ReasonNameTaken = "NameTaken"
	// ReasonWaitingForQuota: the queue has not admitted the session yet, or no longer.
	ReasonWaitingForQuota = "WaitingForQuota"
	// ReasonWaitingForServer: the server has no place yet, or is not ready.
	ReasonWaitingForServer = "WaitingForServer"
	// ReasonServerEnded: the server has ended, and is not started again.
	ReasonServerEnded = "ServerEnded"
	// ReasonExpired: the session's time is over.
	ReasonExpired = "Expired"
)

// lookAgain is the interval of reconciling a ready session: deletions of its Secret or NetworkPolicy are
// not watched.
const lookAgain = time.Minute

// askAgain is the interval of reconciling a session that waits for an unwatched change: a label of its
// namespace, a pool.
const askAgain = 30 * time.Second

// view is the observed state of a session.
type view struct {
	session *v1alpha1.RemoteGPUSession
	tenant  string                // of the namespace; "" if it has none
	pool    *v1alpha1.ComputePool // nil: it does not exist
	job     *batchv1.Job          // nil: it does not exist, or is not the session's
	taken   string                // another owner's object with a name that the session needs
	pods    []v1.Pod
	image   string // of the gate
}

// decision is the wanted state of a session.
type decision struct {
	status v1alpha1.RemoteGPUSessionStatus
	// device is the resource of the Job to create; empty: no Job is to be created.
	device v1.ResourceName
	// over reports that the Job is to be stopped and then deleted, with all that it owns.
	over bool
	// after is the time until the next reconciliation at the latest; 0: when something changes.
	after time.Duration

	now time.Time
}

// ended reports whether the session has expired or failed.
func ended(s *v1alpha1.RemoteGPUSession) bool {
	return s.Status.Phase == v1alpha1.SessionExpired || s.Status.Phase == v1alpha1.SessionFailed
}

// decide returns the wanted state of a session at a time. A session that has ended stays so, whatever
// exists.
func decide(v *view, now time.Time) decision {
	s := v.session
	d := decision{status: *s.Status.DeepCopy(), now: now}
	if ended(s) {
		d.over = true
		return d
	}
	d.status.ObservedGeneration, d.status.Tenant = s.Generation, v.tenant
	if d.expire(s) || d.fail(v.job) {
		return d
	}
	if v.job == nil {
		reason, message := d.begin(v)
		d.pending(reason, message)
		return d
	}
	d.status.Endpoint = Endpoint(s)
	d.status.TokenSecret = &v1.LocalObjectReference{Name: Name(s.Name)}
	switch {
	case slices.ContainsFunc(v.pods, serves):
		d.ready(s)
	case !holdsQuota(v.job):
		d.pending(ReasonWaitingForQuota, "the queue has not admitted job "+v.job.Name)
	default:
		d.pending(ReasonWaitingForServer, "the server is not ready")
	}
	return d
}

// begin decides whether the Job can be created, and returns the reason if not.
func (d *decision) begin(v *view) (reason, message string) {
	s := v.session
	d.after = askAgain
	switch {
	case v.taken != "":
		return ReasonNameTaken, v.taken + " is there and is not the session's"
	case v.image == "":
		return ReasonNoGate, "the pool controller was started without --gate-image"
	case v.tenant == "":
		return ReasonNoTenant, fmt.Sprintf("namespace %s has no label %s", s.Namespace, v1alpha1.LabelTenant)
	case v.pool == nil:
		return ReasonPoolNotFound, "pool: there is no ComputePool " + s.Spec.Pool
	}
	name, fault := device(v.pool, s.Spec.GPUs)
	if fault != "" {
		return ReasonNoDevice, fault
	}
	d.device, d.after = name, 0
	return ReasonWaitingForQuota, "its job is made"
}

// serves reports whether a pod is ready and not being deleted.
func serves(p v1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// ready sets the phase Ready, and when the session was first ready.
func (d *decision) ready(s *v1alpha1.RemoteGPUSession) {
	if !apimeta.IsStatusConditionTrue(d.status.Conditions, ConditionStarted) {
		d.set(ConditionStarted, metav1.ConditionTrue, ReasonServes, "ttlSeconds counts from here")
	}
	d.expire(s)
	d.lookAfter(lookAgain)
	d.status.Phase = v1alpha1.SessionReady
	d.set(v1alpha1.ConditionReady, metav1.ConditionTrue, ReasonServes, "the endpoint answers")
}

// lookAfter makes the session be reconciled again after while at the latest.
func (d *decision) lookAfter(while time.Duration) {
	if d.after == 0 || while < d.after {
		d.after = while
	}
}

func (d *decision) pending(reason, message string) {
	d.status.Phase = v1alpha1.SessionPending
	d.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
}

// expire sets the session's end, and reports whether it has passed.
func (d *decision) expire(s *v1alpha1.RemoteGPUSession) bool {
	started := apimeta.FindStatusCondition(d.status.Conditions, ConditionStarted)
	if started == nil {
		return false
	}
	end := started.LastTransitionTime.Add(time.Duration(s.Spec.TTLSeconds) * time.Second)
	d.status.ExpiresAt = &metav1.Time{Time: end}
	if d.now.Before(end) {
		d.after = end.Sub(d.now)
		return false
	}
	d.finish(v1alpha1.SessionExpired, ReasonExpired, fmt.Sprintf("the session was first ready %d s ago", s.Spec.TTLSeconds))
	return true
}

// fail ends a session whose Job has ended: even if the server ended well, the session does not go on.
func (d *decision) fail(job *batchv1.Job) bool {
	if job == nil {
		return false
	}
	c := endOf(job)
	if c == nil {
		return false
	}
	d.finish(v1alpha1.SessionFailed, ReasonServerEnded, "job "+job.Name+": "+cmp.Or(c.Message, string(c.Type)))
	return true
}

// endOf returns the condition that a Job has ended; nil if it has not. It is set once no pod of the Job
// runs any more.
func endOf(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if c.Status == v1.ConditionTrue && (c.Type == batchv1.JobFailed || c.Type == batchv1.JobComplete) {
			return c
		}
	}
	return nil
}

// holdsQuota reports whether Kueue has admitted a Job, and has not taken its quota back.
func holdsQuota(job *batchv1.Job) bool {
	suspended := job.Spec.Suspend != nil && *job.Spec.Suspend
	return !suspended && endOf(job) == nil
}

func (d *decision) finish(phase v1alpha1.SessionPhase, reason, message string) {
	d.over, d.after = true, 0
	d.status.Phase, d.status.Endpoint, d.status.TokenSecret = phase, "", nil
	d.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
}

func (d *decision) set(kind string, status metav1.ConditionStatus, reason, message string) {
	apimeta.SetStatusCondition(&d.status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: d.status.ObservedGeneration,
		LastTransitionTime: metav1.Time{Time: d.now.Truncate(time.Second)},
	})
}
