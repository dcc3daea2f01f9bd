// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"cmp"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// HoursQuery selects the GPU hours of a report.
type HoursQuery struct {
	Period billing.Period
	Tenant string // empty: all
	Now    time.Time
	// Foreign has a text for each pool on the devices that pods of no tenant hold now.
	Foreign []string
}

// GPUHours is the GPU hours that tenants held in a period. Its JSON form is the output of `nvtopo pool
// usage`.
type GPUHours struct {
	// From and Until are the requested period, cut off at the present.
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	// Tenant is the requested tenant; empty: all.
	Tenant   string          `json:"tenant,omitempty"`
	Hours    billing.Decimal `json:"hours"`
	Sessions int             `json:"sessions"`
	// Each list covers all hours, the most first.
	ByTenant []HoursOf `json:"byTenant"`
	ByQueue  []HoursOf `json:"byQueue"`
	ByModel  []HoursOf `json:"byModel"`
	// Items are the summands of the lists.
	Items []HoursItem `json:"items"`
	// Unrecorded are the parts of the period, by the day, that no session and no item of an invoice
	// covers.
	Unrecorded []billing.Period `json:"unrecorded"`
	// Notes state which hours are from invoices, and which are missing.
	Notes []string `json:"notes"`
}

// HoursOf is the hours of a tenant, queue or model.
type HoursOf struct {
	// Name is empty where it is not recorded.
	Name  string          `json:"name"`
	Hours billing.Decimal `json:"hours"`
	// Invoiced is the part of Hours that is from invoices.
	Invoiced billing.Decimal `json:"invoiced"`
	Sessions int             `json:"sessions"`
}

// HoursSource is the source of hours.
type HoursSource string

const (
	// FromSessions marks hours of sessions, cut to the requested period.
	FromSessions HoursSource = "sessions"
	// FromInvoice marks hours on an invoice of sessions that have been deleted, as billed: those of its
	// whole month.
	FromInvoice HoursSource = "invoice"
	// NotCounted marks hours on an invoice that are in no sum: only a part of its month is requested.
	NotCounted HoursSource = "invoice, not counted"
)

// HoursItem is the hours of one tenant, queue, model and source.
type HoursItem struct {
	Tenant string `json:"tenant"`
	// Queue and Model are empty where they are not recorded.
	Queue  string      `json:"queue,omitempty"`
	Model  string      `json:"model,omitempty"`
	Source HoursSource `json:"source"`
	// From and Until are the requested period, or an invoice's month.
	From     time.Time       `json:"from"`
	Until    time.Time       `json:"until"`
	Hours    billing.Decimal `json:"hours"`
	Sessions int             `json:"sessions"`
}

// GPUHoursOf computes the GPU hours of a period, of the tenants named and of those that have records or
// invoices. Sessions are cut to the period. The hours of deleted sessions are taken from their final
// invoice: its hours minus those of the sessions that still exist are added where its whole month is
// requested. So no hour is counted twice, also while sessions are being deleted.
func GPUHoursOf(q HoursQuery, tenants []string, records []v1alpha1.UsageRecord, invoices []v1alpha1.Invoice) *GPUHours {
	c := newHoursCount(q)
	for _, tenant := range tenants {
		c.tenant(tenant)
	}
	for _, r := range Distinct(records) {
		c.record(&r)
	}
	for i := range invoices {
		c.invoice(&invoices[i])
	}
	return c.report()
}

// itemKey identifies an item.
type itemKey struct {
	tenant, queue, model string
	source               HoursSource
	period               billing.Period
}

// heldHours is the hours of a number of sessions.
type heldHours struct {
	hours    *big.Rat
	sessions int
}

func (h *heldHours) add(hours *big.Rat, sessions int) {
	h.hours.Add(h.hours, hours)
	h.sessions += sessions
}

// lineOf identifies the lines of an invoice about one resource and model, at any price.
type lineOf struct{ invoice, resource, model string }

