// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// Reasons of the conditions. Those of a job that lost its quota are Kueue's, such as Preempted
// and PodsReadyTimeout.
const (
	ReasonFinished  = "Finished"
	ReasonSuspended = "Suspended"

	// Why nothing can be made of a job.
	ReasonNoTenant           = "NamespaceHasNoTenant"
	ReasonPoolNotFound       = "PoolNotFound"
	ReasonQueueNotFound      = "QueueNotFound"
	ReasonQuotaNotConfigured = "QuotaNotConfigured"
	ReasonTemplateInvalid    = "TemplateInvalid"
	ReasonNameTaken          = "NameTaken"

	// Of Admitted.
	ReasonAdmitted         = "Admitted"
	ReasonWaitingForQuota  = "WaitingForQuota"
	ReasonWaitingForCheck  = "WaitingForAdmissionCheck"
	ReasonWaitingForPinned = names.ProtectedSoon
	ReasonDeactivated      = "Deactivated"

	// ReasonExceedsLimit: it can never start.
	ReasonExceedsLimit = "ExceedsLimit"

	// Of ProtectedCapacityGranted. Those of a job that waits are of package names, and of Admitted,
	// too.
	ReasonPinned = "Pinned"

	// Of Scaled, beside v1alpha1.ReasonStaticRendezvous.
	ReasonAtMaximum   = "AtMaximum"
	ReasonNotAdmitted = "NotAdmitted"
	ReasonQuotaLimit  = "QuotaLimit"
	ReasonShrinking   = "Shrinking"
	ReasonExtraFailed = "ExtraReplicasFailed"

	// Of TemplateValid.
	ReasonValid   = "Valid"
	ReasonInvalid = "Invalid"

	// Of Complete and Failed.
	ReasonSucceeded          = "Succeeded"
	ReasonJobFailed          = "JobFailed"
	ReasonMaxRunTimeExceeded = "MaxRunTimeExceeded"
)

// maxMessage is the longest message of a condition that the API server takes, in bytes; it
// counts characters.
const maxMessage = 2048

type conditions struct {
	ej  *v1alpha1.ElasticJob
	s   *state
	f   *findings
	out *v1alpha1.ElasticJobStatus
	now metav1.Time
}

func (c *conditions) set(kind string, status metav1.ConditionStatus, reason, message string) {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	meta.SetStatusCondition(&c.out.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: c.now, ObservedGeneration: c.ej.Generation,
	})
}

func (c *conditions) write() {
	c.end()
	c.template()
	c.admitted()
	c.protected()
	c.scaled()
}

func (c *conditions) end() {
	if ended(c.ej) {
		return
	}
	base := c.s.base
	switch {
	case base.succeeded() != nil:
		c.set(v1alpha1.ConditionComplete, metav1.ConditionTrue, ReasonSucceeded, "all minReplicas have succeeded")
	case base.failed() != nil:
		failed := base.failed()
		c.set(v1alpha1.ConditionFailed, metav1.ConditionTrue, ReasonJobFailed,
			fmt.Sprintf("Job %s: %s: %s", base.job.Name, failed.Reason, failed.Message))
	case base.ranTooLong():
		c.set(v1alpha1.ConditionFailed, metav1.ConditionTrue, ReasonMaxRunTimeExceeded,
			"the job has run for spec.maxRunSeconds: "+base.job.Labels[kueue.LabelMaxExecutionSeconds])
	}
}

func (c *conditions) template() {
	switch {
	case len(c.f.faults) > 0:
		c.set(v1alpha1.ConditionTemplateValid, metav1.ConditionFalse, ReasonInvalid, faultMessage(c.f.faults))
	case c.f.checked:
		c.set(v1alpha1.ConditionTemplateValid, metav1.ConditionTrue, ReasonValid, "pods can be made of the template")
	default:
		c.set(v1alpha1.ConditionTemplateValid, metav1.ConditionUnknown, c.f.blocked, "which devices count is not known: "+c.f.why)
	}
}

func (c *conditions) admitted() {
	if reason, message := c.notAdmitted(); reason != "" {
		c.set(v1alpha1.ConditionAdmitted, metav1.ConditionFalse, reason, message)
		return
	}
	c.set(v1alpha1.ConditionAdmitted, metav1.ConditionTrue, ReasonAdmitted, "by ClusterQueue "+queueName(c.s.base.workload))
}

// notAdmitted is why the base has no quota; no reason if it has.
func (c *conditions) notAdmitted() (reason, message string) {
	base := c.s.base
	switch {
	case c.out.Phase == v1alpha1.JobCompleted || c.out.Phase == v1alpha1.JobFailed:
		return ReasonFinished, "the job has ended"
	case c.ej.Spec.Suspend:
		return ReasonSuspended, "spec.suspend is true"
	case base == nil:
		return c.notMade()
	case base.admitted():
		return "", ""
	case gated(base):
		return c.waitsForPool()
	case base.deactivatedByKueue():
		return ReasonDeactivated, base.condition(kueue.WorkloadEvicted).Message
	case !base.active() && !base.markedByUs():
		return ReasonDeactivated, "Workload " + base.workload.Name + " was stopped: with spec.active: true it queues again"
	case base.evictedBy() != "" && (base.leaving() || base.evictedBy() != kueue.EvictedByPreemption):
		return base.evictedBy(), base.condition(kueue.WorkloadEvicted).Message
	case base.is(kueue.WorkloadQuotaReserved):
		return ReasonWaitingForCheck, pendingChecks(base.workload)
	case c.f.never != "":
		return ReasonExceedsLimit, c.f.never
	}
	return ReasonWaitingForQuota, waitsFor(base)
}

