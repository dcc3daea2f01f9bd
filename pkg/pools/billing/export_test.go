// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"bytes"
	"encoding/csv"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestExport(t *testing.T) {
	h100 := held(t, "h100", "8", 1800)
	h100.Model, h100.Estimated = "H100", true
	sessions := []Session{held(t, "long", "4", 90_000), h100}
	b := book(t, requirementBook)
	invoices := []Invoice{invoice(t, b, teamA(), november, sessions)}
	var asJSON, asCSV bytes.Buffer
	for _, err := range []error{WriteJSON(&asJSON, invoices), WriteCSV(&asCSV, invoices)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const wantJSON = `[
  {
    "invoice_id": "inv-20261101-20261201-7b1c",
    "tenant": "team-a",
    "period": {
      "start": "2026-11-01T00:00:00Z",
      "end": "2026-12-01T00:00:00Z"
    },
    "currency": "USD",
    "line_items": [
      {
        "resource": "nvidia.com/gpu",
        "hours": "100",
        "unit_price": "2",
        "discount": "20.00",
        "subtotal": "180.00",
        "sessions": 1
      },
      {
        "resource": "nvidia.com/gpu",
        "model": "H100",
        "hours": "4",
        "unit_price": "2",
        "discount": "0.00",
        "subtotal": "8.00",
        "sessions": 1,
        "estimated": 1
      }
    ],
    "total": "188.00",
    "generated_at": "2026-12-01T00:00:00Z"
  }
]
`
	const wantCSV = `invoice_id,tenant,period_start,period_end,resource,model,hours,unit_price,discount,subtotal,currency,sessions,estimated,no_price
inv-20261101-20261201-7b1c,team-a,2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,nvidia.com/gpu,,100,2,20.00,180.00,USD,1,0,false
inv-20261101-20261201-7b1c,team-a,2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,nvidia.com/gpu,H100,4,2,0.00,8.00,USD,1,1,false
`
	for _, c := range []struct{ what, want, got string }{
		{"JSON", wantJSON, asJSON.String()}, {"CSV", wantCSV, asCSV.String()},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want,+got):\n%s", c.what, diff)
		}
	}
}

// TestExportRoundTrip: exports are read back unchanged, and the CSV file has the same amounts
// as the sessions.
func TestExportRoundTrip(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 13))
		b := randomBook(rng).book(t)
		var sessions []Session
		for _, s := range randomSessions(rng, 30) {
			sessions = append(sessions, s.session(t))
		}
		want := []Invoice{invoice(t, b, teamA(), november, sessions)}
		var text bytes.Buffer
		if err := WriteJSON(&text, want); err != nil {
			t.Fatal(err)
		}
		got, err := readInvoices(text.Bytes())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d (-want,+got):\n%s", seed, diff)
		}
		charges, err := Rate(b, OnInvoice(teamA(), november, sessions))
		if err != nil {
			t.Fatal(err)
		}
		var lines bytes.Buffer
		if err := WriteCSV(&lines, want); err != nil {
			t.Fatal(err)
		}
		for what, sum := range map[string]Amount{"column subtotal": sumColumn(t, lines.String(), "subtotal"), "sessions": Sum(charges)} {
			if !sum.Equal(want[0].Total) {
				t.Fatalf("seed %d: %s add up to %s, want %s", seed, what, sum, want[0].Total)
			}
		}
	}
}

func sumColumn(t *testing.T, file, column string) Amount {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(file)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var sum Amount
	for _, row := range rows[1:] {
		for i, name := range rows[0] {
			if name == column {
				sum = sum.Plus(amount(t, row[i]))
			}
		}
	}
	return sum
}
