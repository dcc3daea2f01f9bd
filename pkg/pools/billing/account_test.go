// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestAppendCredit(t *testing.T) {
	first := teamA()
	first.Credits = append(make([]Credit, 0, 4), credit(t, "a", "10")) // with room for another
	second, err := first.Append(credit(t, "b", "5"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := first.Append(credit(t, "c", "7"))
	if err != nil {
		t.Fatal(err)
	}
	if second.Credits[1].ID != "b" || other.Credits[1].ID != "c" || len(first.Credits) != 1 {
		t.Errorf("one account's credits are in another: %v, %v, %v", first, second, other)
	}
	repeated, err := second.Append(credit(t, "a", "10.00"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(second, repeated); diff != "" {
		t.Errorf("a credit given again (-want,+got):\n%s", diff)
	}
	for name, c := range map[string]Credit{
		"with other fields": credit(t, "a", "11"), "of nothing": credit(t, "d", "0"),
		"without an ID": credit(t, "", "1"), "without a time": {ID: "d", Amount: amount(t, "1")},
	} {
		if _, err := second.Append(c); err == nil {
			t.Errorf("a credit %s was taken", name)
		}
	}
}

// TestCreditAppendOnly: credits are only appended.
func TestCreditAppendOnly(t *testing.T) {
	old := teamA()
	old.Credits = []Credit{credit(t, "a", "10"), credit(t, "b", "5")}
	cases := map[string]struct {
		credits []Credit
		uid     string
		wantErr string
	}{
		"the same":           {credits: old.Credits},
		"one more":           {credits: []Credit{credit(t, "a", "10"), credit(t, "b", "5"), credit(t, "c", "1")}},
		"one less":           {credits: old.Credits[:1], wantErr: "credits[1]: credits are only appended"},
		"another amount":     {credits: []Credit{credit(t, "a", "10"), credit(t, "b", "6")}, wantErr: "credits[1]"},
		"another order":      {credits: []Credit{credit(t, "b", "5"), credit(t, "a", "10")}, wantErr: "credits[0]"},
		"one more of its ID": {credits: []Credit{credit(t, "a", "10"), credit(t, "b", "5"), credit(t, "b", "5")}, wantErr: "is there twice"},
		"another account":    {credits: old.Credits, uid: "new", wantErr: "the tenant or UID changed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := Account{Tenant: old.Tenant, UID: old.UID, Credits: tc.credits}
			if tc.uid != "" {
				a.UID = tc.uid
			}
			err := a.Extends(old)
			if (err == nil) != (tc.wantErr == "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("error %v, want %q in it", err, tc.wantErr)
			}
		})
	}
}

func TestDecodeAccount(t *testing.T) {
	if _, err := DecodeAccount([]byte(`{"tenant": "team-a", "uid": "7", "credits": [{"id": "a", "amount": "0.001", "at": "2026-11-01T00:00:00Z"}]}`)); err == nil {
		t.Error("a credit of a part of a cent was taken")
	}
	account, err := DecodeAccount([]byte(`{"tenant": "team-a", "uid": "7b1c", "credits": [{"id": "a", "amount": "10", "at": "2026-11-01T00:00:00Z"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := teamA()
	want.Credits = []Credit{credit(t, "a", "10")}
	if diff := cmp.Diff(want, account); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
}
