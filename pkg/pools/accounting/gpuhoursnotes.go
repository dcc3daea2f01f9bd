// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

const daySeconds = 24 * 60 * 60

// recordedTime is the time since which hours are counted, and the days, in UTC, on which they are.
type recordedTime struct {
	first time.Time      // zero: no hours at all
	days  map[int64]bool // days since 1970
}

// add marks the days of a period as recorded.
func (t *recordedTime) add(p billing.Period) {
	if t.first.IsZero() || p.Start.Before(t.first) {
		t.first = p.Start
	}
	for day := p.Start.Unix() / daySeconds; day*daySeconds < p.End.Unix(); day++ {
		t.days[day] = true
	}
}

// gaps returns the parts of a period that are before the first record, and the days without one.
func (t *recordedTime) gaps(asked billing.Period) []billing.Period {
	out, at := []billing.Period{}, asked.Start
	gap := func(end time.Time) {
		if end = earlier(end, asked.End); at.Before(end) {
			out = append(out, billing.Period{Start: at, End: end})
		}
	}
	for _, day := range slices.Sorted(maps.Keys(t.days)) {
		start := time.Unix(day*daySeconds, 0).UTC()
		gap(later(start, t.first))
		at = later(at, start.AddDate(0, 0, 1))
	}
	gap(asked.End)
	return out
}

// notes returns sentences on the hours that are from invoices, and on those that are missing.
func (c *hoursCount) notes(out *GPUHours, invoiced *big.Rat) []string {
	notes := []string{}
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if !c.asked.Start.Before(c.asked.End) {
		say("The time asked for is to come: it is %s now.", stamp(c.q.Now))
	}
	if invoiced.Sign() > 0 {
		say("%s of the hours are from the invoices of %s, whose sessions are kept no more. An invoice has the hours billed of the sessions that ended in its "+
			"month, each in one sum: what such a session held before the month counts in it, and its queue is not recorded.",
			decimalHours(invoiced), strings.Join(c.invoiced(FromInvoice), ", "))
	}
	if months := c.invoiced(NotCounted); len(months) > 0 {
		lost := new(big.Rat)
		for k, h := range c.items {
			if k.source == NotCounted {
				lost.Add(lost, h.hours)
			}
		}
		say("Not counted: %s hours on the invoices of %s, of which only a part is asked for: an invoice does not say when in its month they were. Ask for whole months to count them.",
			decimalHours(lost), strings.Join(months, ", "))
	}
	if len(out.Unrecorded) > 0 {
		say("No record%s %s: no GPU was held then, or the pool controller did not record it.", ofTenant(c.q.Tenant), gapsText(out.Unrecorded))
	}
	if len(c.held) > 0 {
		slices.Sort(c.held)
		say("Not counted: records that were restored from a backup without their end: %s. %s.", strings.Join(c.held, ", "), HowToSettle)
	}
	slices.Sort(c.wrong)
	for _, wrong := range c.wrong {
		say("Not counted: %s.", wrong)
	}
	if c.q.Tenant == "" {
		say("Pods of no tenant are in no row: of a pod whose namespace has no label %s no hours are recorded.%s", v1alpha1.LabelTenant, foreignNow(c.q.Foreign))
	}
	return notes
}

// maxGaps is the most gaps that a note names.
const maxGaps = 3

// gapsText names the first of the periods without a record.
func gapsText(gaps []billing.Period) string {
	var texts []string
	for _, gap := range gaps[:min(len(gaps), maxGaps)] {
		texts = append(texts, fmt.Sprintf("from %s until %s", stamp(gap.Start), stamp(gap.End)))
	}
	text := strings.Join(texts, ", ")
	switch more := len(gaps) - maxGaps; {
	case more == 1:
		text += ", and in 1 more time that -o json and -o csv name"
	case more > 1:
		text += fmt.Sprintf(", and in %d more times that -o json and -o csv name", more)
	}
	return text
}

// maxForeign is the most pools for which a note gives the devices held by pods of no tenant.
const maxForeign = 3

// foreignNow returns the sentence on the devices that pods of no tenant hold now.
func foreignNow(pools []string) string {
	if len(pools) == 0 {
		return ""
	}
	text := " Now: " + strings.Join(pools[:min(len(pools), maxForeign)], "; ")
	if more := len(pools) - maxForeign; more > 0 {
		text += fmt.Sprintf("; and those of %d more pools", more)
	}
	return text + "."
}

// invoiced returns the months whose invoices items of a source are from.
func (c *hoursCount) invoiced(source HoursSource) []string {
	months := map[string]bool{}
	for k := range c.items {
		if k.source == source {
			months[monthText(k.period)] = true
		}
	}
	return slices.Sorted(maps.Keys(months))
}

// monthText formats a calendar month in the form of --period, and any other period as from and until.
func monthText(p billing.Period) string {
	if p.Equal(Month(p.Start)) {
		return p.Start.UTC().Format("2006-01")
	}
	return p.String()
}

func ofTenant(tenant string) string {
	if tenant == "" {
		return ""
	}
	return " of " + tenant
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Recorded returns the name of a queue or model, or "not recorded".
func Recorded(name string) string { return cmp.Or(name, "not recorded") }