// hoursCount adds up hours.
type hoursCount struct {
	q     HoursQuery
	asked billing.Period // requested period until now; empty if it is in the future
	items map[itemKey]*heldHours
	// kept is the billed hours of the sessions that still exist, by their invoice line.
	kept     map[lineOf]*heldHours
	recorded recordedTime
	seen     map[string]bool // tenants
	held     []string        // records without an end
	wrong    []string
}

func newHoursCount(q HoursQuery) *hoursCount {
	asked := q.Period
	if now := q.Now.UTC().Truncate(time.Second); now.Before(asked.End) {
		asked.End = now
	}
	if asked.End.Before(asked.Start) {
		asked.End = asked.Start
	}
	return &hoursCount{
		q: q, asked: asked, items: map[itemKey]*heldHours{}, kept: map[lineOf]*heldHours{}, seen: map[string]bool{},
		recorded: recordedTime{days: map[int64]bool{}},
	}
}

// tenant adds a tenant to the report. It returns false for a tenant that is not requested.
func (c *hoursCount) tenant(name string) bool {
	asked := c.q.Tenant == "" || c.q.Tenant == name
	if asked {
		c.seen[name] = true
	}
	return asked
}

// record counts the part of a session that is in the period.
func (c *hoursCount) record(r *v1alpha1.UsageRecord) {
	if !c.tenant(r.Spec.Tenant) {
		return
	}
	s, err := SessionOf(r)
	switch {
	case err != nil:
		c.wrong = append(c.wrong, err.Error())
		return
	case Restored(r):
		if s.Start.Before(c.asked.End) {
			c.held = append(c.held, r.Namespace+"/"+r.Name)
			c.recorded.add(billing.Period{Start: later(s.Start, c.asked.Start), End: c.asked.End}) // its end is unknown
		}
		return
	}
	end := s.End
	if s.Open() {
		end = c.asked.End
	}
	if s.Invoice != "" && !s.Open() {
		of := lineOf{s.Invoice, s.Resource, s.Model}
		if c.kept[of] == nil {
			c.kept[of] = &heldHours{hours: new(big.Rat)}
		}
		c.kept[of].add(billedHours(&s), 1)
	}
	from, until := later(s.Start, c.asked.Start), earlier(end, c.asked.End)
	if !from.Before(until) {
		return
	}
	c.recorded.add(billing.Period{Start: from, End: until})
	c.item(itemKey{r.Spec.Tenant, r.Spec.Queue, s.Model, FromSessions, c.asked}).add(deviceHours(s.Quantity, until.Unix()-from.Unix()), 1)
}

// invoice counts the hours on a final invoice of sessions that have been deleted.
func (c *hoursCount) invoice(v *v1alpha1.Invoice) {
	if !c.tenant(v.Spec.Tenant) {
		return
	}
	month := periodOf(&v.Spec.Period)
	if !v.Spec.Finalized || !month.Start.Before(c.q.Period.End) || !c.q.Period.Start.Before(month.End) {
		return
	}
	read, err := InvoiceOf(v)
	if err != nil {
		c.wrong = append(c.wrong, err.Error())
		return
	}
	source := FromInvoice
	if month.Start.Before(c.q.Period.Start) || c.q.Period.End.Before(month.End) {
		source = NotCounted
	}
	lines := map[lineOf]*heldHours{}
	for i := range read.Lines {
		l := &read.Lines[i]
		of := lineOf{read.ID, l.Resource, l.Model}
		if lines[of] == nil {
			lines[of] = &heldHours{hours: new(big.Rat)}
		}
		lines[of].add(l.Hours.Rat(), l.Sessions)
	}
	for of, all := range lines {
		if kept := c.kept[of]; kept != nil {
			all.add(new(big.Rat).Neg(kept.hours), -kept.sessions)
		}
		if all.sessions > 0 && all.hours.Sign() > 0 {
			c.recorded.add(month)
			c.item(itemKey{v.Spec.Tenant, "", of.model, source, month}).add(all.hours, all.sessions)
		}
	}
}

