// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzAccountOfInvoice: AccountOfInvoice accepts exactly the results of InvoiceID for a
// month.
func FuzzAccountOfInvoice(f *testing.F) {
	for _, seed := range []string{"inv-20261001-20261101-uid-a", "inv-20261001-20261102-u", "inv-20261301-20270101-u", "inv-20261001-20261101-", "inv-", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		a, p, ok := AccountOfInvoice(id, "team-a")
		if !ok {
			return
		}
		if got := InvoiceID(a, p); got != id || p.Validate() != nil || a.UID == "" {
			t.Errorf("%q: read as %+v of %+v, which has the ID %q", id, p, a, got)
		}
	})
}

// FuzzParseNumber: numbers that ParseDecimal and ParseAmount accept are written and read
// back unchanged, and both agree.
func FuzzParseNumber(f *testing.F) {
	for _, seed := range []string{"0", "-0", "12.5", "0.428", "-0.01", "999999999999999999999999.99", "1e9", "1/3", "0x1p-2", "01", ".", "-"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDecimal(text)
		a, errAmount := ParseAmount(text)
		if err != nil {
			if errAmount == nil {
				t.Errorf("%q: an amount and no decimal", text)
			}
			return
		}
		if again, err := ParseDecimal(d.String()); err != nil || !again.Equal(d) {
			t.Errorf("%q: read back as %s, %v", text, again, err)
		}
		if errAmount != nil {
			return
		}
		if again, err := ParseAmount(a.String()); err != nil || !again.Equal(a) {
			t.Errorf("%q: read back as %s, %v", text, again, err)
		}
		if !toCents(d.Rat()).Equal(a) {
			t.Errorf("%q: decimal %s, amount %s", text, d, a)
		}
	})
}

func FuzzParsePeriod(f *testing.F) {
	for _, seed := range []string{"2026-11", "2026-11-24", "2026-11-01/2026-11-15", "2026-11-01T00:00:00+01:00/2026-12-01T00:00:00Z", "0000-01", "9999-12", "/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePeriod(text)
		if err != nil {
			return
		}
		if again, err := ParsePeriod(p.String()); err != nil || !again.Equal(p) {
			t.Errorf("%q: %s is read back as %s, %v", text, p, again, err)
		}
		if err := checkName("id", InvoiceID(teamA(), p)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func FuzzBook(f *testing.F) {
	for _, seed := range []string{
		requirementBook, `{"currency":"USD"}`, `{"currency":"USD","currency":"EUR"}`, `{"currency":"USD","mode":"Marginal","discountScope":"BillingPeriod"}`,
		`{"currency":"USD","prices":[{"resource":"g","model":"H100","pricePerHour":"0.000000001"}],"minPeriodSeconds":2592000}`,
		`{"currency":"USD","prices":[{"resource":"g","pricePerHour":"1"},{"resource":"g","validFrom":"2026-11-01T00:00:00Z","pricePerHour":"2"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) { readBack(t, data, readBook) })
}

// FuzzSessions: accepted sessions can be billed, and their invoices are read back.
func FuzzSessions(f *testing.F) {
	for _, seed := range []string{
		`[]`, `[{"id":"s","tenant":"team-a","resource":"nvidia.com/gpu","quantity":"4","start":"2026-11-01T00:00:00Z"}]`,
		`[{"id":"s","tenant":"team-a","resource":"nvidia.com/gpu","model":"H100","quantity":"0.428","start":"0001-01-01T00:00:01Z","end":"9999-12-31T23:59:59.5Z","estimated":true}]`,
		`[{"id":"s","tenant":"team-a","resource":"x/y","quantity":"1000000","start":"2026-11-01T00:00:00Z","end":"2026-11-02T00:00:00Z","invoice":"inv-20261101-20261201-7b1c"}]`,
		`[{"id":"s","tenant":"team-a","resource":"x/y","quantity":"2","start":"2026-11-01T00:00:00Z","end":"2026-11-01T01:00:00Z","fixed":{"unitPrice":"2","seconds":3600,"cost":"3.60"}}]`,
	} {
		f.Add([]byte(seed))
	}
	b, err := readBook([]byte(requirementBook))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sessions, ok := readBack(t, data, readSessions)
		if !ok {
			return
		}
		v, err := NewInvoice(b, teamA(), november, sessions, november.End)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		if _, err := Accrued(b, sessions, november.End); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		var text bytes.Buffer
		if err := WriteJSON(&text, []Invoice{v}); err != nil {
			t.Fatal(err)
		}
		if _, err := readInvoices(text.Bytes()); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
	})
}

func FuzzInvoices(f *testing.F) {
	for _, seed := range []string{
		`[]`, `[{"invoice_id":"i","tenant":"a","period":{"start":"2026-11-01T00:00:00Z","end":"2026-12-01T00:00:00Z"},"currency":"USD","line_items":[
			{"resource":"g","hours":"1","unit_price":"2","discount":"0.00","subtotal":"2.00","sessions":1}],"total":"2.00","generated_at":"2026-12-01T00:00:00Z"}]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) { readBack(t, data, readInvoices) })
}

// readBack decodes data, and decodes the result once more after encoding it.
func readBack[T any](t *testing.T, data []byte, decode func([]byte) (T, error)) (T, bool) {
	t.Helper()
	value, err := decode(data)
	if err != nil {
		return value, false
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatalf("%s: cannot be written: %v", data, err)
	}
	again, err := decode(text)
	if err != nil {
		t.Fatalf("%s: written as %s, which is refused: %v", data, text, err)
	}
	if diff := cmp.Diff(value, again); diff != "" {
		t.Fatalf("%s (-read,+again):\n%s", data, diff)
	}
	return value, true
}
