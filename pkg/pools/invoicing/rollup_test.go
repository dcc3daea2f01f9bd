// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// TestRollUpKilled: credits are combined in one write. Whether that succeeds, is refused or gets no
// response, and also with a credit added meanwhile, the balance is the sum of all credits and nothing is
// lost.
func TestRollUpKilled(t *testing.T) {
	isRollUp := func(o client.Object) bool { _, ok := o.(*v1alpha1.TenantAccount); return ok }
	add := func(e *testEnv) error {
		a := &v1alpha1.TenantAccount{}
		if err := e.Get(t.Context(), client.ObjectKey{Name: "team-a"}, a); err != nil {
			return err
		}
		a.Spec.Credits = append(a.Spec.Credits, v1alpha1.Credit{ID: "new", Amount: "5.00", At: metav1.NewTime(day(12, 3))})
		return e.Update(t.Context(), a)
	}
	for name, tc := range map[string]struct {
		write       func(e *testEnv, do func() error) error // the first time
		wantErr     bool
		wantAfter   int // credits after that
		wantCredits int // in the end
		wantBalance v1alpha1.Money
		wantTold    int
	}{
		// 600 credits an hour apart from noon on: 600 until the 26th of October.
		"it is carried out":              {write: func(_ *testEnv, do func() error) error { return do() }, wantAfter: 1, wantCredits: 1, wantBalance: "600.00", wantTold: 1},
		"killed before":                  {write: func(*testEnv, func() error) error { return errKilled }, wantErr: true, wantAfter: 600, wantCredits: 1, wantBalance: "600.00", wantTold: 1},
		"carried out without an answer":  {write: func(_ *testEnv, do func() error) error { return errors.Join(do(), errKilled) }, wantErr: true, wantAfter: 1, wantCredits: 1, wantBalance: "600.00"},
		"somebody adds a credit between": {write: func(e *testEnv, do func() error) error { return errors.Join(add(e), do()) }, wantAfter: 601, wantCredits: 2, wantBalance: "605.00", wantTold: 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t, anAccount(600))
			first := true
			e.intercept(&interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				do := func() error { return c.Patch(ctx, o, p, opts...) }
				if !isRollUp(o) || !first {
					return do()
				}
				first = false
				return tc.write(e, do)
			}})
			if _, err := e.reconcile(t); (err != nil) != tc.wantErr {
				t.Fatalf("error %v, want one: %t", err, tc.wantErr)
			}
			if n := len(e.account(t).Spec.Credits); n != tc.wantAfter {
				t.Errorf("%d credits after that, want %d", n, tc.wantAfter)
			}
			for range 3 {
				if _, err := e.reconcile(t); err != nil {
					t.Fatal(err)
				}
			}
			account := e.account(t)
			if n := len(account.Spec.Credits); n != tc.wantCredits || account.Spec.Credits[0].ID != v1alpha1.OpeningCredit || account.Spec.Credits[0].Amount != "600.00" {
				t.Errorf("%d credits, the first %+v; want %d, the first of 600.00", n, account.Spec.Credits[0], tc.wantCredits)
			}
			if account.Status.Balance != tc.wantBalance {
				t.Errorf("balance %s, want %s", account.Status.Balance, tc.wantBalance)
			}
			told := 0
			for _, event := range e.told() {
				if strings.HasPrefix(event, "Normal "+eventCreditsRolledUp+" 600 credits until 2026-10-26 are one of 600.00 now") {
					told++
				}
			}
			if told != tc.wantTold {
				t.Errorf("%d events say so, want %d", told, tc.wantTold)
			}
		})
	}
}

// TestRollUpWaits: credits are unchanged while an invoice of their month is open, though the cache does
// not show it.
func TestRollUpWaits(t *testing.T) {
	open := hours(0, 1, day(10, 20))
	e := newTestEnv(t, anAccount(600))
	e.r.reader = newTestEnv(t, append(open, anAccount(600))...).WithWatch
	if _, err := e.reconcile(t); err != nil {
		t.Fatal(err)
	}
	if n := len(e.account(t).Spec.Credits); n != 600 {
		t.Errorf("%d credits, want 600", n)
	}
}
