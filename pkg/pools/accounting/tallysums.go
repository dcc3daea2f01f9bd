// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// terms is all that sums depend on beside their sessions.
type terms struct {
	tenant, uid string // of the account
	book        billing.Book
	noPrices    bool            // the book is a placeholder without prices
	final       map[string]bool // the IDs of the final invoices
}

// sumKey identifies a sum: its sessions agree in all fields.
type sumKey struct {
	month                           int64 // month of their ends
	invoice, resource, model, price string
	noPrice, batched                bool
}

func keyOf(c *billing.Charge, in source) sumKey {
	s := &c.Session
	return sumKey{Month(s.End).Start.Unix(), s.Invoice, s.Resource, s.Model, c.UnitPrice.String(), c.NoPrice, in.batch != nil}
}

// atOnce is the number of sessions rated at once, which bounds the memory.
const atOnce = 1000

// Statement computes the statement for the account, prices, time and grace of books. It also returns the
// books, completed with the records that may be written because of the statement. A discount over the
// month depends on all of its sessions: with one, the statement is computed from scratch.
func (t *Tally) Statement(of Books) (*Books, *Statement, error) {
	if err := t.fill(&of); err != nil {
		return nil, nil, err
	}
	s, err := of.Compute()
	return &of, s, err
}

// fill completes books with the tally's data.
func (t *Tally) fill(of *Books) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	of.Invoices, of.Marks = t.allInvoices(), maps.Clone(t.marks)
	alone, err := t.refresh(of)
	if err == nil && alone {
		of.Records, of.Batches = written(maps.Values(t.apart))
		of.Sums = t.sumsOf(func(sumKey) bool { return true })
	} else if err == nil {
		of.Records, of.Batches = t.all()
	}
	return err
}

// WithBatches computes the statement of separately read records and invoices, and of the tally's
// batches, which never change. ok is false if the tally's batches do not have the given UIDs, or cannot
// be added up.
func (t *Tally) WithBatches(of Books, uids map[types.UID]bool) (books *Books, s *Statement, ok bool, err error) {
	if ok, err = t.fillBatches(&of, uids); err != nil || !ok {
		return nil, nil, false, err
	}
	s, err = of.Compute()
	return &of, s, true, err
}

// fillBatches completes books with the tally's batches.
func (t *Tally) fillBatches(of *Books, uids map[types.UID]bool) (ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !maps.Equal(uids, t.batchUIDs()) {
		return false, nil
	}
	of.Marks, of.Summed = map[string]int{}, []v1alpha1.UsageBatch{}
	for _, b := range t.batches {
		of.Marks[b.Spec.Invoice]++
		of.Summed = append(of.Summed, *b)
	}
	if ok, err = t.refresh(of); err != nil || !ok {
		return false, err
	}
	_, of.Batches = written(func(yield func(source) bool) {
		for _, s := range t.apart {
			if s.batch != nil && !yield(s) {
				return
			}
		}
	})
	of.Sums = t.sumsOf(func(k sumKey) bool { return k.batched })
	return true, nil
}

func (t *Tally) sumsOf(is func(sumKey) bool) (out []billing.Subtotal) {
	for key, sum := range t.sums {
		if is(key) {
			out = append(out, *sum)
		}
	}
	return out
}

// finalOf returns the IDs of a tenant's final invoices.
func finalOf(tenant string, invoices []v1alpha1.Invoice) map[string]bool {
	final := map[string]bool{}
	for i := range invoices {
		if v := &invoices[i].Spec; v.Finalized && v.Tenant == tenant {
			final[v.InvoiceID] = true
		}
	}
	return final
}

// all returns all records and batches.
func (t *Tally) all() (records []v1alpha1.UsageRecord, batches []v1alpha1.UsageBatch) {
	for name := range t.recorded {
		for _, s := range t.entries[name].sources {
			if s.record != nil {
				records = append(records, *s.record)
			}
		}
	}
	for _, b := range t.batches {
		batches = append(batches, *b)
	}
	return records, batches
}

// refresh updates the sums to the account, prices, invoices and time of books. alone is false, and there
// are no sums, where a discount is over the month.
func (t *Tally) refresh(of *Books) (alone bool, err error) {
	book, noPrices := of.book()
	if book.DiscountScope != billing.PerSession {
		t.terms = nil
		return false, nil
	}
	err = t.setTerms(&terms{
		tenant: of.Account.Name, uid: string(of.Account.UID), book: book, noPrices: noPrices != "", final: finalOf(of.Account.Name, of.Invoices),
	})
	for some := range slices.Chunk(slices.Collect(maps.Keys(t.changed)), atOnce) {
		if err == nil {
			err = t.subtract(some)
		}
		if err == nil {
			err = t.sum(some, of.Now)
		}
	}
	t.changed = map[string]bool{}
	if err != nil {
		t.terms = nil
	}
	return true, err
}

