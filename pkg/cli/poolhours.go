// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"math/big"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
	"github.com/nvtopo/nvtopo/pkg/pools/ledger"
)

// hours prints the output without TENANT: GPU hours by tenant, queue and model.
func (o *poolUsage) hours(cmd *cobra.Command) error {
	now := time.Now()
	period, err := o.time(now)
	if err != nil {
		return err
	}
	r, err := o.reader()
	if err != nil {
		return err
	}
	return o.writeHours(cmd.Context(), cmd.OutOrStdout(), r, accounting.HoursQuery{Period: period, Tenant: o.tenant, Now: now})
}

func (o *poolUsage) writeHours(ctx context.Context, w io.Writer, r *ledger.Reader, q accounting.HoursQuery) error {
	h, err := r.GPUHours(ctx, q)
	if err != nil {
		return poolError(err)
	}
	if o.output == "csv" {
		return writeLines(w, func(w io.Writer) error { return accounting.WriteGPUHoursCSV(w, h) })
	}
	return o.show(w, func(w io.Writer) error { return encodeJSON(w, "  ", h) }, func(w io.Writer) error { return writeGPUHours(w, h, o.timeText()) })
}

// time returns the requested time: --since, --period, or this month.
func (o *poolUsage) time(now time.Time) (billing.Period, error) {
	switch {
	case o.since != "" && o.period != "":
		return billing.Period{}, usagef("--since and --period: want one of them")
	case o.since != "":
		p, err := accounting.Since(o.since, now)
		if err != nil {
			return billing.Period{}, usagef("--since: %w", err)
		}
		return p, nil
	}
	return periodOf(o.period, now)
}

// timeText explains the default time in the output; it is empty if a flag set the time.
func (o *poolUsage) timeText() string {
	if o.since == "" && o.period == "" {
		return " (this month; --since or --period ask for another time)"
	}
	return ""
}

// writeGPUHours writes a table for each of tenants, queues and models, and notes about the sums.
func writeGPUHours(w io.Writer, h *accounting.GPUHours, timeText string) error {
	of := ""
	if h.Tenant != "" {
		of = " of " + h.Tenant
	}
	printf(w, "GPU hours%s from %s until %s%s\n", of, h.From.Format(time.RFC3339), h.Until.Format(time.RFC3339), timeText)
	for _, t := range []struct {
		name string
		rows []accounting.HoursOf
	}{{"TENANT", h.ByTenant}, {"QUEUE", h.ByQueue}, {"MODEL", h.ByModel}} {
		if len(t.rows) == 0 {
			continue
		}
		fmt.Fprintln(w)
		if err := writeHoursTable(w, t.name, t.rows, h); err != nil {
			return err
		}
	}
	if len(h.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, note := range h.Notes {
		printf(w, "%s\n", note)
	}
	return nil
}

func writeHoursTable(w io.Writer, name string, rows []accounting.HoursOf, h *accounting.GPUHours) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	printf(out, "%s\tGPU HOURS\tSHARE\tFROM INVOICES\tSESSIONS\n", name)
	invoiced := new(big.Rat)
	for _, r := range rows {
		printf(out, "%s\t%s\t%s\t%s\t%d\n", accounting.Recorded(r.Name), hoursText(r.Hours.Rat()), shareText(r.Hours, h.Hours), hoursText(r.Invoiced.Rat()), r.Sessions)
		invoiced.Add(invoiced, r.Invoiced.Rat())
	}
	printf(out, "total\t%s\t%s\t%s\t%d\n", hoursText(h.Hours.Rat()), shareText(h.Hours, h.Hours), hoursText(invoiced), h.Sessions)
	return out.Flush()
}

func hoursText(hours *big.Rat) string { return hours.FloatString(2) }

// shareText is a part in percent, or "-" if the whole is 0.
func shareText(part, all billing.Decimal) string {
	if all.Sign() == 0 {
		return "-"
	}
	share := new(big.Rat).Quo(part.Rat(), all.Rat())
	return share.Mul(share, big.NewRat(100, 1)).FloatString(1) + " %"
}
