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

// HoursQuery says which GPU hours are asked for.
type HoursQuery struct {
	Period billing.Period
	Tenant string // empty: all
	Now    time.Time
	// Foreign says, pool by pool, what pods of no tenant hold now.
	Foreign []string
}

// GPUHours are the GPU hours that tenants held in a time. Its JSON form is what `nvtopo pool usage` prints.
type GPUHours struct {
	// From and Until are the time asked for, of which what is to come is left out.
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	// Tenant is the one that was asked for; empty: all.
	Tenant   string          `json:"tenant,omitempty"`
	Hours    billing.Decimal `json:"hours"`
	Sessions int             `json:"sessions"`
	// Each of these has all hours, the most first.
	ByTenant []HoursOf `json:"byTenant"`
	ByQueue  []HoursOf `json:"byQueue"`
	ByModel  []HoursOf `json:"byModel"`
	// Items are what they are the sums of.
	Items []HoursItem `json:"items"`
	// Unrecorded are the parts of the time, by the day, of which neither sessions nor Items of invoices tell.
	Unrecorded []billing.Period `json:"unrecorded"`
	// Notes say what the sums have of invoices, and what they lack.
	Notes []string `json:"notes"`
}

// HoursOf is the hours of a tenant, queue or model.
type HoursOf struct {
	// Name is empty where it is not recorded.
	Name  string          `json:"name"`
	Hours billing.Decimal `json:"hours"`
	// Invoiced is what of Hours is from invoices.
	Invoiced billing.Decimal `json:"invoiced"`
	Sessions int             `json:"sessions"`
}

// HoursSource is what hours are counted by.
type HoursSource string

const (
	// FromSessions are hours of sessions, of which what is outside the time asked for is cut off.
	FromSessions HoursSource = "sessions"
	// FromInvoice are hours that an invoice has of sessions that are kept no more, as they were billed:
	// those of all its month.
	FromInvoice HoursSource = "invoice"
	// NotCounted are likewise of an invoice, and in no sum: only a part of its month is asked for.
	NotCounted HoursSource = "invoice, not counted"
)

// HoursItem is the hours of a tenant that are of one queue, model and source.
type HoursItem struct {
	Tenant string `json:"tenant"`
	// Queue and Model are empty where they are not recorded.
	Queue  string      `json:"queue,omitempty"`
	Model  string      `json:"model,omitempty"`
	Source HoursSource `json:"source"`
	// From and Until are the time asked for, or an invoice's month.
	From     time.Time       `json:"from"`
	Until    time.Time       `json:"until"`
	Hours    billing.Decimal `json:"hours"`
	Sessions int             `json:"sessions"`
}

// GPUHoursOf computes the GPU hours of a time, of the tenants that are named and of those that have records or
// invoices. Sessions are cut to the time. Of sessions that are kept no more, the final invoice that they are
// on has the hours: what it has beside those that are kept is added where all of its month is asked for. So
// no hour counts twice, also while sessions are being deleted.
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

// itemKey is what an item has all its hours in common by.
type itemKey struct {
	tenant, queue, model string
	source               HoursSource
	period               billing.Period
}

// heldHours are hours of so many sessions.
type heldHours struct {
	hours    *big.Rat
	sessions int
}

func (h *heldHours) add(hours *big.Rat, sessions int) {
	h.hours.Add(h.hours, hours)
	h.sessions += sessions
}

// lineOf is what lines of an invoice are about, whatever their price.
type lineOf struct{ invoice, resource, model string }

// hoursCount adds hours up.
type hoursCount struct {
	q     HoursQuery
	asked billing.Period // the time asked for until now; empty if it is to come
	items map[itemKey]*heldHours
	// kept is what was billed of the sessions that are kept, by the line that they are on.
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

// tenant has a tenant in the report. It is false for one that is not asked for.
func (c *hoursCount) tenant(name string) bool {
	asked := c.q.Tenant == "" || c.q.Tenant == name
	if asked {
		c.seen[name] = true
	}
	return asked
}

// record counts what of a session is in the time.
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
			c.recorded.add(billing.Period{Start: later(s.Start, c.asked.Start), End: c.asked.End}) // until when is not known
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

// invoice counts what a final invoice has of sessions that are kept no more.
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

// report is what was counted, with a row for each tenant.
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

// sorted are the sums, that of the most hours first.
func (by hoursBy) sorted() []HoursOf {
	names := slices.SortedFunc(maps.Keys(by), func(a, b string) int { return cmp.Or(by[b].hours.Cmp(by[a].hours), cmp.Compare(a, b)) })
	out := make([]HoursOf, 0, len(names))
	for _, name := range names {
		sum := by[name]
		out = append(out, HoursOf{name, decimalHours(sum.hours), decimalHours(sum.invoiced), sum.sessions})
	}
	return out
}

// billedHours is what an invoice has of a session that has ended.
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

// hoursDigits are the digits behind the point, as on invoices.
const hoursDigits = 6

func decimalHours(r *big.Rat) billing.Decimal {
	d, _ := billing.ParseDecimal(r.FloatString(hoursDigits)) // a number with so few digits is one
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
