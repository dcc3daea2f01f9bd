// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"fmt"
	"time"

	"github.com/prometheus/common/model"

	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// Month returns the calendar month that a time is in, in UTC.
func Month(t time.Time) billing.Period {
	t = t.UTC()
	start := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	return billing.Period{Start: start, End: start.AddDate(0, 1, 0)}
}

// after returns the month that follows p.
func after(p billing.Period) billing.Period { return Month(p.End) }

// Since returns the period of a duration such as 7d, 12h or 2w that ends now.
func Since(text string, now time.Time) (billing.Period, error) {
	long, err := model.ParseDuration(text)
	if err != nil || long == 0 {
		return billing.Period{}, fmt.Errorf("%.64q: want how long ago it begins, such as 7d, 12h or 4w", text)
	}
	now = now.UTC().Truncate(time.Second)
	p := billing.Period{Start: now.Add(-time.Duration(long)).Truncate(time.Second), End: now}
	if err := p.Validate(); err != nil {
		return billing.Period{}, fmt.Errorf("%.64q: %w", text, err)
	}
	return p, nil
}
