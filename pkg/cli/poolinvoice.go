// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// poolInvoice has the flags of pool invoice.
type poolInvoice struct {
	poolOptions

	period string
	export bool
}

func newPoolInvoice() *cobra.Command {
	o := &poolInvoice{}
	cmd := &cobra.Command{
		Use:   "invoice TENANT",
		Short: "The invoices of a tenant, as a table, JSON or CSV",
		Long: `Write the invoices of a tenant, or those for a period. An invoice is of a calendar month in
UTC, and has the sessions that ended in it. Until a while after the month it is open and
may change; then it is final and never does. One with more than 256 lines has pages: what
is owed for the month is the sum of all of them.

--export says in the cluster that the final ones among them were exported (status.exportedAt).
The records of their sessions are kept for 90 days from then on, or as the controller's
--usage-retention-days has it, so keep the file that was written. The controller exports by
itself with its --export-dir.`,
		Example: `  NVTOPO pool invoice team-a
  NVTOPO pool invoice team-a --period 2026-11 -o csv
  NVTOPO pool invoice team-a --period 2026-11 -o json --export > 2026-11.json`,
		Args: exactlyOne("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.bind(cmd, "table", "json", "yaml", "csv")
	f := cmd.Flags()
	f.StringVar(&o.period, "period", "", "a month, a day, or START/END, in UTC: invoices for a month that begins in it (default: all)")
	f.BoolVar(&o.export, "export", false, "say in the cluster that the final ones were exported; not with -o table")
	return cmd
}

func (o *poolInvoice) run(cmd *cobra.Command, tenant string) error {
	var period *billing.Period
	if o.period != "" {
		p, err := periodOf(o.period, time.Now())
		if err != nil {
			return err
		}
		period = &p
	}
	if o.export && o.output == "table" {
		return usagef("--export: want -o json or csv, which have everything")
	}
	r, err := o.reader()
	if err != nil {
		return err
	}
	invoices, err := r.Invoices(cmd.Context(), tenant)
	if err != nil {
		return poolError(err)
	}
	if period != nil {
		invoices = slices.DeleteFunc(invoices, func(v poolv1alpha1.Invoice) bool { return !period.Has(v.Spec.Period.Start.Time) })
	}
	if len(invoices) == 0 {
		return noAnswerf("%s has no such invoice", tenant)
	}
	if err := o.write(cmd.OutOrStdout(), invoices); err != nil || !o.export {
		return err
	}
	for i := range invoices {
		if invoices[i].Spec.Finalized {
			if err := r.Exported(cmd.Context(), &invoices[i], time.Now()); err != nil {
				return poolError(err)
			}
		}
	}
	return nil
}

func (o *poolInvoice) write(w io.Writer, invoices []poolv1alpha1.Invoice) error {
	bills := make([]billing.Invoice, 0, len(invoices))
	for i := range invoices {
		v, err := accounting.InvoiceOf(&invoices[i])
		if err != nil {
			return inputf("%w", err)
		}
		bills = append(bills, v)
	}
	if o.output == "csv" {
		return writeLines(w, func(w io.Writer) error { return billing.WriteCSV(w, bills) })
	}
	return o.show(w, func(w io.Writer) error { return billing.WriteJSON(&jsonWriter{out: w}, bills) }, func(w io.Writer) error { return writeInvoices(w, invoices) })
}

func writeInvoices(w io.Writer, invoices []poolv1alpha1.Invoice) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "INVOICE\tRESOURCE\tMODEL\tSESSIONS\tHOURS\tPRICE\tDISCOUNT\tSUBTOTAL\t")
	for i := range invoices {
		v := &invoices[i].Spec
		for _, l := range v.LineItems {
			note := ""
			if l.NoPrice {
				note = "no price"
			}
			printf(out, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", v.InvoiceID, l.Resource, l.Model, l.Sessions, l.Hours, l.UnitPrice, l.Discount, l.Subtotal, note)
		}
		state := "open"
		if v.Finalized {
			state = "final"
		}
		printf(out, "%s\ttotal, %s\t\t\t\t\t\t%s\t%s\n", v.InvoiceID, state, v.Total, v.Currency)
		if err := writePages(out, invoices[:i+1], invoices[i+1:]); err != nil {
			return err
		}
	}
	return out.Flush()
}

// writePages writes the total of an invoice's pages, after the last of them.
func writePages(w io.Writer, before, after []poolv1alpha1.Invoice) error {
	last := &before[len(before)-1].Spec
	invoice, _ := billing.PageOf(last.InvoiceID)
	isPage := func(v poolv1alpha1.Invoice) bool {
		of, _ := billing.PageOf(v.Spec.InvoiceID)
		return of == invoice
	}
	if last.Page < 2 || slices.ContainsFunc(after, isPage) {
		return nil
	}
	var sum billing.Amount
	pages := 0
	for i := range before {
		if !isPage(before[i]) {
			continue
		}
		total, err := billing.ParseAmount(string(before[i].Spec.Total))
		if err != nil {
			return inputf("invoice %s: total: %w", before[i].Name, err)
		}
		sum, pages = sum.Plus(total), pages+1
	}
	printf(w, "%s\ttotal of %d pages\t\t\t\t\t\t%s\t%s\n", invoice, pages, sum, last.Currency)
	return nil
}
