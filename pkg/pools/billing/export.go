// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"time"
)

// WriteJSON writes invoices as an array.
func WriteJSON(w io.Writer, invoices []Invoice) error {
	if invoices == nil {
		invoices = []Invoice{}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(invoices)
}

// WriteCSV writes a row for each line of the invoices, under a header row. Every row is complete by
// itself.
func WriteCSV(w io.Writer, invoices []Invoice) error {
	c := csv.NewWriter(w)
	rows := [][]string{{
		"invoice_id", "tenant", "period_start", "period_end", "resource", "model", "hours", "unit_price",
		"discount", "subtotal", "currency", "sessions", "estimated", "no_price",
	}}
	for _, v := range invoices {
		for _, l := range v.Lines {
			rows = append(rows, []string{
				v.ID, v.Tenant, stamp(v.Period.Start), stamp(v.Period.End),
				l.Resource, l.Model, l.Hours.String(), l.UnitPrice.String(), l.Discount.String(), l.Subtotal.String(),
				v.Currency, strconv.Itoa(l.Sessions), strconv.Itoa(l.Estimated), strconv.FormatBool(l.NoPrice),
			})
		}
	}
	return c.WriteAll(rows)
}

// WriteSessionsCSV writes a row for each session. The end of an open session is empty.
func WriteSessionsCSV(w io.Writer, sessions []Session) error {
	c := csv.NewWriter(w)
	rows := [][]string{{"session", "tenant", "resource", "model", "quantity", "start", "end", "estimated", "invoice"}}
	for _, s := range sessions {
		end := ""
		if !s.Open() {
			end = stamp(s.End)
		}
		rows = append(rows, []string{
			s.ID, s.Tenant, s.Resource, s.Model, s.Quantity.String(), stamp(s.Start), end, strconv.FormatBool(s.Estimated), s.Invoice,
		})
	}
	return c.WriteAll(rows)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
