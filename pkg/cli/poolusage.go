// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// poolUsage has the flags of pool usage.
type poolUsage struct {
	poolOptions

	period, since, tenant string
}

func newPoolUsage() *cobra.Command {
	o := &poolUsage{}
	cmd := &cobra.Command{
		Use:   "usage [TENANT]",
		Short: "GPU hours by tenant, queue and model, or the sessions of a tenant",
		Long: `Without TENANT, add up the GPU hours that were held in a time, by tenant, by queue and by GPU
model, the most first. A GPU hour is one GPU held for an hour, whether it computes or not; a
slice counts as its part of a GPU. Sessions are cut to the time. Where sessions are kept no
more, final invoices say how many hours they had, by month, tenant and model: they count where
the whole month is asked for. Notes below the tables say what is from invoices, what is not
counted, and of which time there is no record. CSV has a row for each tenant, queue, model
and source.

With TENANT, list its sessions that were open at any time in a period, also those that began
before it or go on after it. What goes on has no END, and costs nothing yet. A session
that nobody saw the end of is marked with ~.`,
		Example: `  NVTOPO pool usage
  NVTOPO pool usage --since 30d -o csv
  NVTOPO pool usage --period 2026-11 --tenant team-a
  NVTOPO pool usage team-a
  NVTOPO pool usage team-a --period 2026-11-24
  NVTOPO pool usage team-a --period 2026-11-01/2026-11-15 -o csv`,
		Args: atMostOne("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return o.hours(cmd)
			case o.tenant != "":
				return usagef("--tenant is for GPU hours: want it, or TENANT, whose sessions are listed")
			}
			return o.sessions(cmd, args[0])
		},
	}
	o.bind(cmd, "table", "json", "yaml", "csv")
	f := cmd.Flags()
	f.StringVar(&o.period, "period", "", "a month, a day, or START/END, in UTC (default: this month)")
	f.StringVar(&o.since, "since", "", "from so long ago until now, such as 7d, 12h or 4w, in place of --period")
	f.StringVar(&o.tenant, "tenant", "", "GPU hours of this tenant only")
	return cmd
}

// sessions lists the sessions of a tenant.
func (o *poolUsage) sessions(cmd *cobra.Command, tenant string) error {
	period, err := o.time(time.Now())
	if err != nil {
		return err
	}
	r, err := o.reader()
	if err != nil {
		return err
	}
	records, err := r.Records(cmd.Context(), tenant)
	if err != nil {
		return poolError(err)
	}
	if len(records) == 0 {
		if err := r.FindTenant(cmd.Context(), tenant); err != nil {
			return poolError(err)
		}
	}
	records = accounting.Within(records, period)
	w := cmd.OutOrStdout()
	if o.output == "csv" {
		sessions := make([]billing.Session, 0, len(records))
		for i := range records {
			s, err := accounting.SessionOf(&records[i])
			if err != nil {
				return inputf("%w", err)
			}
			sessions = append(sessions, s)
		}
		return writeLines(w, func(w io.Writer) error { return billing.WriteSessionsCSV(w, sessions) })
	}
	return o.show(w, func(w io.Writer) error { return writeJSON(w, records) }, func(w io.Writer) error { return writeSessions(w, records) })
}

// periodOf reads --period; this month if it is empty.
func periodOf(text string, now time.Time) (billing.Period, error) {
	if text == "" {
		return accounting.Month(now), nil
	}
	p, err := billing.ParsePeriod(text)
	if err != nil {
		return billing.Period{}, usagef("--period: %w", err)
	}
	return p, nil
}

func writeSessions(w io.Writer, records []poolv1alpha1.UsageRecord) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "POD\tPOOL\tNODE\tRESOURCE\tMODEL\tQUANTITY\tSTART\tEND\tCOST")
	for i := range records {
		r := &records[i]
		end := "-"
		if r.Status.End != nil {
			end = r.Status.End.UTC().Format(time.RFC3339)
		}
		if r.Status.Estimated {
			end = "~" + end
		}
		if accounting.Restored(r) {
			end = "unknown"
		}
		printf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Spec.Pod, r.Spec.Pool, r.Spec.Node, r.Spec.Resource, cmp.Or(r.Spec.Model, "-"),
			r.Spec.Quantity, r.Spec.Start.UTC().Format(time.RFC3339), end, cmp.Or(r.Status.Cost, "-"))
	}
	return out.Flush()
}
