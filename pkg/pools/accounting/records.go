// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"cmp"
	"slices"
	"time"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// Distinct returns each record once, by name. A record of a namespace that is being deleted exists in
// another one too, for a while: the copy with the most complete status is used.
func Distinct(records []v1alpha1.UsageRecord) []v1alpha1.UsageRecord {
	sorted := slices.Clone(records)
	slices.SortFunc(sorted, func(a, b v1alpha1.UsageRecord) int { return compareCopies(&a, &b) })
	return slices.CompactFunc(sorted, func(a, b v1alpha1.UsageRecord) bool { return a.Name == b.Name })
}

// compareCopies sorts records by name, and of equal names the most complete copy first.
func compareCopies(a, b *v1alpha1.UsageRecord) int {
	return cmp.Or(
		cmp.Compare(a.Name, b.Name),
		first(a.Status.Invoice != "", b.Status.Invoice != ""),
		first(a.Status.UnitPrice != "", b.Status.UnitPrice != ""),
		first(a.Status.End != nil, b.Status.End != nil),
		first(a.DeletionTimestamp == nil, b.DeletionTimestamp == nil),
		cmp.Compare(a.Namespace, b.Namespace),
	)
}

// restoredAfter is the least time between the controller's annotation on a record and the creation of
// its object that identifies a restored record. Without a restore it is the time that a request waits.
const restoredAfter = 10 * time.Minute

// Restored reports whether a record without an end was restored from a backup without its status: its
// end, price and invoice are lost. It is billed once its end has been settled by hand.
func Restored(r *v1alpha1.UsageRecord) bool {
	made, err := time.Parse(time.RFC3339, r.Annotations[names.AnnotationRecorded])
	return err == nil && r.Status.End == nil && r.CreationTimestamp.Sub(made) > restoredAfter
}

// HowToSettle is the instruction on restored records.
const HowToSettle = "Say when each ended: nvtopo pool settle NAMESPACE/RECORD --end TIME, and --invoice ID if a final invoice has it"

// Within returns the records that were open at any time in a period, each once, sorted by their start.
func Within(records []v1alpha1.UsageRecord, p billing.Period) []v1alpha1.UsageRecord {
	kept := slices.DeleteFunc(Distinct(records), func(r v1alpha1.UsageRecord) bool {
		return !r.Spec.Start.Time.Before(p.End) || r.Status.End != nil && r.Status.End.Time.Before(p.Start)
	})
	slices.SortStableFunc(kept, func(a, b v1alpha1.UsageRecord) int { return a.Spec.Start.Compare(b.Spec.Start.Time) })
	return kept
}

// first sorts true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// overIn returns the invoices, by name, whose sessions can be deleted: final, and exported at least keep
// ago.
func overIn(invoices []v1alpha1.Invoice, keep time.Duration, now time.Time) map[string]bool {
	over := map[string]bool{}
	for i := range invoices {
		v := &invoices[i]
		over[v.Name] = v.Spec.Finalized && v.Status.ExportedAt != nil && !now.Before(v.Status.ExportedAt.Add(keep))
	}
	return over
}
