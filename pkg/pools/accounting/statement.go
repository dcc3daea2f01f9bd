// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// Statement is the result computed from a tenant's books: invoices, charges and balance.
type Statement struct {
	// Invoices are the present contents of the invoices that are not final in the API. Those with
	// Finalized are due.
	Invoices []v1alpha1.InvoiceSpec
	// Stale are the IDs of open invoices to delete: those of an earlier account of this name that no
	// record is marked with, and further pages without sessions.
	Stale []string
	// Sessions are the ended records that are on no final invoice, with their cost.
	Sessions []Session
	// Sums are the costs of sessions that were in the books as sums, with the page that each is on.
	Sums []SumOn
	// Open are the charges of open sessions, as if they ended now.
	Open []billing.Charge
	// Balance is the credits less Billed; Accrued is the sum of Open.
	Balance, Billed, Accrued billing.Amount
	// Wrong are the errors of the records that cannot be billed.
	Wrong []error
	// Held are the records that were restored without their status. They are on no invoice and in no
	// sum.
	Held []types.NamespacedName
	// NoPrices is the reason why no price book can be used, and the remedy; empty if one can. Balance
	// and Billed then include only credits, final invoices and the sessions whose price is fixed, and
	// nothing is invoiced.
	NoPrices string
}

// Session is a record with its charge.
type Session struct {
	Record types.NamespacedName
	Charge billing.Charge
	// Invoice is the ID of the session's invoice.
	Invoice string
	// Late reports that the record is to be marked with its invoice at once: the invoice of the month
	// that the session ended in is final already, or the record is to go into a batch.
	Late bool
	// Batched reports that the session is in a batch, which never changes.
	Batched bool
}

// Settles reports whether an invoice is to be closed or a record is late. Both are irreversible, so the
// books must be complete.
func (s *Statement) Settles() bool {
	return slices.ContainsFunc(s.Invoices, func(v v1alpha1.InvoiceSpec) bool { return v.Finalized }) ||
		slices.ContainsFunc(s.Sessions, func(s Session) bool { return s.Late }) ||
		slices.ContainsFunc(s.Sums, func(s SumOn) bool { return s.Late })
}

// Unpriced returns the resources, with their models, of sessions without a price in the price book.
func (s *Statement) Unpriced() []string {
	var out []string
	add := func(resource, model string, noPrice bool) {
		if model != "" {
			resource += " (" + model + ")"
		}
		if noPrice && !slices.Contains(out, resource) {
			out = append(out, resource)
		}
	}
	for i := range s.Sessions {
		c := &s.Sessions[i].Charge
		add(c.Session.Resource, c.Session.Model, c.NoPrice)
	}
	for i := range s.Sums {
		line := &s.Sums[i].Line
		add(line.Resource, line.Model, line.NoPrice)
	}
	for i := range s.Open {
		c := &s.Open[i]
		add(c.Session.Resource, c.Session.Model, c.NoPrice)
	}
	slices.Sort(out)
	return out
}

// desk is the intermediate state of computing a statement.
type desk struct {
	books    *Books
	account  billing.Account
	book     billing.Book
	final    []billing.Invoice
	isFinal  map[string]bool
	periods  map[string]billing.Period // of invoices that are not final, by ID
	pages    []string                  // pages beyond the first that are not final
	sessions []billing.Session         // sessions on no final invoice
	invoiced []billing.Session         // sessions on final pages
	on       map[string]string         // invoice, by its first page, of each ended session
	records  map[string]types.NamespacedName
	marked   map[string]bool               // sessions whose record names their invoice
	batched  map[string]bool               // sessions in a batch
	sums     map[string][]billing.Subtotal // sums of the books, by their invoice
	// earlier are the accounts of this name that were deleted before an invoice of theirs was closed, by
	// the ID of the invoice. The amount of that invoice is owed nevertheless.
	earlier map[string]billing.Account
}

// Compute makes the statement. It fails, with no statement, if the account or a final invoice cannot be
// read.
func (b *Books) Compute() (*Statement, error) {
	d := &desk{
		books: b, isFinal: map[string]bool{}, periods: map[string]billing.Period{},
		on: map[string]string{}, records: map[string]types.NamespacedName{}, marked: map[string]bool{}, batched: map[string]bool{},
		earlier: map[string]billing.Account{}, sums: map[string][]billing.Subtotal{},
	}
	s := &Statement{}
	var err error
	if d.account, err = AccountOf(b.Account); err != nil {
		return nil, err
	}
	d.book, s.NoPrices = b.book()
	if err := d.readInvoices(s); err != nil {
		return nil, err
	}
	d.readRecords(s)
	d.book.Parts = partsOf(d.sessions)
	d.assign(s)
	d.assignSums(s)
	s.Stale = slices.DeleteFunc(s.Stale, func(id string) bool {
		invoice, _ := billing.PageOf(id)
		_, owed := d.earlier[invoice]
		return owed
	})
	if err := d.invoice(s); err != nil {
		return nil, err
	}
	if s.NoPrices != "" {
		s.holdInvoices()
	}
	return s, d.balance(s)
}