// waitsForPool is why the pool has not let a protected job through, as the controller of pools has
// written on its Job.
func (c *conditions) waitsForPool() (reason, message string) {
	if c.f.never != "" {
		return ReasonExceedsLimit, c.f.never
	}
	if reason, message, ok := names.Protection(c.s.base.job.Annotations); ok {
		return reason, message
	}
	return ReasonWaitingForPinned, "the pool has not looked for quota to set aside for the job yet"
}

// notMade is why there is no base.
func (c *conditions) notMade() (reason, message string) {
	switch {
	case c.f.blocked != "":
		return c.f.blocked, c.f.why
	case len(c.f.faults) > 0: // of which only the API server knew
		return ReasonTemplateInvalid, faultMessage(c.f.faults)
	case c.f.taken != "":
		return ReasonNameTaken, c.f.taken + " is there and is not this job's"
	}
	if c.f.refused != "" {
		return refusal.Reason, c.f.refused
	}
	return ReasonWaitingForQuota, "Kueue has not looked at the job yet"
}

func queueName(w *kueue.Workload) string {
	if w.Status.Admission == nil {
		return ""
	}
	return w.Status.Admission.ClusterQueue
}

// gated says that the pool has not let a protected job through yet.
func gated(base *part) bool {
	_, ok := base.job.Annotations[kueue.AnnotationAdmissionGatedBy]
	return ok
}

// waitsFor is what Kueue says a part waits for.
func waitsFor(p *part) string {
	if reserved := p.condition(kueue.WorkloadQuotaReserved); reserved != nil && reserved.Message != "" {
		return reserved.Message
	}
	return "Kueue has not looked at Job " + p.job.Name + " yet"
}

func pendingChecks(w *kueue.Workload) string {
	var waits []string
	for _, check := range w.Status.AdmissionChecks {
		if check.State != kueue.CheckReady {
			waits = append(waits, strings.TrimSpace(check.Name+" "+check.Message))
		}
	}
	if len(waits) == 0 {
		return "quota is reserved, and all admission checks are ready: Kueue starts the job next"
	}
	return "quota is reserved; not ready: " + strings.Join(waits, "; ")
}

func (c *conditions) protected() {
	if !protected(c.ej) {
		return
	}
	granted := c.s.base != nil && !gated(c.s.base)
	switch {
	case granted && !c.s.base.finished():
		c.set(v1alpha1.ConditionProtectedCapacityGranted, metav1.ConditionTrue, ReasonPinned, "the pool has set quota aside for the job")
	case granted || ended(c.ej):
		c.set(v1alpha1.ConditionProtectedCapacityGranted, metav1.ConditionFalse, ReasonFinished, "the job has ended")
	case c.s.base == nil:
		c.set(v1alpha1.ConditionProtectedCapacityGranted, metav1.ConditionFalse, ReasonWaitingForPinned, "the pool has not looked for quota to set aside for the job yet")
	default:
		reason, message := c.waitsForPool()
		c.set(v1alpha1.ConditionProtectedCapacityGranted, metav1.ConditionFalse, reason, message)
	}
}

// scaled says why there are fewer replicas than maxReplicas, or more.
func (c *conditions) scaled() {
	scaling := &c.ej.Spec.Scaling
	no := func(reason, message string) {
		c.set(v1alpha1.ConditionScaled, metav1.ConditionFalse, reason,
			fmt.Sprintf("%d of at most %d replicas: %s", c.out.Replicas, scaling.MaxReplicas, message))
	}
	why := staticRendezvous(c.ej)
	switch {
	case c.out.Phase == v1alpha1.JobCompleted || c.out.Phase == v1alpha1.JobFailed:
		no(ReasonFinished, "the job has ended")
	case c.ej.Spec.Suspend:
		no(ReasonSuspended, "spec.suspend is true")
	case why != "" && scaling.MaxReplicas > scaling.MinReplicas:
		no(v1alpha1.ReasonStaticRendezvous, why+", so that none can join once the job runs")
	case !c.s.base.admitted():
		no(ReasonNotAdmitted, "minReplicas come first")
	case c.out.Replicas > scaling.MaxReplicas:
		no(ReasonShrinking, "replicas are going")
	case c.out.Replicas == scaling.MaxReplicas:
		c.set(v1alpha1.ConditionScaled, metav1.ConditionTrue, ReasonAtMaximum, fmt.Sprintf("%d replicas", c.out.Replicas))
	default:
		no(c.missing())
	}
}

// missing is why an extra replica has no quota: the first one that has none speaks for all.
func (c *conditions) missing() (reason, message string) {
	if c.f.taken != "" {
		return ReasonNameTaken, c.f.taken + " is there and is not this job's"
	}
	if c.f.refused != "" {
		return refusal.Reason, c.f.refused
	}
	failed := ""
	for _, n := range c.s.order() {
		extra := c.s.extras[n]
		switch {
		case extra.admitted():
		case extra.failed() != nil:
			failed = fmt.Sprintf("Job %s: %s", extra.job.Name, extra.failed().Message)
		case !extra.finished():
			return ReasonQuotaLimit, waitsFor(&extra)
		}
	}
	if failed != "" {
		return ReasonExtraFailed, failed
	}
	return ReasonQuotaLimit, "the others are being made"
}
