// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"time"

	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// Month is the calendar month that a time is in, in UTC.
func Month(t time.Time) billing.Period {
	t = t.UTC()
	start := time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
	return billing.Period{Start: start, End: start.AddDate(0, 1, 0)}
}

// after is the month after another.
func after(p billing.Period) billing.Period { return Month(p.End) }
