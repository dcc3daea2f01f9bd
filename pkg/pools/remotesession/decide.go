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

// ConditionStarted of a session is true from when it was first ready; its time of transition is
// that from which ttlSeconds counts.
const ConditionStarted = "Started"

// Reasons of ConditionReady.
const (
	// ReasonServes: the endpoint answers.
	ReasonServes = "Serves"
	// ReasonNoTenant: the session's namespace is no tenant's, so that nobody's quota would count.
	ReasonNoTenant = "NoTenant"
	// ReasonPoolNotFound: there is no such pool.
	ReasonPoolNotFound = "PoolNotFound"
	// ReasonNoDevice: the pool has no device that the session could have.
	ReasonNoDevice = "NoDevice"
	// ReasonNoGate: the pool controller was not told the image of gates.
	ReasonNoGate = "NoGate"
	// ReasonNameTaken: the session's Job, Service or NetworkPolicy has the name of one that is not the
	// session's.
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

// lookAgain is when a session that serves is looked at again: that its Secret or NetworkPolicy is deleted
// is not heard of.
const lookAgain = time.Minute

// askAgain is when a session is looked at again that waits for what is not heard of: a label of
// its namespace, a pool.
const askAgain = 30 * time.Second

// view is what is known of a session.
type view struct {
	session *v1alpha1.RemoteGPUSession
	tenant  string                // of the namespace
	pool    *v1alpha1.ComputePool // nil: there is none
	job     *batchv1.Job          // nil: there is none, or it is not the session's
	taken   string                // what of another's has a name that the session needs
	pods    []v1.Pod
	image   string // of the gate
}

// decision is what is to be.
type decision struct {
	status v1alpha1.RemoteGPUSessionStatus
	// device is the resource of the Job that is to be there; empty: none is to be made.
	device v1.ResourceName
	// over says that the Job is to end and then to go, and all that is the Job's with it.
	over bool
	// after says when to look again at the latest; 0: when something changes.
	after time.Duration

	now time.Time
}

// ended says whether nothing more becomes of the session.
func ended(s *v1alpha1.RemoteGPUSession) bool {
	return s.Status.Phase == v1alpha1.SessionExpired || s.Status.Phase == v1alpha1.SessionFailed
}

// decide says what a session is at a time. What has ended stays so, whatever is there.
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

// begin says whether the Job can be made, and what is missing.
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

// serves says whether a pod answers calls.
func serves(p v1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
	})
}

// ready writes down when the session was first so.
func (d *decision) ready(s *v1alpha1.RemoteGPUSession) {
	if !apimeta.IsStatusConditionTrue(d.status.Conditions, ConditionStarted) {
		d.set(ConditionStarted, metav1.ConditionTrue, ReasonServes, "ttlSeconds counts from here")
	}
	d.expire(s)
	d.lookAfter(lookAgain)
	d.status.Phase = v1alpha1.SessionReady
	d.set(v1alpha1.ConditionReady, metav1.ConditionTrue, ReasonServes, "the endpoint answers")
}

// lookAfter has the session be looked at again after a while at the latest.
func (d *decision) lookAfter(while time.Duration) {
	if d.after == 0 || while < d.after {
		d.after = while
	}
}

func (d *decision) pending(reason, message string) {
	d.status.Phase = v1alpha1.SessionPending
	d.set(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
}

// expire says when the session ends, and whether it has.
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

// fail ends a session whose Job has ended: that the server ended well is no reason to go on.
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

// endOf is the condition that says that a Job has ended; nil if none does. It comes once no pod of
// the Job runs any more.
func endOf(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if c.Status == v1.ConditionTrue && (c.Type == batchv1.JobFailed || c.Type == batchv1.JobComplete) {
			return c
		}
	}
	return nil
}

// holdsQuota says whether Kueue has admitted a Job, and has not taken its quota back.
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
