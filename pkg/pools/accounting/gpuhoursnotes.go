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

// recordedTime is since when there are sessions or invoices, and in which months.
type recordedTime struct {
	first  time.Time // zero: there is none
	months map[time.Time]bool
}

func (t *recordedTime) since(at time.Time) {
	if t.first.IsZero() || at.Before(t.first) {
		t.first = at
	}
}

// add has the months recorded that a time is in.
func (t *recordedTime) add(p billing.Period) {
	for m := Month(p.Start); m.Start.Before(p.End); m = after(m) {
		t.months[m.Start] = true
	}
}

// gaps are the parts of a time that are before the first record, and the months without one.
func (t *recordedTime) gaps(asked billing.Period) []billing.Period {
	out := []billing.Period{}
	for m := Month(asked.Start); m.Start.Before(asked.End); m = after(m) {
		gap := billing.Period{Start: later(m.Start, asked.Start), End: earlier(m.End, asked.End)}
		if t.months[m.Start] {
			gap.End = earlier(gap.End, t.first)
		}
		switch last := len(out) - 1; {
		case !gap.Start.Before(gap.End):
		case last >= 0 && out[last].End.Equal(gap.Start):
			out[last].End = gap.End
		default:
			out = append(out, gap)
		}
	}
	return out
}

// notes say what the sums have of invoices, and what they lack.
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
	for _, gap := range out.Unrecorded {
		say("There is no session and no invoice%s from %s until %s: nothing was used then, or it is not recorded.", ofTenant(c.q.Tenant), stamp(gap.Start), stamp(gap.End))
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

// maxForeign bounds the pools of which a note says what pods of no tenant hold.
const maxForeign = 3

// foreignNow says what pods of no tenant hold now.
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

// invoiced are the months whose invoices items of a source are from.
func (c *hoursCount) invoiced(source HoursSource) []string {
	months := map[string]bool{}
	for k := range c.items {
		if k.source == source {
			months[monthText(k.period)] = true
		}
	}
	return slices.Sorted(maps.Keys(months))
}

// monthText is a calendar month as --period takes it, or another time.
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

// Recorded is a queue or model, or says that there is no record of it.
func Recorded(name string) string { return cmp.Or(name, "not recorded") }
