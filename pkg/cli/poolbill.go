// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

func newPoolBill() *cobra.Command {
	o := &poolOptions{}
	cmd := &cobra.Command{
		Use:   "bill TENANT",
		Short: "What a tenant owes until now",
		Long: `Compute what a tenant's sessions cost that are on no final invoice, by resource and price,
and its balance: credits less what all sessions cost that have ended. A session has the
price that was valid when it ended. ACCRUED is what those would cost that go on, if they
ended now; it is in no balance.`,
		Example: `  NVTOPO pool bill team-a
  NVTOPO pool bill team-a -o json`,
		Args: exactlyOne("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := o.reader()
			if err != nil {
				return err
			}
			books, err := r.Books(cmd.Context(), args[0], time.Now())
			if err != nil {
				return poolError(err)
			}
			bill, err := accounting.BillOf(books)
			if err != nil {
				return inputf("%w", err)
			}
			return o.show(cmd.OutOrStdout(), func(w io.Writer) error {
				return encodeJSON(w, "  ", bill)
			}, func(w io.Writer) error { return writeBill(w, bill) })
		},
	}
	o.bind(cmd, plainForms[:]...)
	return cmd
}

func writeBill(w io.Writer, b *accounting.Bill) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "RESOURCE\tMODEL\tPRICE\tSESSIONS\tCOST\tOPEN\tACCRUED\t")
	for _, l := range b.Lines {
		price, note := l.UnitPrice.String(), ""
		if l.NoPrice {
			price, note = "-", "no price"
		}
		printf(out, "%s\t%s\t%s\t%d\t%s\t%d\t%s\t%s\n", l.Resource, cmp.Or(l.Model, "-"), price, l.Sessions, l.Cost, l.Open, l.Accrued, note)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	currency := cmp.Or(b.Currency, "(no currency)")
	printf(w, "\nBilled   %s %s\nBalance  %s %s\nAccrued  %s %s, if all sessions ended now\n",
		b.Billed, currency, b.Balance, currency, b.Accrued, currency)
	if b.NoPrices != "" {
		printf(w, "No prices: %s\n", b.NoPrices)
	}
	for _, wrong := range b.Wrong {
		printf(w, "Not billed: %s\n", wrong)
	}
	for _, held := range b.Held {
		printf(w, "Not billed: record %s was restored from a backup without its status\n", held)
	}
	if len(b.Held) > 0 {
		printf(w, "%s\n", accounting.HowToSettle)
	}
	return nil
}
