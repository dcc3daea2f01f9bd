// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// Recosted returns the batched sessions whose cost on an invoice about to be closed differs from their
// batch, as records with the new cost, and the batches to replace. This happens where the price book's
// discounts are counted over the month since the sessions went into batches. The records go into new
// batches before the old ones are deleted; a session that is in a correct batch already is left out.
func Recosted(batches []v1alpha1.UsageBatch, sessions []Session, closing func(invoice string) bool) (records []v1alpha1.UsageRecord, replaced []v1alpha1.UsageBatch) {
	costs := map[string]v1alpha1.Money{}
	for i := range sessions {
		if s := &sessions[i]; s.Batched && closing(s.Invoice) {
			costs[s.Charge.Session.ID] = v1alpha1.Money(s.Charge.Cost.String())
		}
	}
	if len(costs) == 0 {
		return nil, nil
	}
	right := map[string]bool{}
	for i := range batches {
		in := InBatches(batches[i : i+1])
		wrong := slices.ContainsFunc(in, func(r v1alpha1.UsageRecord) bool {
			cost, ok := costs[r.Name]
			return ok && cost != r.Status.Cost
		})
		if wrong {
			replaced, records = append(replaced, batches[i]), append(records, in...)
			continue
		}
		for k := range in {
			right[in[k].Name] = true
		}
	}
	records = slices.DeleteFunc(Distinct(records), func(r v1alpha1.UsageRecord) bool { return right[r.Name] })
	for i := range records {
		if cost, ok := costs[records[i].Name]; ok {
			records[i].Status.Cost = cost
		}
	}
	return records, replaced
}
