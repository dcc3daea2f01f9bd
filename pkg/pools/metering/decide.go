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

// view is what is known of one pod.
type view struct {
	// pod as it is or, once it is gone, as it was; nil if this process never saw it.
	pod *v1.Pod
	// gone is its end once it is gone; zero while it is there.
	gone end
	// seenUntil is until when this or an earlier process saw all pods.
	seenUntil time.Time
	place     place
	records   []v1alpha1.UsageRecord
	now       time.Time
}

// steps is what is to be written for a pod, in this order.
type steps struct {
	create []v1alpha1.UsageRecord
	// end those records of the pod, made just now or before, that endable reports.
	end *end
	// confirm these records of the pod, which were restored: it is there, so that they go on.
	confirm []v1alpha1.UsageRecord
	// release takes the finalizer from the pod, once all that has been written.
	release bool
}

// goOn: a record is to be made that goes on where another one ended too early.
func (s *steps) goOn() bool {
	return slices.ContainsFunc(s.create, func(r v1alpha1.UsageRecord) bool { return names.IsRestRecord(r.Name) })
}

// decide says what is to be written. It depends on what is known alone: whoever does half of it and
// then begins anew, without memory, ends with the same records.
func decide(v view) steps {
	if v.pod == nil {
		// Pods that nobody keeps until their end is written can go while nobody looks.
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

// begun sets the start of records that are to be made and have none yet. It returns no records if the pod
// ended before its devices were its tenant's. Since when they are is asked for only here: most events are of
// pods that have their records.
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

// missing are the records to make: those of the wanted ones that are not there, and the rest of those
// that ended too early. An end never changes, since it may be on an invoice: the rest is a record of
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

// tooEarly: the pod is there, though its record has ended; or its record has a guessed end, before
// the true one.
func tooEarly(s *v1alpha1.UsageRecordStatus, over bool, e end) bool {
	if s.End == nil {
		return false
	}
	return !over || s.Estimated && !e.estimated && e.at.Truncate(time.Second).After(s.End.Time)
}

// lastOf is the record of a resource that ends last, or has no end; nil if there is none. name is that
// of the first.
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

// endable are the records of a pod, by their place in the list, that end when the pod does. One that was
// restored has lost its own end and perhaps its invoice. It ends so only if the end is certain, in a month
// that was not over when it was restored, so that no final invoice has it, and if no record goes on from it.
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

// hasRest reports whether another one of a pod's records goes on from a record.
func hasRest(records []v1alpha1.UsageRecord, from *v1alpha1.UsageRecord) bool {
	return slices.ContainsFunc(records, func(r v1alpha1.UsageRecord) bool {
		return r.Spec.Resource == from.Spec.Resource && r.Spec.Start.After(from.Spec.Start.Time)
	})
}

func hasOpen(records []v1alpha1.UsageRecord) bool {
	return slices.ContainsFunc(records, func(r v1alpha1.UsageRecord) bool { return r.Status.End == nil })
}

// known is the last time that the open ones among a pod's records say it was there: when they were
// made.
func known(records []v1alpha1.UsageRecord) time.Time {
	var last time.Time
	for i := range records {
		if records[i].Status.End == nil {
			last = later(last, records[i].CreationTimestamp.Time)
		}
	}
	return last
}

// ending is the status of a record with its end, which is not before the start: another clock may
// have written it.
func ending(r *v1alpha1.UsageRecord, e end) v1alpha1.UsageRecordStatus {
	at := seconds(later(e.at, r.Spec.Start.Time))
	return v1alpha1.UsageRecordStatus{End: &at, Estimated: e.estimated}
}
