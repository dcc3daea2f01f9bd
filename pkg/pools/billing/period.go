// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Period is the time of a bill: from Start until just before End.
type Period struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

const (
	monthLayout = "2006-01"
	dayLayout   = time.DateOnly
)

// ParsePeriod parses a month (2026-11), a day (2026-11-24), or two days or times with a slash between
// them (2026-11-01/2026-11-15), all in UTC where they name no other zone.
func ParsePeriod(s string) (Period, error) {
	var p Period
	var err error
	switch start, end, two := strings.Cut(s, "/"); {
	case two:
		var errEnd error
		p.Start, err = parseTime(start)
		p.End, errEnd = parseTime(end)
		err = errors.Join(err, errEnd)
	case len(s) == len(monthLayout):
		p.Start, err = time.Parse(monthLayout, s)
		p.End = p.Start.AddDate(0, 1, 0)
	default:
		p.Start, err = time.Parse(dayLayout, s)
		p.End = p.Start.AddDate(0, 0, 1)
	}
	if err == nil {
		err = p.Validate()
	}
	if err != nil {
		return Period{}, fmt.Errorf("period %.64q: want a month, a day, or START/END: %w", s, err)
	}
	return p, nil
}

func parseTime(s string) (time.Time, error) {
	if len(s) == len(dayLayout) {
		return time.Parse(dayLayout, s)
	}
	t, err := time.Parse(time.RFC3339, s)
	return t.UTC(), err
}

// Validate returns an error for a period that is empty, or begins or ends within a second: the ID of an
// invoice has seconds.
func (p Period) Validate() error {
	switch {
	case p.Start.IsZero(), !p.Start.Before(p.End):
		return errors.New("the end is not after the start")
	case p.Start.Nanosecond() != 0, p.End.Nanosecond() != 0:
		return errors.New("want whole seconds")
	case p.Start.UTC().Year() < 1, p.End.UTC().Year() > 9999:
		return errors.New("want years of four digits")
	}
	return nil
}

// Equal reports whether both are the same time.
func (p Period) Equal(q Period) bool { return p.Start.Equal(q.Start) && p.End.Equal(q.End) }

// Has reports whether t is in the period.
func (p Period) Has(t time.Time) bool { return !t.Before(p.Start) && t.Before(p.End) }

// String returns the period in a form that ParsePeriod parses.
func (p Period) String() string {
	return p.Start.UTC().Format(time.RFC3339) + "/" + p.End.UTC().Format(time.RFC3339)
}

// compact returns the period in a form for Kubernetes names: days, or times where they are not midnight.
func (p Period) compact() string {
	part := func(t time.Time) string {
		t = t.UTC()
		if t.Equal(t.Truncate(24 * time.Hour)) {
			return t.Format("20060102")
		}
		return t.Format("20060102t150405")
	}
	return part(p.Start) + "-" + part(p.End)
}
