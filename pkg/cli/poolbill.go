// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

func newPoolBill() *cobra.Command {
	o := &poolOptions{}
	cmd := &cobra.Command{
		Use:   "bill TENANT",
		Short: "What a tenant owes until now",
		Long: `Compute what a tenant's sessions cost that are on no final invoice, by resource, and its
balance: credits less what all sessions cost that have ended. ACCRUED is what those would
cost that go on, if they ended now; it is in no balance.`,
		Example: `  NVTOPO pool bill team-a
  NVTOPO pool bill team-a -o json`,
		Args: exactlyOne("TENANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := o.reader()
			if err != nil {
				return err
			}
			books, err := r.books(cmd.Context(), args[0], time.Now())
			if err != nil {
				return err
			}
			bill, err := billOf(books)
			if err != nil {
				return inputf("%w", err)
			}
			return o.show(cmd.OutOrStdout(), func(w io.Writer) error {
				e := json.NewEncoder(w)
				e.SetIndent("", "  ")
				return e.Encode(bill)
			}, bill.write)
		},
	}
	o.bind(cmd, plainForms[:]...)
	return cmd
}

// tenantBill is the answer of pool bill; its JSON form is part of the command's contract.
type tenantBill struct {
	Tenant   string         `json:"tenant"`
	Currency string         `json:"currency"`
	AsOf     time.Time      `json:"asOf"`
	Lines    []billLine     `json:"lines"`
	Balance  billing.Amount `json:"balance"`
	Billed   billing.Amount `json:"billed"`
	Accrued  billing.Amount `json:"accrued"`
	Wrong    []string       `json:"wrong,omitempty"` // records that cannot be billed
}

// billLine is the sessions of one resource and model that are on no final invoice.
type billLine struct {
	Resource string         `json:"resource"`
	Model    string         `json:"model,omitempty"`
	Sessions int            `json:"sessions"`
	Open     int            `json:"open"`
	Cost     billing.Amount `json:"cost"`    // of those that have ended
	Accrued  billing.Amount `json:"accrued"` // of those that go on
	NoPrice  bool           `json:"noPrice,omitempty"`
}

func billOf(books *accounting.Books) (*tenantBill, error) {
	s, err := books.Compute()
	if err != nil {
		return nil, err
	}
	bill := &tenantBill{
		Tenant: books.Account.Name, Currency: string(books.Prices.Spec.Currency), AsOf: books.Now.UTC().Truncate(time.Second),
		Lines: []billLine{}, Balance: s.Balance, Billed: s.Billed, Accrued: s.Accrued,
	}
	for _, session := range s.Sessions {
		line := bill.line(&session.Charge)
		line.Sessions++
		line.Cost = line.Cost.Plus(session.Charge.Cost)
	}
	for i := range s.Open {
		line := bill.line(&s.Open[i])
		line.Open++
		line.Accrued = line.Accrued.Plus(s.Open[i].Cost)
	}
	for _, err := range s.Wrong {
		bill.Wrong = append(bill.Wrong, err.Error())
	}
	slices.SortFunc(bill.Lines, func(a, b billLine) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Model, b.Model))
	})
	return bill, nil
}

// line is that of a charge's resource and model.
func (b *tenantBill) line(c *billing.Charge) *billLine {
	i := slices.IndexFunc(b.Lines, func(l billLine) bool { return l.Resource == c.Session.Resource && l.Model == c.Session.Model })
	if i < 0 {
		i = len(b.Lines)
		b.Lines = append(b.Lines, billLine{Resource: c.Session.Resource, Model: c.Session.Model, NoPrice: c.NoPrice})
	}
	return &b.Lines[i]
}

func (b *tenantBill) write(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "RESOURCE\tMODEL\tSESSIONS\tCOST\tOPEN\tACCRUED\t")
	for _, l := range b.Lines {
		note := ""
		if l.NoPrice {
			note = "no price"
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t%s\t%d\t%s\t%s\n", l.Resource, cmp.Or(l.Model, "-"), l.Sessions, l.Cost, l.Open, l.Accrued, note)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nBilled   %s %s\nBalance  %s %s\nAccrued  %s %s, if all sessions ended now\n",
		b.Billed, b.Currency, b.Balance, b.Currency, b.Accrued, b.Currency)
	for _, wrong := range b.Wrong {
		fmt.Fprintln(w, "Not billed:", wrong)
	}
	return nil
}
