// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"strings"
	"testing"
)

func credit(t *testing.T, id, money string) Credit {
	t.Helper()
	return Credit{ID: id, Amount: amount(t, money), At: epoch}
}

func TestBalance(t *testing.T) {
	cost := func(id, tenant, money, invoice string) Charge {
		return Charge{Session: Session{ID: id, Tenant: tenant, Invoice: invoice}, Cost: amount(t, money)}
	}
	cases := map[string]struct {
		credits []Credit
		final   []Invoice
		charges []Charge
		want    string
		wantErr string
	}{
		"nothing":                       {want: "0.00"},
		"a credit and a charge":         {credits: []Credit{credit(t, "a", "1000")}, charges: []Charge{cost("s", "team-a", "180", "")}, want: "820.00"},
		"a charge replayed":             {credits: []Credit{credit(t, "a", "1000")}, charges: []Charge{cost("s", "team-a", "180", ""), cost("s", "team-a", "180", "")}, want: "820.00"},
		"less than nothing":             {charges: []Charge{cost("s", "team-a", "0.01", "")}, want: "-0.01"},
		"a correction":                  {credits: []Credit{credit(t, "a", "1000"), credit(t, "b", "-999.5")}, want: "0.50"},
		"another tenant's charge":       {charges: []Charge{cost("s", "team-b", "180", "")}, want: "0.00"},
		"another tenant's invoice":      {final: []Invoice{{ID: "i", Tenant: "team-b", Total: amount(t, "5")}}, want: "0.00"},
		"an invoice and its charges":    {final: []Invoice{{ID: "i", Tenant: "team-a", Total: amount(t, "5")}}, charges: []Charge{cost("s", "team-a", "5", "i")}, want: "-5.00"},
		"a charge on no final one":      {final: []Invoice{{ID: "i", Tenant: "team-a", Total: amount(t, "5")}}, charges: []Charge{cost("s", "team-a", "2", "draft")}, want: "-7.00"},
		"one ID and two costs":          {charges: []Charge{cost("s", "team-a", "1", ""), cost("s", "team-a", "2", "")}, wantErr: "different costs"},
		"one ID and two totals":         {final: []Invoice{{ID: "i", Tenant: "team-a", Total: amount(t, "5")}, {ID: "i", Tenant: "team-a"}}, wantErr: "different totals"},
		"a charge of no cost, replayed": {charges: []Charge{cost("s", "team-a", "0", ""), cost("s", "team-a", "1", "")}, wantErr: "different costs"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := teamA()
			a.Credits = tc.credits
			got, err := a.Balance(tc.final, tc.charges)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("%s: error %v, want %q in it", got, err, tc.wantErr)
				}
				return
			}
			if err != nil || got.String() != tc.want {
				t.Errorf("%s, %v; want %s", got, err, tc.want)
			}
		})
	}
}
