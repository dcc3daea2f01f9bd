// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// view is all known data of one pod.
type view struct {
	// pod is the existing pod or, once it is gone, its last state; nil if this process never saw it.
	pod *v1.Pod
	// gone is the end of a pod that is gone; zero while it exists.
	gone end
	// seenUntil is the time until which this or an earlier process saw all pods.
	seenUntil time.Time
	place     place
	records   []v1alpha1.UsageRecord
	now       time.Time
}

// steps are the writes for a pod, in this order.
type steps struct {
	create []v1alpha1.UsageRecord
	// end is set on those records of the pod, existing or just created, that endable returns.
	end *end
	// confirm lists the pod's restored records that continue, since it exists.
	confirm []v1alpha1.UsageRecord
	// release removes the finalizer from the pod, after the other writes.
	release bool
}

// goOn reports whether a record is to be created that continues one that ended too early.
func (s *steps) goOn() bool {
	return slices.ContainsFunc(s.create, func(r v1alpha1.UsageRecord) bool { return names.IsRestRecord(r.Name) })
}

// decide returns the writes for a pod. It depends on the view alone: a process that stops in between and
// starts again without memory ends with the same records.
func decide(v view) steps {
	if v.pod == nil {
		// Pods without the finalizer can disappear while no process watches.
		guess := end{at: later(v.seenUntil, known(v.records)), estimated: true}
		if len(endable(v.records, guess)) == 0 {
			return steps{}
		}
		return steps{end: &guess}
	}
	e, over := v.gone, !v.gone.at.IsZero()
	if !over {
		e, over = endOf(v.pod, v.now)
	}
	s := steps{create: begun(&v, missing(holds(v.pod, v.place, v.now), v.records, over, e), over, e)}
	if over && (len(s.create) > 0 || len(endable(v.records, e)) > 0) {
		s.end = &e
	}
	for i := range v.records {
		if !over && accounting.Restored(&v.records[i]) && !hasRest(v.records, &v.records[i]) {
			s.confirm = append(s.confirm, v.records[i])
		}
	}
	s.release = over && v.gone.at.IsZero() && slices.Contains(v.pod.Finalizers, names.FinalizerMetering)
	return s
}

// begun sets the start of new records that have none yet. It returns no records if the pod ended before
// its devices were its tenant's. That time is parsed only here: most events are of pods that have their
// records.
func begun(v *view, records []v1alpha1.UsageRecord, over bool, e end) []v1alpha1.UsageRecord {
	if len(records) == 0 {
		return nil
	}
	joined := v.place.since()
	if over && e.at.Before(joined) {
		return nil
	}
	start := metav1.NewTime(startOf(v.pod, joined, v.now))
	for i := range records {
		if records[i].Spec.Start.IsZero() {
			records[i].Spec.Start = start
		}
	}
	return records
}

// missing returns the records to create: wanted ones that do not exist, and continuations of those that
// ended too early. An end never changes, since it may be on an invoice: the continuation is a record of
// its own, from that end on.
func missing(wanted, have []v1alpha1.UsageRecord, over bool, e end) []v1alpha1.UsageRecord {
	var out []v1alpha1.UsageRecord
	for i := range wanted {
		w := wanted[i]
		if last := lastOf(have, w.Name); last != nil {
			if !tooEarly(&last.Status, over, e) {
				continue
			}
			w.Name = names.RestRecord(w.Name, last.Status.End.Time)
			w.Spec.Start = *last.Status.End
		}
		out = append(out, w)
	}
	return out
}

// tooEarly reports whether a record's end is too early: the pod still exists, or the end was estimated
// and is before the true one.
func tooEarly(s *v1alpha1.UsageRecordStatus, over bool, e end) bool {
	if s.End == nil {
		return false
	}
	return !over || s.Estimated && !e.estimated && e.at.Truncate(time.Second).After(s.End.Time)
}

// lastOf returns the record of a resource that ends last, or has no end; nil if there is none. name is
// the name of the first record.
func lastOf(have []v1alpha1.UsageRecord, name string) *v1alpha1.UsageRecord {
	var last *v1alpha1.UsageRecord
	for i := range have {
		r := &have[i]
		if !names.RecordsOf(name, r.Name) {
			continue
		}
		if last == nil || last.Status.End != nil && (r.Status.End == nil || r.Status.End.After(last.Status.End.Time)) {
			last = r
		}
	}
	return last
}

// endable returns the indices of a pod's records that end when the pod does. A restored record has lost
// its own end and perhaps its invoice. It ends this way only if the end is certain, in a month that was
// not over when it was restored, so that no final invoice has it, and if no record continues it.
func endable(records []v1alpha1.UsageRecord, e end) (at []int) {
	for i := range records {
		r := &records[i]
		open := r.Status.End == nil
		if open && accounting.Restored(r) {
			open = !e.estimated && r.CreationTimestamp.Time.Before(accounting.Month(e.at).End) && !hasRest(records, r)
		}
		if open {
			at = append(at, i)
		}
	}
	return at
}

// hasRest reports whether another of a pod's records continues a record.
func hasRest(records []v1alpha1.UsageRecord, from *v1alpha1.UsageRecord) bool {
	return slices.ContainsFunc(records, func(r v1alpha1.UsageRecord) bool {
		return r.Spec.Resource == from.Spec.Resource && r.Spec.Start.After(from.Spec.Start.Time)
	})
}

func hasOpen(records []v1alpha1.UsageRecord) bool {
	return slices.ContainsFunc(records, func(r v1alpha1.UsageRecord) bool { return r.Status.End == nil })
}

// known returns the last time at which the pod is known to have existed: when the last of its open
// records was created.
func known(records []v1alpha1.UsageRecord) time.Time {
	var last time.Time
	for i := range records {
		if records[i].Status.End == nil {
			last = later(last, records[i].CreationTimestamp.Time)
		}
	}
	return last
}

// ending returns the status of a record with its end, which is not before the start: another clock may
// have written it.
func ending(r *v1alpha1.UsageRecord, e end) v1alpha1.UsageRecordStatus {
	at := seconds(later(e.at, r.Spec.Start.Time))
	return v1alpha1.UsageRecordStatus{End: &at, Estimated: e.estimated}
}
