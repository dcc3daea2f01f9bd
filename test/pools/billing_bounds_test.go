// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// rolledUp checks that the controller combines credits with final invoices, with its own rights, that no
// other account can, and that a combined credit cannot be added again.
func rolledUp(t *testing.T, o *office) {
	t.Helper()
	account := &poolv1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "rolled"}}
	for i := range 600 {
		at := time.Date(2026, time.September, 1, i, 0, 0, 0, time.UTC) // until the 26th
		account.Spec.Credits = append(account.Spec.Credits, poolv1alpha1.Credit{ID: fmt.Sprintf("c%d", i), Amount: "1.10", At: metav1.NewTime(at)})
	}
	if err := o.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	by := account.DeepCopy()
	by.Spec.Credits = []poolv1alpha1.Credit{{ID: poolv1alpha1.OpeningCredit, Amount: "660.00", At: account.Spec.Credits[599].At}}
	if err := o.Update(t.Context(), by); err == nil || !strings.Contains(err.Error(), "The pool controller alone puts credits together") {
		t.Errorf("an administrator put credits together: %v", err)
	}
	by.Spec.Credits[0].Amount = "659.00"
	if err := o.Update(t.Context(), by); err == nil || !strings.Contains(err.Error(), "credits: can only be added to") {
		t.Errorf("credits were put together with another sum: %v", err)
	}

	o.held(t, "rolled", "nvidia.com/gpu", "1", november(2, 0), november(2, 1))
	config := rest.CopyConfig(o.RESTConfig())
	namespace, name, _ := strings.Cut(controllerAccount, "/")
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + name,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	o.openAs(t, config, 2)
	o.owes(t, "rolled", "658.00", "2.00", "0.00")
	testkit.Eventually(t, patience, "the credits are one", func(ctx context.Context) (bool, string) {
		if err := o.Get(ctx, client.ObjectKeyFromObject(account), account); err != nil {
			return false, err.Error()
		}
		c := account.Spec.Credits
		return len(c) == 1 && c[0].ID == poolv1alpha1.OpeningCredit && c[0].Amount == "660.00", fmt.Sprint(len(c), " credits, the first ", c[0])
	})
	o.look(t, "rolled")
	o.owes(t, "rolled", "658.00", "2.00", "0.00")

	for id, tc := range map[string]struct {
		at   time.Time
		want string // empty: it is added
	}{
		"c7":  {time.Date(2026, time.September, 1, 7, 0, 0, 0, time.UTC), "credits: at is not after that of the opening credit"},
		"new": {november(19, 0), ""},
	} {
		o.get(t, account, "", "rolled")
		account.Spec.Credits = append(account.Spec.Credits, poolv1alpha1.Credit{ID: id, Amount: "1.10", At: metav1.NewTime(tc.at)})
		err := o.Update(t.Context(), account)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("credit %s is added: %v, want %q", id, err, tc.want)
		}
	}
	o.owes(t, "rolled", "659.10", "2.00", "0.00")
}

// paged checks that an invoice of 300 lines is two Invoices, whose sum is the cost of the sessions, and
// that each session is on one.
func paged(t *testing.T, o *office) {
	t.Helper()
	o.account(t, "paged")
	for i := range 300 {
		r := &poolv1alpha1.UsageRecord{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("paged-%d", i), Namespace: "default"}}
		r.Spec = poolv1alpha1.UsageRecordSpec{
			Tenant: "paged", Pool: "training", Pod: "p", PodUID: types.UID(r.Name), Node: "n", Resource: "nvidia.com/gpu", Model: fmt.Sprintf("M%03d", i),
			Quantity: "1", Start: metav1.NewTime(november(2, 0)),
		}
		if err := o.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		before, at := r.DeepCopy(), metav1.NewTime(november(2, 1))
		r.Status.End = &at
		if err := o.Status().Patch(t.Context(), r, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	o.open(t, 2)
	o.owes(t, "paged", "-600.00", "600.00", "0.00")
	o.clock.SetTime(time.Date(2026, time.December, 3, 0, 0, 0, 0, time.UTC))
	o.look(t, "paged")
	var pages poolv1alpha1.InvoiceList
	testkit.Eventually(t, patience, "two pages are final", func(ctx context.Context) (bool, string) {
		if err := o.List(ctx, &pages, client.MatchingFields{"spec.tenant": "paged"}); err != nil {
			return false, err.Error()
		}
		final := 0
		for i := range pages.Items {
			if pages.Items[i].Spec.Finalized {
				final++
			}
		}
		return final == 2 && len(pages.Items) == 2, fmt.Sprintf("%d of %d are", final, len(pages.Items))
	})
	o.owes(t, "paged", "-600.00", "600.00", "0.00")
	var records poolv1alpha1.UsageRecordList
	if err := o.List(t.Context(), &records, client.MatchingFields{"spec.tenant": "paged"}); err != nil {
		t.Fatal(err)
	}
	var sum billing.Amount
	for i := range pages.Items {
		v, err := accounting.InvoiceOf(&pages.Items[i])
		if err != nil {
			t.Fatal(err)
		}
		sum = sum.Plus(v.Total)
		wantPages := 0
		if v.Page == 1 {
			wantPages = 2
		}
		first, page := billing.PageOf(v.ID)
		if marked := count(records.Items, v.ID); marked != len(v.Lines) || v.Page != page || v.Pages != wantPages || !strings.HasPrefix(pages.Items[1-i].Name, first) {
			t.Errorf("%s is page %d of %d with %d lines, and %d records are marked with it", v.ID, v.Page, v.Pages, len(v.Lines), marked)
		}
	}
	if sum.String() != "600.00" {
		t.Errorf("the pages come to %s, want 600.00", sum)
	}
}
