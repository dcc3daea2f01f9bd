// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readBook reads a price book from JSON. Defaults: a minimum of 60 s, AllUnits, per session.
func readBook(data []byte) (Book, error) {
	book := Book{MinPeriodSeconds: 60, Mode: AllUnits, DiscountScope: PerSession}
	if err := json.Unmarshal(data, &book); err != nil {
		return Book{}, err
	}
	return book, book.Validate()
}

// readSessions reads sessions that can be billed.
func readSessions(data []byte) ([]Session, error) {
	var sessions []Session
	if err := json.Unmarshal(data, &sessions); err != nil {
		return nil, err
	}
	_, err := distinct(sessions)
	return sessions, err
}

// readInvoices reads the output of WriteJSON, and refuses an invoice that does not add up.
func readInvoices(data []byte) ([]Invoice, error) {
	var invoices []Invoice
	err := json.Unmarshal(data, &invoices)
	for _, v := range invoices {
		err = errors.Join(err, v.Validate())
	}
	return invoices, err
}

func TestParseNumbers(t *testing.T) {
	cases := map[string]struct {
		text        string
		wantDecimal string // empty: refused
		wantAmount  string // empty: refused
	}{
		"a whole number":          {text: "12", wantDecimal: "12", wantAmount: "12.00"},
		"needless zeros behind":   {text: "12.50", wantDecimal: "12.5", wantAmount: "12.50"},
		"nothing":                 {text: "0.00", wantDecimal: "0", wantAmount: "0.00"},
		"negative nothing":        {text: "-0", wantDecimal: "0", wantAmount: "0.00"},
		"negative":                {text: "-0.05", wantDecimal: "-0.05", wantAmount: "-0.05"},
		"hundreds":                {text: "100", wantDecimal: "100", wantAmount: "100.00"},
		"a part of a cent":        {text: "0.001", wantDecimal: "0.001"},
		"nine places":             {text: "0.123456789", wantDecimal: "0.123456789"},
		"ten places":              {text: "0.1234567891"},
		"24 digits":               {text: strings.Repeat("9", 24), wantDecimal: strings.Repeat("9", 24), wantAmount: strings.Repeat("9", 24) + ".00"},
		"25 digits":               {text: strings.Repeat("9", 25)},
		"an empty text":           {text: ""},
		"only a sign":             {text: "-"},
		"two signs":               {text: "--1"},
		"a plus":                  {text: "+1"},
		"no digit before a point": {text: ".5"},
		"no digit behind a point": {text: "5."},
		"two points":              {text: "1.2.3"},
		"a needless zero":         {text: "0250.00", wantDecimal: "250", wantAmount: "250.00"},
		"an exponent":             {text: "1e9"},
		"a fraction":              {text: "1/3"},
		"hexadecimal":             {text: "0x10"},
		"an underscore":           {text: "1_000"},
		"a blank":                 {text: " 1"},
		"digits of other lands":   {text: "١٢"},
		"no number":               {text: "NaN"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d, err := ParseDecimal(tc.text)
			if got := d.String(); (err == nil) != (tc.wantDecimal != "") || err == nil && got != tc.wantDecimal {
				t.Errorf("decimal %s, %v; want %q", got, err, tc.wantDecimal)
			}
			a, err := ParseAmount(tc.text)
			if got := a.String(); (err == nil) != (tc.wantAmount != "") || err == nil && got != tc.wantAmount {
				t.Errorf("amount %s, %v; want %q", got, err, tc.wantAmount)
			}
		})
	}
}

