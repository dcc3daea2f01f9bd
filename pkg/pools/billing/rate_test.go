// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	b, err := DecodeBook([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// held is a session of team-a of so many devices and seconds.
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

// A thousand GPUs for 1 s and for 1.5 s.
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

// Three sessions of 60, 40 and 100 GPU hours, which end in this order.
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
			other.Tenant = "team-b" // whose hours count for nobody else
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
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
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

// What a session costs while it is open, and that it does not disturb those that ended.
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
	if diff := cmp.Diff(map[string]string{"open": "8.00", "early": "0.27"}, got); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
	if !open.Open() {
		t.Error("the caller's session was changed")
	}
}