// setTerms sets new terms, and marks the sessions that they affect to be rated. A fixed price is
// independent of the price book.
func (t *Tally) setTerms(by *terms) error {
	was := t.terms
	switch {
	case was == nil || was.tenant != by.tenant || was.uid != by.uid || !maps.Equal(was.final, by.final):
		t.sums, t.apart, t.changed = map[sumKey]*billing.Subtotal{}, map[string]source{}, map[string]bool{}
		for name, e := range t.entries {
			e.summed, t.changed[name] = source{}, true
			t.entries[name] = e
		}
	case was.noPrices != by.noPrices || !was.book.Equal(by.book):
		for name := range t.apart {
			t.changed[name] = true
		}
		var unpriced []string
		for name, e := range t.entries {
			if e.summed != (source{}) && !e.summed.priced() {
				unpriced = append(unpriced, name)
				t.changed[name] = true
			}
		}
		for some := range slices.Chunk(unpriced, atOnce) {
			if err := t.subtract(some); err != nil { // with the old terms
				return err
			}
		}
	}
	t.terms = by
	return nil
}

// priced reports whether the price of a session is fixed.
func (s source) priced() bool {
	if s.record != nil {
		return s.record.Status.UnitPrice != ""
	}
	return s.batch.Spec.Groups[s.group].UnitPrice != ""
}

// subtract removes sessions from their sums.
func (t *Tally) subtract(names []string) error {
	var sessions []billing.Session
	from := map[string]source{}
	for _, name := range names {
		e := t.entries[name]
		if e.summed == (source{}) {
			continue
		}
		from[name] = e.summed
		r := e.summed.read()
		session, err := SessionOf(&r)
		if err != nil {
			return err
		}
		sessions = append(sessions, session)
		e.summed = source{}
		t.entries[name] = e
	}
	charges, err := t.rate(sessions)
	for i := range charges {
		key := keyOf(&charges[i], from[charges[i].Session.ID])
		sum := t.sums[key]
		if sum.Remove(&charges[i]); sum.Line.Sessions == 0 {
			delete(t.sums, key)
		}
	}
	return err
}

// sum adds sessions to sums, or to apart.
func (t *Tally) sum(names []string, now time.Time) error {
	var sessions []billing.Session
	for _, name := range names {
		e := t.entries[name]
		delete(t.apart, name)
		if len(e.sources) == 0 {
			delete(t.entries, name)
			continue
		}
		t.apart[name] = chosen(e.sources, t.terms.final)
		r := t.apart[name].read()
		if session, err := SessionOf(&r); err == nil && !session.Open() && t.terms.knows(&session, now) {
			sessions = append(sessions, session)
		}
	}
	charges, err := t.rate(sessions)
	for i := range charges {
		c := &charges[i]
		name := c.Session.ID
		s := t.apart[name]
		if !t.terms.settled(s, c) {
			continue
		}
		delete(t.apart, name)
		e := t.entries[name]
		e.summed = s
		t.entries[name] = e
		key := keyOf(c, s)
		if t.sums[key] == nil {
			t.sums[key] = billing.SubtotalOf(c, Month(c.Session.End))
		}
		t.sums[key].Add(c)
	}
	return err
}

// rate rates sessions of which each has its own discount.
func (t *Tally) rate(sessions []billing.Session) ([]billing.Charge, error) {
	if len(sessions) == 0 {
		return nil, nil
	}
	book := t.terms.book
	book.Parts = partsOf(sessions)
	return billing.Rate(book, sessions)
}

// knows reports whether a session is the tenant's and, if it is marked, whether its invoice exists.
func (t *terms) knows(s *billing.Session, now time.Time) bool {
	if s.Tenant != t.tenant || s.Invoice == "" || t.final[s.Invoice] {
		return s.Tenant == t.tenant
	}
	invoice, _ := billing.PageOf(s.Invoice)
	account, p, ok := billing.AccountOfInvoice(invoice, t.tenant)
	return ok && (account.UID != t.uid || p.Start.Before(now) && !p.Start.Before(Month(s.End).Start))
}

// settled reports whether a session with that charge needs no write.
func (t *terms) settled(s source, c *billing.Charge) bool {
	if s.record == nil || t.final[c.Session.Invoice] || t.noPrices && c.Session.Fixed == nil {
		return true
	}
	status := s.record.Status
	Fix(&status, c)
	return status == s.record.Status
}

// written returns the records among sources, and for each session in a batch a batch with it alone.
func written(sources iter.Seq[source]) (records []v1alpha1.UsageRecord, batches []v1alpha1.UsageBatch) {
	for s := range sources {
		if s.record != nil {
			records = append(records, *s.record)
			continue
		}
		group := s.batch.Spec.Groups[s.group]
		group.Sessions = group.Sessions[s.at : s.at+1]
		one := *s.batch
		one.Spec.Groups = []v1alpha1.UsageGroup{group}
		batches = append(batches, one)
	}
	return records, batches
}