func TestBookValidate(t *testing.T) {
	price := `{"resource": "g", "pricePerHour": "1"}`
	cases := map[string]struct {
		text    string
		want    Book
		wantErr string
	}{
		"defaults are the requirement's": {
			text: `{"currency": "USD", "prices": [` + price + `]}`,
			want: Book{Currency: "USD", Prices: []Price{{Resource: "g", PerHour: whole(1)}}, MinPeriodSeconds: 60, Mode: AllUnits, DiscountScope: PerSession},
		},
		"all fields": {
			text: `{"currency": "EUR", "prices": [{"resource": "g", "model": "H100", "pricePerHour": "0.5"}], "minPeriodSeconds": 0,
				"discounts": [{"thresholdHours": "1.5", "multiplier": "0"}, {"thresholdHours": "2", "multiplier": "1"}],
				"mode": "Marginal", "discountScope": "BillingPeriod"}`,
			want: Book{
				Currency: "EUR", Prices: []Price{{Resource: "g", Model: "H100", PerHour: decimal(t, "0.5")}},
				Discounts: []Discount{{ThresholdHours: decimal(t, "1.5")}, {ThresholdHours: whole(2), Multiplier: whole(1)}},
				Mode:      Marginal, DiscountScope: PerPeriod,
			},
		},
		"a number that is no text": {text: `{"currency": "USD", "prices": [{"resource": "g", "pricePerHour": 1}]}`, wantErr: "pricePerHour"},
		"no currency":              {text: `{"prices": []}`, wantErr: "currency"},
		"a small currency":         {text: `{"currency": "usd"}`, wantErr: "currency"},
		"a negative price":         {text: `{"currency": "USD", "prices": [{"resource": "g", "pricePerHour": "-1"}]}`, wantErr: "prices[0]: pricePerHour: -1"},
		"a price of no resource":   {text: `{"currency": "USD", "prices": [{"pricePerHour": "1"}]}`, wantErr: "prices[0]: resource"},
		"a model that is no name":  {text: `{"currency": "USD", "prices": [{"resource": "g", "model": "-", "pricePerHour": "1"}]}`, wantErr: "prices[0]: model"},
		"two prices of one thing":  {text: `{"currency": "USD", "prices": [` + price + `,` + price + `]}`, wantErr: "prices[1]: the resource and model"},
		"two prices, one later": {
			text: `{"currency": "USD", "prices": [` + price + `, {"resource": "g", "pricePerHour": "2", "validFrom": "2026-11-01T00:00:00Z"}]}`,
			want: Book{
				Currency: "USD", Prices: []Price{{Resource: "g", PerHour: whole(1)}, {Resource: "g", PerHour: whole(2), ValidFrom: epoch}},
				MinPeriodSeconds: 60, Mode: AllUnits, DiscountScope: PerSession,
			},
		},
		"two prices from one time": {
			text: `{"currency": "USD", "prices": [{"resource": "g", "pricePerHour": "1", "validFrom": "2026-11-01T01:00:00+01:00"},
				{"resource": "g", "pricePerHour": "2", "validFrom": "2026-11-01T00:00:00Z"}]}`,
			wantErr: "prices[1]: the resource and model have a price with this validFrom already",
		},
		"a validFrom that is no time": {text: `{"currency": "USD", "prices": [{"resource": "g", "pricePerHour": "1", "validFrom": "November"}]}`, wantErr: "November"},
		"a negative minimum":          {text: `{"currency": "USD", "minPeriodSeconds": -1}`, wantErr: "minPeriodSeconds: -1"},
		"a minimum of a year":         {text: `{"currency": "USD", "minPeriodSeconds": 31536000}`, wantErr: "minPeriodSeconds"},
		"another mode":                {text: `{"currency": "USD", "mode": "Best"}`, wantErr: "mode: want"},
		"another scope":               {text: `{"currency": "USD", "discountScope": "Day"}`, wantErr: "discountScope: want"},
		"a threshold of nothing":      {text: `{"currency": "USD", "discounts": [{"thresholdHours": "0", "multiplier": "1"}]}`, wantErr: "discounts[0].thresholdHours"},
		"thresholds that descend":     {text: `{"currency": "USD", "discounts": [{"thresholdHours": "2", "multiplier": "1"}, {"thresholdHours": "1", "multiplier": "1"}]}`, wantErr: "discounts[1].thresholdHours: 1"},
		"a discount that adds":        {text: `{"currency": "USD", "discounts": [{"thresholdHours": "2", "multiplier": "1.1"}]}`, wantErr: "discounts[0].multiplier: 1.1"},
		"a negative multiplier":       {text: `{"currency": "USD", "discounts": [{"thresholdHours": "2", "multiplier": "-0.1"}]}`, wantErr: "discounts[0].multiplier"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := readBook([]byte(tc.text))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("%v: error %v, want %q in it", got, err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}

func TestReadSessions(t *testing.T) {
	sessions, err := readSessions([]byte(`[{"id": "s", "tenant": "team-a", "resource": "nvidia.com/gpu", "quantity": "4",
		"start": "2026-11-01T00:00:00Z", "end": "2026-11-01T01:00:00+01:00"}]`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Session{held(t, "s", "4", 0)}, sessions); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
	if _, err := readSessions([]byte(`[{"id": "s", "tenant": "team-a", "resource": "g", "quantity": "4"}]`)); err == nil {
		t.Error("a session without a start was taken")
	}
}

// TestBookEqual: two books with the same prices are equal, however their numbers are written.
func TestBookEqual(t *testing.T) {
	const text = `{"currency":"USD","prices":[{"resource":"nvidia.com/gpu","pricePerHour":"2.5","validFrom":"2026-11-01T00:00:00Z"}],"discounts":[{"thresholdHours":"10","multiplier":"0.9"}]}`
	for name, tc := range map[string]struct {
		old, new string
		want     bool
	}{
		"the same":           {"", "", true},
		"more places":        {"2.5", "2.50", true},
		"another price":      {"2.5", "2.6", false},
		"another model":      {`"pricePerHour"`, `"model":"A100","pricePerHour"`, false},
		"another time":       {"11-01", "11-02", false},
		"another threshold":  {`"10"`, `"11"`, false},
		"another multiplier": {"0.9", "0.8", false},
		"another currency":   {"USD", "EUR", false},
		"another least":      {`"currency"`, `"minPeriodSeconds":1,"currency"`, false},
		"another mode":       {`"currency"`, `"mode":"Marginal","currency"`, false},
		"another scope":      {`"currency"`, `"discountScope":"BillingPeriod","currency"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := readBook([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.Replace(text, tc.old, tc.new, 1)
			b, err := readBook([]byte(changed))
			if err != nil {
				t.Fatal(err)
			}
			if got := a.Equal(b) && b.Equal(a); got != tc.want {
				t.Errorf("%s: equal %t, want %t", changed, got, tc.want)
			}
		})
	}
}