// holdInvoices removes all changes of invoices and records from the statement.
func (s *Statement) holdInvoices() {
	s.Invoices, s.Stale = nil, nil
	for i := range s.Sessions {
		s.Sessions[i].Late = false
	}
	for i := range s.Sums {
		s.Sums[i].Late = false
	}
}

func (d *desk) readInvoices(s *Statement) error {
	for i := range d.books.Invoices {
		v := &d.books.Invoices[i]
		if v.Spec.Tenant != d.account.Tenant {
			continue
		}
		period := periodOf(&v.Spec.Period)
		invoice, page := billing.PageOf(v.Spec.InvoiceID)
		if !v.Spec.Finalized && page > 1 {
			d.pages = append(d.pages, v.Name)
		}
		switch {
		case v.Spec.Finalized:
			final, err := InvoiceOf(v)
			if err != nil {
				return err
			}
			d.final = append(d.final, final)
			d.isFinal[final.ID] = true
		case invoice == billing.InvoiceID(d.account, period):
			d.periods[invoice] = period
		default:
			s.Stale = append(s.Stale, v.Name)
		}
	}
	return nil
}

func (d *desk) readRecords(s *Statement) {
	for _, r := range append(d.openBatched(), Distinct(Unbatched(d.books.Records, d.books.AllBatches()))...) {
		switch {
		case r.Spec.Tenant != d.account.Tenant:
			continue
		case d.isFinal[r.Status.Invoice]:
			d.readInvoiced(&r)
			continue
		case Restored(&r):
			s.Held = append(s.Held, types.NamespacedName{Namespace: r.Namespace, Name: r.Name})
			continue
		}
		session, err := SessionOf(&r)
		if err != nil {
			s.Wrong = append(s.Wrong, err)
			continue
		}
		d.sessions = append(d.sessions, session)
		d.marked[session.ID] = session.Invoice != ""
		d.records[session.ID] = types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	}
}

// readInvoiced reads a record that is on a final page, if another page of its invoice is not final. The
// hours of its session are used for discounts there.
func (d *desk) readInvoiced(r *v1alpha1.UsageRecord) {
	invoice, _ := billing.PageOf(r.Status.Invoice)
	if d.isFinal[invoice] { // the first page becomes final last
		return
	}
	if session, err := SessionOf(r); err == nil && !session.Open() {
		d.invoiced = append(d.invoiced, session)
		d.on[session.ID] = invoice
	}
}

// openBatched returns the sessions in batches that are on no final page, each once.
func (d *desk) openBatched() []v1alpha1.UsageRecord {
	var final, open []v1alpha1.UsageBatch
	for _, b := range d.books.Batches {
		if d.isFinal[b.Spec.Invoice] {
			final = append(final, b)
		} else {
			open = append(open, b)
		}
	}
	d.readInvoicedBatches(final)
	out := Distinct(Unbatched(InBatches(open), final))
	for i := range out {
		d.batched[out[i].Name] = true
	}
	return out
}

// readInvoicedBatches reads the batches of final pages as readInvoiced reads records.
func (d *desk) readInvoicedBatches(final []v1alpha1.UsageBatch) {
	for i := range final {
		if invoice, _ := billing.PageOf(final[i].Spec.Invoice); d.isFinal[invoice] {
			continue
		}
		for _, r := range InBatches(final[i : i+1]) {
			d.readInvoiced(&r)
		}
	}
}

// assign finds the invoice of each ended session.
func (d *desk) assign(s *Statement) {
	var kept []billing.Session
	for _, session := range d.sessions {
		if session.Open() {
			kept = append(kept, session)
			continue
		}
		id, known := d.invoiceFor(session.End, session.Invoice)
		if !known {
			s.Wrong = append(s.Wrong, fmt.Errorf("record %s: status.invoice: %s is not there", d.records[session.ID], session.Invoice))
			continue
		}
		d.on[session.ID] = id
		kept = append(kept, session)
	}
	d.sessions = kept
}

