// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// Reasons of the events.
const (
	eventReassigned          = "GPUsReassigned"
	eventSwapped             = "GPUsSwapped"
	eventEscaped             = "GPUsEscaped"
	eventMisbound            = "ThreadsOutsideCPUs"
	eventUnrecorded          = "GPUsUnrecorded"
	eventMalformedAllocation = "MalformedAllocation"
	eventStaleAllocation     = "StaleAllocation"

	actionVerify = "Verifying"
)

// reporter reports each finding once, as an event on the pod and in the metrics. Only the round uses it.
type reporter struct {
	recorder events.EventRecorder
	metrics  *metrics
	strict   bool
	said     map[reportKey]string // entry -> the state and devices last reported
	lost     map[reportKey]bool   // containers reported as unrecorded
}

type reportKey struct {
	uid types.UID
	slot
}

func keyOf(a *v1alpha1.Allocation) reportKey {
	return reportKey{a.PodUID, slot{a.Container, a.Resource}}
}

func saying(a *v1alpha1.Allocation) string { return a.State + " " + strings.Join(a.GPUs, ",") }

func newReporter(r events.EventRecorder, m *metrics, strict bool) *reporter {
	return &reporter{recorder: r, metrics: m, strict: strict, said: map[reportKey]string{}}
}

// recall marks the allocations that an earlier process published as reported.
func (r *reporter) recall(published []v1alpha1.Allocation) {
	for i := range published {
		r.said[keyOf(&published[i])] = saying(&published[i])
	}
}

// entries reports the entries that changed since the last call.
func (r *reporter) entries(all []entry) {
	now := make(map[reportKey]string, len(all))
	for i := range all {
		e := &all[i]
		k, s := keyOf(&e.Allocation), saying(&e.Allocation)
		now[k] = s
		if r.said[k] == s || e.State == v1alpha1.StateConfirmed {
			continue
		}
		r.metrics.mismatches.WithLabelValues(e.State).Inc()
		r.event(e)
	}
	r.said = now
}

func (r *reporter) event(e *entry) {
	var reason, what string
	switch e.State {
	case v1alpha1.StateSwapped:
		reason, what = eventSwapped, fmt.Sprintf("they were chosen for %s, which has those chosen for this one", e.with)
	case v1alpha1.StateReassigned:
		reason, what = eventReassigned, "the scheduler chose "+strings.Join(e.want, ", ")
	default:
		return
	}
	then := "the annotations will be corrected"
	if r.strict {
		then = "the container will not start"
	}
	r.recorder.Eventf(reference(e.Namespace, e.Pod, e.PodUID), nil, v1.EventTypeWarning, reason, actionVerify,
		"container %s: kubelet gave it %s of %s; %s; %s", e.Container, strings.Join(e.GPUs, ", "), e.Resource, what, then)
}

// unrecorded reports the containers that run without a record, once each.
func (r *reporter) unrecorded(all []missing) {
	now := make(map[reportKey]bool, len(all))
	for _, m := range all {
		k := reportKey{m.pod.UID, slot{container: m.container}}
		now[k] = true
		if r.lost[k] {
			continue
		}
		r.metrics.mismatches.WithLabelValues(kindUnrecorded).Inc()
		r.recorder.Eventf(referenceTo(m.pod), nil, v1.EventTypeWarning, eventUnrecorded, actionVerify,
			"container %s is running, but kubelet's record has no devices for it; kubelet may give its devices to another pod until this container is restarted", m.container)
	}
	r.lost = now
}

// annotation reports an annotation that is not used. The caller ensures that it is called once.
func (r *reporter) annotation(pod *v1.Pod, err error) {
	reason, then := eventMalformedAllocation, "the node agent ignores the annotation and treats the pod as one without a choice"
	if errors.Is(err, errStale) {
		reason = eventStaleAllocation
	}
	if errors.Is(err, errMoved) {
		then = "the annotation will be corrected to what kubelet gives the pod"
	}
	r.recorder.Eventf(referenceTo(pod), nil, v1.EventTypeWarning, reason, actionVerify, "%s; %s", err, then)
}

// reference returns a reference to the pod of an entry, which may be gone already.
func reference(namespace, name string, uid types.UID) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: uid}
}

func referenceTo(pod *v1.Pod) *v1.ObjectReference { return reference(pod.Namespace, pod.Name, pod.UID) }
