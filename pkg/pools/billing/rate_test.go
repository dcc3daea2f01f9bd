// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"cmp"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// requirementBook has the prices of the requirement's example.
const requirementBook = `{
	"currency": "USD", "minPeriodSeconds": 60,
	"prices": [{"resource": "nvidia.com/gpu", "pricePerHour": "2.0"}],
	"discounts": [
		{"thresholdHours": "100", "multiplier": "0.9"},
		{"thresholdHours": "500", "multiplier": "0.8"},
		{"thresholdHours": "1000", "multiplier": "0.7"}
	]}`

func book(t *testing.T, text string) Book {
	t.Helper()
	b, err := readBook([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// held returns a session of team-a of that quantity and number of seconds.
func held(t *testing.T, id, quantity string, seconds int) Session {
	t.Helper()
	return Session{
		ID: id, Tenant: "team-a", Resource: "nvidia.com/gpu", Quantity: decimal(t, quantity),
		Start: epoch, End: epoch.Add(time.Duration(seconds) * time.Second),
	}
}

func TestSessionCost(t *testing.T) {
	cases := map[string]struct {
		quantity  string
		seconds   int
		marginal  bool
		want      string
		wantGross string
	}{
		"four GPUs for two seconds are billed for the minimum": {quantity: "4", seconds: 2, want: "0.13", wantGross: "0.13"},
		"one GPU just below the minimum":                       {quantity: "1", seconds: 59, want: "0.03", wantGross: "0.03"},
		"one GPU for just the minimum":                         {quantity: "1", seconds: 60, want: "0.03", wantGross: "0.03"},
		"no time at all is billed for the minimum":             {quantity: "1", seconds: 0, want: "0.03", wantGross: "0.03"},
		"eight GPUs for half an hour":                          {quantity: "8", seconds: 1800, want: "8.00", wantGross: "8.00"},
		"exactly the first threshold has its discount":         {quantity: "4", seconds: 90_000, want: "180.00", wantGross: "200.00"},
		"exactly the second threshold":                         {quantity: "8", seconds: 225_000, want: "800.00", wantGross: "1000.00"},
		"exactly the third threshold":                          {quantity: "8", seconds: 450_000, want: "1400.00", wantGross: "2000.00"},
		"a second less than the first threshold":               {quantity: "4", seconds: 89_999, want: "200.00", wantGross: "200.00"}, // 199.9977…
		"a slice 3g.40gb for an hour":                          {quantity: "0.428", seconds: 3600, want: "0.86", wantGross: "0.86"},
		"half a cent is rounded up":                            {quantity: "0.0025", seconds: 3600, want: "0.01", wantGross: "0.01"},
		"just less than half a cent is rounded down":           {quantity: "0.002499999", seconds: 3600, want: "0.00", wantGross: "0.00"},
		"marginal, exactly the first threshold: no discount":   {quantity: "4", seconds: 90_000, marginal: true, want: "200.00", wantGross: "200.00"},
		"marginal, 500 hours: 100 full and 400 at .9":          {quantity: "8", seconds: 225_000, marginal: true, want: "920.00", wantGross: "1000.00"},
		"marginal, 1200 hours: 100, 400, 500, 200 by tier":     {quantity: "8", seconds: 540_000, marginal: true, want: "2000.00", wantGross: "2400.00"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := book(t, requirementBook)
			if tc.marginal {
				b.Mode = Marginal
			}
			charges, err := Rate(b, []Session{held(t, "s", tc.quantity, tc.seconds)})
			if err != nil {
				t.Fatal(err)
			}
			if got := charges[0].Cost.String(); got != tc.want {
				t.Errorf("cost %s, want %s", got, tc.want)
			}
			if got := charges[0].Gross.String(); got != tc.wantGross {
				t.Errorf("without discount %s, want %s", got, tc.wantGross)
			}
		})
	}
}

// TestFractionalSeconds rates a thousand GPUs for 1 s and for 1.5 s.
func TestFractionalSeconds(t *testing.T) {
	b := book(t, `{"currency": "USD", "minPeriodSeconds": 0, "prices": [{"resource": "nvidia.com/gpu", "pricePerHour": "3.6"}]}`)
	first, second := held(t, "a", "1000", 1), held(t, "b", "1000", 1)
	second.Start = second.Start.Add(-500 * time.Millisecond)
	charges, err := Rate(b, []Session{first, second})
	if err != nil {
		t.Fatal(err)
	}
	if got := charges[0].Cost.String() + " " + charges[1].Cost.String(); got != "1.00 1.50" {
		t.Errorf("costs %s, want 1.00 1.50", got)
	}
}

func TestModelPrice(t *testing.T) {
	b := book(t, `{"currency": "EUR", "minPeriodSeconds": 0, "prices": [
		{"resource": "nvidia.com/gpu", "model": "H100", "pricePerHour": "4.25"},
		{"resource": "nvidia.com/gpu", "pricePerHour": "1"},
		{"resource": "huawei.com/Ascend910B", "model": "910B3", "pricePerHour": "3"}]}`)
	cases := map[string]struct {
		resource, model string
		want            string
		wantNoPrice     bool
	}{
		"a model with a price of its own":       {resource: "nvidia.com/gpu", model: "H100", want: "4.25"},
		"a model without":                       {resource: "nvidia.com/gpu", model: "L4", want: "1.00"},
		"no model":                              {resource: "nvidia.com/gpu", want: "1.00"},
		"another resource's model":              {resource: "huawei.com/Ascend910B", model: "910B3", want: "3.00"},
		"a resource that has only other models": {resource: "huawei.com/Ascend910B", model: "910B4", want: "0.00", wantNoPrice: true},
		"an unknown resource":                   {resource: "habana.ai/gaudi", want: "0.00", wantNoPrice: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := held(t, "s", "1", 3600)
			s.Resource, s.Model = tc.resource, tc.model
			charges, err := Rate(b, []Session{s})
			if err != nil {
				t.Fatal(err)
			}
			if got := charges[0].Cost.String(); got != tc.want || charges[0].NoPrice != tc.wantNoPrice {
				t.Errorf("cost %s, no price %t; want %s, %t", got, charges[0].NoPrice, tc.want, tc.wantNoPrice)
			}
		})
	}
}

// TestPriceChange: a session has the price that was valid when it ended. The price of a GPU is 2 until
// noon, then 3; from 18 o'clock on H100 have a price of their own.
func TestPriceChange(t *testing.T) {
	changing := book(t, `{"currency": "USD", "minPeriodSeconds": 0, "prices": [
		{"resource": "nvidia.com/gpu", "model": "H100", "validFrom": "2026-11-01T18:00:00Z", "pricePerHour": "9"},
		{"resource": "nvidia.com/gpu", "validFrom": "2026-11-01T13:00:00+01:00", "pricePerHour": "3"},
		{"resource": "nvidia.com/gpu", "pricePerHour": "2"},
		{"resource": "amd.com/gpu", "validFrom": "2026-11-01T12:00:00Z", "pricePerHour": "1"},
		{"resource": "nvidia.com/mig-1g.10gb", "validFrom": "2026-11-01T18:00:00Z", "pricePerHour": "5"}]}`)
	changing.Parts = map[string]string{"nvidia.com/mig-1g.10gb": "nvidia.com/gpu"}
	hour := func(h int) time.Time { return epoch.Add(time.Duration(h) * time.Hour) }
	fixed := &Fixed{UnitPrice: whole(7), Seconds: 7200, Cost: amount(t, "13")}
	cases := map[string]struct {
		resource, model string
		start, end      time.Time
		fixed           *Fixed
		period          bool
		want            string
		wantNoPrice     bool
	}{
		"ended before the change":                     {start: hour(10), end: hour(11), want: "2.00"},
		"ended a second before it":                    {start: hour(10), end: hour(12).Add(-time.Second), want: "4.00"},
		"ended just when it changed":                  {start: hour(10), end: hour(12), want: "6.00"},
		"ran when it changed: all of it":              {start: hour(8), end: hour(13), want: "15.00"},
		"began after it":                              {start: hour(13), end: hour(14), want: "3.00"},
		"a model before it has a price of its own":    {model: "H100", start: hour(16), end: hour(17), want: "3.00"},
		"the model with it":                           {model: "H100", start: hour(17), end: hour(18), want: "9.00"},
		"another model then":                          {model: "L4", start: hour(17), end: hour(18), want: "3.00"},
		"before the first price of a resource":        {resource: "amd.com/gpu", start: hour(10), end: hour(11), want: "0.00", wantNoPrice: true},
		"with it":                                     {resource: "amd.com/gpu", start: hour(11), end: hour(12), want: "1.00"},
		"a slice at the price of its device":          {resource: "nvidia.com/mig-1g.10gb", start: hour(10), end: hour(11), want: "2.00"},
		"a slice whose device's price changed":        {resource: "nvidia.com/mig-1g.10gb", start: hour(13), end: hour(14), want: "3.00"},
		"a slice with a price of its own":             {resource: "nvidia.com/mig-1g.10gb", start: hour(17), end: hour(18), want: "5.00"},
		"written down when it ended":                  {start: hour(10), end: hour(12), fixed: fixed, want: "13.00"},
		"written down, and the resource has no price": {resource: "x/y", start: hour(10), end: hour(12), fixed: fixed, want: "13.00"},
		"written down, with discounts over a month":   {start: hour(10), end: hour(12), fixed: fixed, period: true, want: "14.00"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := changing
			if tc.period {
				b.DiscountScope = PerPeriod
			}
			s := Session{ID: "s", Tenant: "team-a", Resource: cmp.Or(tc.resource, "nvidia.com/gpu"), Model: tc.model, Quantity: whole(1), Start: tc.start, End: tc.end, Fixed: tc.fixed}
			charges, err := Rate(b, []Session{s})
			if err != nil {
				t.Fatal(err)
			}
			if got := charges[0].Cost.String(); got != tc.want || charges[0].NoPrice != tc.wantNoPrice {
				t.Errorf("cost %s, no price %t; want %s, %t", got, charges[0].NoPrice, tc.want, tc.wantNoPrice)
			}
		})
	}
}