// invoiceFor returns the invoice of a session that ended at a time: the one of the month it ended in, or
// of the first later month whose invoice is not final. The first page of an invoice becomes final last.
// known is false for a mark that names no invoice.
func (d *desk) invoiceFor(end time.Time, mark string) (id string, known bool) {
	p, marked := Month(end), mark != ""
	invoice, _ := billing.PageOf(mark)
	for p.Start.Before(d.books.Now) && invoice != billing.InvoiceID(d.account, p) &&
		(marked || d.isFinal[billing.InvoiceID(d.account, p)]) {
		p = after(p)
	}
	id = billing.InvoiceID(d.account, p)
	switch {
	case marked && invoice != id && d.ofEarlier(invoice):
		return invoice, true
	case marked && invoice != id:
		return "", false
	}
	d.periods[id] = p
	return id, true
}

// ofEarlier reports whether an invoice belongs to an earlier account of this name, and if so adds it to
// the invoices to write.
func (d *desk) ofEarlier(id string) bool {
	account, p, ok := billing.AccountOfInvoice(id, d.account.Tenant)
	if ok = ok && account.UID != d.account.UID; ok {
		d.earlier[id], d.periods[id] = account, p
	}
	return ok
}

// invoice computes the invoices that are not final. Their existing pages without a session are stale.
func (d *desk) invoice(s *Statement) error {
	on := map[string][]billing.Session{}
	for _, session := range slices.Concat(d.sessions, d.invoiced) {
		if id := d.on[session.ID]; id != "" {
			on[id] = append(on[id], session)
		}
	}
	toBatch, written := d.toBatch(), map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(d.periods)) {
		p := d.periods[id]
		account, earlier := d.earlier[id]
		if !earlier {
			account = d.account
		}
		pages, err := billing.Bill(d.book, account, p, on[id], d.sums[id], d.finalPages(id), d.books.Now)
		if err != nil {
			return fmt.Errorf("invoice %s: %w", id, err)
		}
		due := !d.books.Now.Before(p.End.Add(d.books.Grace))
		for i := range pages {
			if page := &pages[i]; !d.isFinal[page.ID] {
				written[page.ID] = true
				s.Invoices = append(s.Invoices, specOf(page.Invoice, due))
				d.charge(s, page, toBatch)
				s.addSums(page)
			}
		}
	}
	for _, page := range d.pages {
		if !written[page] && !slices.Contains(s.Stale, page) {
			s.Stale = append(s.Stale, page)
		}
	}
	slices.SortFunc(s.Invoices, func(a, b v1alpha1.InvoiceSpec) int {
		return cmp.Or(a.Period.Start.Compare(b.Period.Start.Time), cmp.Compare(a.Page, b.Page))
	})
	return nil
}

// toBatch returns the sessions whose record is to be marked with its invoice, to go into a batch.
func (d *desk) toBatch() map[string]bool {
	_, unmarked := d.books.Ready(d.books.BatchAfter)
	names := map[string]bool{}
	for i := range unmarked {
		names[unmarked[i].Name] = true
	}
	return names
}

// charge adds the charges of a page's sessions to the statement. toBatch are the sessions whose record
// is to name its page.
func (d *desk) charge(s *Statement, page *billing.Page, toBatch map[string]bool) {
	for _, c := range page.Charges {
		late := !page.Period.Has(c.Session.End) && !d.marked[c.Session.ID] || toBatch[c.Session.ID]
		s.Sessions = append(s.Sessions, Session{
			Record: d.records[c.Session.ID], Charge: c, Invoice: page.ID, Late: late, Batched: d.batched[c.Session.ID],
		})
	}
}

// finalPages returns the numbers of the final pages of an invoice.
func (d *desk) finalPages(id string) map[int]bool {
	out := map[int]bool{}
	for final := range d.isFinal {
		if invoice, page := billing.PageOf(final); invoice == id {
			out[page] = true
		}
	}
	return out
}

func (d *desk) balance(s *Statement) error {
	charges := make([]billing.Charge, len(s.Sessions))
	for i := range s.Sessions {
		charges[i] = s.Sessions[i].Charge
	}
	var err error
	if s.Balance, err = d.account.Balance(d.final, charges); err != nil {
		return err
	}
	s.Billed = billing.Sum(charges)
	for i := range s.Sums {
		s.Balance = s.Balance.Minus(s.Sums[i].Line.Subtotal)
		s.Billed = s.Billed.Plus(s.Sums[i].Line.Subtotal)
	}
	for _, v := range d.final {
		s.Billed = s.Billed.Plus(v.Total)
	}
	// With discounts by period, the hours of this month's bill are added up.
	current, together := billing.InvoiceID(d.account, Month(d.books.Now)), d.book.DiscountScope != billing.PerSession
	bill := slices.DeleteFunc(slices.Clone(d.sessions), func(session billing.Session) bool {
		return !session.Open() && (!together || d.on[session.ID] != current)
	})
	if s.Open, err = billing.Accrued(d.book, bill, d.books.Now); err != nil {
		return err
	}
	s.Accrued = billing.Sum(s.Open)
	return nil
}
