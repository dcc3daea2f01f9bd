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

// Reasons of the conditions. A job that lost its quota has Kueue's reasons, such as Preempted and
// PodsReadyTimeout.
const (
	ReasonFinished  = "Finished"
	ReasonSuspended = "Suspended"

	// Reasons why a job's objects cannot be rendered.
	ReasonNoTenant           = "NamespaceHasNoTenant"
	ReasonPoolNotFound       = "PoolNotFound"
	ReasonQueueNotFound      = "QueueNotFound"
	ReasonQuotaNotConfigured = "QuotaNotConfigured"
	ReasonTemplateInvalid    = "TemplateInvalid"
	ReasonNameTaken          = "NameTaken"

	// Reasons of Admitted.
	ReasonAdmitted         = "Admitted"
	ReasonWaitingForQuota  = "WaitingForQuota"
	ReasonWaitingForCheck  = "WaitingForAdmissionCheck"
	ReasonWaitingForPinned = names.ProtectedSoon
	ReasonDeactivated      = "Deactivated"

	// ReasonExceedsLimit marks a job that can never start.
	ReasonExceedsLimit = "ExceedsLimit"

	// Reasons of ProtectedCapacityGranted. A waiting job has the reasons of package names, in Admitted,
	// too.
	ReasonPinned = "Pinned"

	// Reasons of Scaled, beside v1alpha1.ReasonStaticRendezvous.
	ReasonAtMaximum   = "AtMaximum"
	ReasonNotAdmitted = "NotAdmitted"
	ReasonQuotaLimit  = "QuotaLimit"
	ReasonShrinking   = "Shrinking"
	ReasonExtraFailed = "ExtraReplicasFailed"

	// Reasons of TemplateValid.
	ReasonValid   = "Valid"
	ReasonInvalid = "Invalid"

	// Reasons of Complete and Failed.
	ReasonSucceeded          = "Succeeded"
	ReasonJobFailed          = "JobFailed"
	ReasonMaxRunTimeExceeded = "MaxRunTimeExceeded"
)

// maxMessage is the longest condition message that the API server admits. It is applied to bytes, while
// the API server counts characters.
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

// notAdmitted returns why the base has no quota; an empty reason if it has.
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

// waitsForPool returns why the pool has not released a protected job, as the computepool controller has
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

// notMade returns why the base does not exist.
func (c *conditions) notMade() (reason, message string) {
	switch {
	case c.f.blocked != "":
		return c.f.blocked, c.f.why
	case len(c.f.faults) > 0: // faults that only the API server found
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

// gated reports whether the pool has not released a protected job yet.
func gated(base *part) bool {
	_, ok := base.job.Annotations[kueue.AnnotationAdmissionGatedBy]
	return ok
}

// waitsFor returns Kueue's message on the quota that a part waits for.
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

// scaled sets the condition Scaled, with the reason why the job has fewer replicas than maxReplicas, or
// more.
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

// missing returns why the job lacks extra replicas: the reason of the first waiting one, or else of a
// failed one.
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