func (c *hoursCount) item(k itemKey) *heldHours {
	if c.items[k] == nil {
		c.items[k] = &heldHours{hours: new(big.Rat)}
	}
	return c.items[k]
}

// report returns the counted hours, with a row for each tenant.
func (c *hoursCount) report() *GPUHours {
	out := &GPUHours{From: c.asked.Start.UTC(), Until: c.asked.End.UTC(), Tenant: c.q.Tenant, Items: []HoursItem{}}
	all, byTenant, byQueue, byModel := hoursBy{}, hoursBy{}, hoursBy{}, hoursBy{}
	for tenant := range c.seen {
		byTenant.of(tenant)
	}
	for k, h := range c.items {
		out.Items = append(out.Items, HoursItem{k.tenant, k.queue, k.model, k.source, k.period.Start.UTC(), k.period.End.UTC(), decimalHours(h.hours), h.sessions})
		if k.source == NotCounted {
			continue
		}
		all.add("", h, k.source)
		byTenant.add(k.tenant, h, k.source)
		byQueue.add(k.queue, h, k.source)
		byModel.add(k.model, h, k.source)
	}
	for tenant, sum := range byTenant {
		if sum.sessions == 0 {
			out.Items = append(out.Items, HoursItem{Tenant: tenant, Source: FromSessions, From: out.From, Until: out.Until})
		}
	}
	slices.SortFunc(out.Items, func(a, b HoursItem) int {
		return cmp.Or(b.Hours.Cmp(a.Hours), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Model, b.Model),
			cmp.Compare(a.Source, b.Source), a.From.Compare(b.From))
	})
	sum := all.of("")
	out.Hours, out.Sessions = decimalHours(sum.hours), sum.sessions
	out.ByTenant, out.ByQueue, out.ByModel = byTenant.sorted(), byQueue.sorted(), byModel.sorted()
	out.Unrecorded = c.recorded.gaps(c.asked)
	out.Notes = c.notes(out, sum.invoiced)
	return out
}

// hoursBy is sums by name.
type hoursBy map[string]*hoursSum

type hoursSum struct {
	heldHours

	invoiced *big.Rat
}

func (by hoursBy) of(name string) *hoursSum {
	if by[name] == nil {
		by[name] = &hoursSum{heldHours{hours: new(big.Rat)}, new(big.Rat)}
	}
	return by[name]
}

func (by hoursBy) add(name string, h *heldHours, source HoursSource) {
	sum := by.of(name)
	sum.add(h.hours, h.sessions)
	if source == FromInvoice {
		sum.invoiced.Add(sum.invoiced, h.hours)
	}
}

// sorted returns the sums, the most hours first.
func (by hoursBy) sorted() []HoursOf {
	names := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(by[b].hours.Cmp(by[a].hours), cmp.Compare(a, b)) })
	out := make([]HoursOf, 0, len(names))
	for _, name := range names {
		sum := by[name]
		out = append(out, HoursOf{name, decimalHours(sum.hours), decimalHours(sum.invoiced), sum.sessions})
	}
	return out
}

// billedHours returns the hours of an ended session on its invoice.
func billedHours(s *billing.Session) *big.Rat {
	if s.Fixed != nil {
		return deviceHours(s.Quantity, s.Fixed.Seconds)
	}
	return deviceHours(s.Quantity, s.End.Unix()-s.Start.Unix())
}

func deviceHours(quantity billing.Decimal, seconds int64) *big.Rat {
	hours := big.NewRat(seconds, 3600)
	return hours.Mul(hours, quantity.Rat())
}

// hoursDigits is the number of decimal places, as on invoices.
const hoursDigits = 6

func decimalHours(r *big.Rat) billing.Decimal {
	d, _ := billing.ParseDecimal(r.FloatString(hoursDigits)) // always parses: it has so few digits
	return d
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
