// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"encoding/csv"
	"io"
	"strconv"
)

// noRecord is the source of a row for a period that has no record.
const noRecord = "no record"

// WriteGPUHoursCSV writes a row for each tenant, queue, model and source, the most hours first, and one
// for each part of the period that has no record. Rows that are not counted have no hours, so that a
// spreadsheet's sum is right.
func WriteGPUHoursCSV(w io.Writer, h *GPUHours) error {
	c := csv.NewWriter(w)
	rows := [][]string{{"from", "until", "tenant", "queue", "model", "source", "hours", "sessions"}}
	for i := range h.Items {
		item := &h.Items[i]
		row := []string{stamp(item.From), stamp(item.Until), item.Tenant, Recorded(item.Queue), Recorded(item.Model), string(item.Source), item.Hours.String(), strconv.Itoa(item.Sessions)}
		switch {
		case item.Source == NotCounted:
			row[6], row[7] = "", ""
		case item.Sessions == 0:
			row[3], row[4] = "", ""
		}
		rows = append(rows, row)
	}
	for _, gap := range h.Unrecorded {
		rows = append(rows, []string{stamp(gap.Start), stamp(gap.End), h.Tenant, "", "", noRecord, "", ""})
	}
	return c.WriteAll(rows)
}