// TestPriceChangeTiers: hours before and after a change of the price are added up for the discounts of
// a month, each at its own price.
func TestPriceChangeTiers(t *testing.T) {
	b := book(t, requirementBook)
	b.DiscountScope = PerPeriod
	b.Prices = append(b.Prices, Price{Resource: "nvidia.com/gpu", PerHour: whole(3), ValidFrom: epoch.Add(24 * time.Hour)})
	before, after := held(t, "before", "60", 3600), held(t, "after", "40", 24*3600)
	after.Start = after.End.Add(-time.Hour)
	charges, err := Rate(b, []Session{before, after})
	if err != nil {
		t.Fatal(err)
	}
	if got := charges[0].Cost.String() + " " + charges[1].Cost.String(); got != "108.00 108.00" { // 60×2×.9, 40×3×.9
		t.Errorf("costs %s, want 108.00 108.00", got)
	}
}

// TestPeriodDiscounts rates three sessions of 60, 40 and 100 GPU hours, which end in this order.
func TestPeriodDiscounts(t *testing.T) {
	cases := map[string]struct {
		mode Mode
		want string // costs by end
	}{
		"all units: 200 hours make all of them cheaper":    {mode: AllUnits, want: "108.00 72.00 180.00"},
		"marginal: the third has all hours above":          {mode: Marginal, want: "120.00 80.00 180.00"},
		"per session: only the third reaches the discount": {want: "120.00 80.00 180.00"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := book(t, requirementBook)
			if tc.mode != "" {
				b.Mode, b.DiscountScope = tc.mode, PerPeriod
			}
			other := held(t, "other", "1000", 3600)
			other.Tenant = "team-b" // its hours are separate
			charges, err := Rate(b, []Session{held(t, "c", "1", 360_000), held(t, "a", "6", 36_000), held(t, "b", "2", 72_000), other})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range charges {
				if c.Session.Tenant == "team-a" {
					got = append(got, c.Cost.String())
				}
			}
			if diff := gocmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}

func TestRateErrors(t *testing.T) {
	cases := map[string]struct {
		change  func(*Session)
		wantErr string
	}{
		"a session that is open":             {change: func(s *Session) { s.End = time.Time{} }, wantErr: "has not ended"},
		"an end before the start":            {change: func(s *Session) { s.End = s.Start.Add(-1) }, wantErr: "end: "},
		"no start":                           {change: func(s *Session) { s.Start = time.Time{} }, wantErr: "start: is missing"},
		"no devices":                         {change: func(s *Session) { s.Quantity = Decimal{} }, wantErr: "quantity: 0"},
		"less than no devices":               {change: func(s *Session) { s.Quantity = whole(-1) }, wantErr: "quantity: -1"},
		"more devices than there are":        {change: func(s *Session) { s.Quantity = whole(1_000_001) }, wantErr: "quantity: 1000001"},
		"no tenant":                          {change: func(s *Session) { s.Tenant = "" }, wantErr: "tenant: is missing"},
		"a name that a spreadsheet runs":     {change: func(s *Session) { s.Model = "=1+1" }, wantErr: "model: "},
		"a name with letters of other lands": {change: func(s *Session) { s.Resource = "gpü" }, wantErr: "resource: "},
		"a name that is too long":            {change: func(s *Session) { s.Invoice = strings.Repeat("x", 254) }, wantErr: "invoice: "},
		"an open session with a cost":        {change: func(s *Session) { s.End, s.Fixed = time.Time{}, &Fixed{} }, wantErr: "fixed: the session has not ended"},
		"a fixed price of too much":          {change: func(s *Session) { s.Fixed = &Fixed{UnitPrice: whole(1_000_001), Seconds: 60} }, wantErr: "fixed.unitPrice"},
		"fewer seconds than it lasted":       {change: func(s *Session) { s.Fixed = &Fixed{Seconds: 50} }, wantErr: "fixed.seconds: 50 of a session of 60"},
		"more seconds than a minimum may be": {change: func(s *Session) { s.Fixed = &Fixed{Seconds: maxMinPeriod + 1} }, wantErr: "fixed.seconds"},
		"a cost above the price":             {change: func(s *Session) { s.Fixed = &Fixed{UnitPrice: whole(60), Seconds: 60, Cost: amount(t, "1.01")} }, wantErr: "fixed.cost: 1.01, want 0 to 1.00"},
		"a cost below 0":                     {change: func(s *Session) { s.Fixed = &Fixed{UnitPrice: whole(60), Seconds: 60, Cost: amount(t, "-1")} }, wantErr: "fixed.cost: -1.00"},
		"other fields under a known ID":      {change: func(s *Session) { s.ID = "known" }, wantErr: "is there twice"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := held(t, "s", "1", 60)
			tc.change(&s)
			_, err := Rate(book(t, requirementBook), []Session{held(t, "known", "2", 60), s})
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want %q in it", err, tc.wantErr)
			}
		})
	}
}

// TestAccrued checks the cost of an open session, and that it does not change that of ended ones.
func TestAccrued(t *testing.T) {
	b := book(t, requirementBook)
	open := held(t, "open", "8", 0)
	open.End = time.Time{}
	early := open
	early.ID, early.Start = "early", epoch.Add(24*time.Hour)
	charges, err := Accrued(b, []Session{held(t, "ended", "1", 3600), open, early}, epoch.Add(30*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range charges {
		got[c.Session.ID] = c.Cost.String()
	}
	// early begins after now, by another clock: it has the minimum.
	if diff := gocmp.Diff(map[string]string{"open": "8.00", "early": "0.27"}, got); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
	if !open.Open() {
		t.Error("the caller's session was changed")
	}
}
