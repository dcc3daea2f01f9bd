// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// Reasons of events.
const (
	EventStarted   = "Started"
	EventPreempted = "Preempted"
	EventGrown     = "Grown"
	EventShrunk    = "Shrunk"
	EventCompleted = "Completed"
	EventFailed    = "Failed"
)

type happening struct{ kind, reason, message string }

// happened returns the events for the changes between two statuses of a job.
func happened(before, after *v1alpha1.ElasticJobStatus) []happening {
	var out []happening
	add := func(kind, reason, format string, args ...any) {
		out = append(out, happening{kind: kind, reason: reason, message: fmt.Sprintf(format, args...)})
	}
	if n := after.Preemptions - before.Preemptions; n > 0 {
		add(v1.EventTypeWarning, EventPreempted, "others had the job evicted, %d times by now; it is in its queue again", after.Preemptions)
	}
	entered := func(phase v1alpha1.JobPhase) bool { return after.Phase == phase && before.Phase != phase }
	switch {
	case entered(v1alpha1.JobRunning):
		add(v1.EventTypeNormal, EventStarted, "the job has quota for %d replicas", after.Replicas)
	case entered(v1alpha1.JobCompleted):
		add(v1.EventTypeNormal, EventCompleted, "the job has succeeded")
	case entered(v1alpha1.JobFailed):
		message := "the job has failed"
		if c := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionFailed); c != nil {
			message = c.Reason + ": " + c.Message
		}
		add(v1.EventTypeWarning, EventFailed, "%s", message)
	}
	for _, message := range newlyRefused(before, after) {
		add(v1.EventTypeWarning, refusal.EventRefused, "%s", message)
	}
	if before.Phase == v1alpha1.JobRunning && after.Phase == v1alpha1.JobRunning {
		switch n := after.Replicas - before.Replicas; {
		case n > 0:
			add(v1.EventTypeNormal, EventGrown, "by %d to %d replicas", n, after.Replicas)
		case n < 0:
			add(v1.EventTypeNormal, EventShrunk, "by %d to %d replicas", -n, after.Replicas)
		}
	}
	return out
}

// newlyRefused returns the messages of conditions that report a refusal by the API server since the last
// status.
func newlyRefused(before, after *v1alpha1.ElasticJobStatus) (messages []string) {
	for _, kind := range []string{v1alpha1.ConditionAdmitted, v1alpha1.ConditionScaled} {
		was, is := meta.FindStatusCondition(before.Conditions, kind), meta.FindStatusCondition(after.Conditions, kind)
		if is != nil && is.Reason == refusal.Reason && (was == nil || was.Reason != refusal.Reason) {
			messages = append(messages, is.Message)
		}
	}
	return messages
}
