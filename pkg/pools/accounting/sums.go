// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"fmt"

	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// SumOn is a sum of sessions on a page of an invoice that is not final.
type SumOn struct {
	billing.Subtotal // its Invoice is the page

	// Late reports that the sessions are to be marked with it at once, as Session.Late does.
	Late bool
}

// assignSums finds the invoice of each sum, as readRecords and assign do for a session.
func (d *desk) assignSums(s *Statement) {
	for _, sum := range d.books.Sums {
		if d.isFinal[sum.Invoice] {
			if invoice, _ := billing.PageOf(sum.Invoice); !d.isFinal[invoice] { // the first page becomes final last
				d.sums[invoice] = append(d.sums[invoice], sum)
			}
			continue
		}
		id, known := d.invoiceFor(sum.Ended.Start, sum.Invoice)
		if !known {
			s.Wrong = append(s.Wrong, fmt.Errorf("%d records: status.invoice: %s is not there", sum.Line.Sessions, sum.Invoice))
			continue
		}
		d.sums[id] = append(d.sums[id], sum)
	}
}

// addSums adds the sums on a page to the statement.
func (s *Statement) addSums(page *billing.Page) {
	for _, sum := range page.Sums {
		late := sum.Invoice == "" && !page.Period.Equal(sum.Ended)
		sum.Invoice = page.ID
		s.Sums = append(s.Sums, SumOn{sum, late})
	}
}
