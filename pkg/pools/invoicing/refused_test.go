// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// TestRefusedBill: a refusal of a write for an account is an event, and the write is retried each
// minute. If invoices are refused the condition reports that. The balance is written nevertheless.
func TestRefusedBill(t *testing.T) {
	forbid := func(o client.Object) error {
		return apierrors.NewForbidden(v1.Resource("things"), o.GetName(), errors.New("a policy says no"))
	}
	create := interceptor.Funcs{Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
		return forbid(o)
	}}
	mark := interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
		if _, ok := o.(*v1alpha1.UsageRecord); ok {
			return forbid(o)
		}
		return c.SubResource(sub).Patch(ctx, o, p, opts...)
	}}
	patch := func(refused client.Object) interceptor.Funcs {
		return interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if kind(o) == kind(refused) {
				return forbid(o)
			}
			return c.Patch(ctx, o, p, opts...)
		}}
	}
	final := &v1alpha1.Invoice{
		ObjectMeta: metav1.ObjectMeta{Name: "inv-20260801-20260901-uid-a"}, Spec: v1alpha1.InvoiceSpec{
			InvoiceID: "inv-20260801-20260901-uid-a", Tenant: "team-a", Currency: "USD", Total: "2.00", Finalized: true,
			Period:    v1alpha1.BillingPeriod{Start: metav1.NewTime(time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)), End: metav1.NewTime(time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC))},
			LineItems: []v1alpha1.LineItem{{Resource: "nvidia.com/gpu", Hours: "1", UnitPrice: "2", Discount: "0.00", Subtotal: "2.00", Sessions: 1}},
		}, Status: v1alpha1.InvoiceStatus{ExportedAt: new(metav1.NewTime(day(9, 2)))},
	}
	billed := func() []client.Object {
		out := hours(1000, 1, day(8, 20))
		if r, ok := out[0].(*v1alpha1.UsageRecord); ok {
			r.Status.Invoice, r.Finalizers = final.Name, []string{"pool.nvtopo.dev/billing"}
		}
		return append(out, final.DeepCopy())
	}
	for name, tc := range map[string]struct {
		objects       []client.Object
		refuse        interceptor.Funcs
		wantEvent     string
		wantCondition string // reason of Priced
		wantBalance   v1alpha1.Money
	}{
		"an invoice": {
			objects: hours(0, 1, day(11, 20)), refuse: create, wantEvent: "what tenant team-a owes", wantCondition: refusal.Reason, wantBalance: "-1.00",
		},
		"the cost of a record": {
			objects: hours(0, 1, day(11, 20)), refuse: mark, wantEvent: "what tenant team-a owes", wantCondition: refusal.Reason, wantBalance: "-1.00",
		},
		"the end of an invoice": {
			objects: hours(0, 1, day(11, 20)), refuse: patch(final), wantEvent: "what tenant team-a owes", wantCondition: refusal.Reason, wantBalance: "-1.00",
		},
		"the deletion of billed records": {
			objects: billed(), refuse: patch(&v1alpha1.UsageRecord{}), wantEvent: "the deletion of billed records of tenant team-a", wantCondition: reasonPriced, wantBalance: "-1.00",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t, slices.Concat(tc.objects, []client.Object{anAccount(1)})...)
			e.intercept(&tc.refuse)
			for range 2 {
				result, err := e.reconcile(t)
				if err != nil || result.RequeueAfter != refusal.Again {
					t.Fatalf("looked at again after %v, %v; want after %v", result.RequeueAfter, err, refusal.Again)
				}
			}
			refused := func() []string {
				return slices.DeleteFunc(e.told(), func(s string) bool { return !strings.HasPrefix(s, "Warning "+refusal.EventRefused+" ") })
			}
			told := refused()
			if len(told) != 2 || !strings.HasPrefix(told[0], "Warning Refused the API server refuses "+tc.wantEvent+": ") || !strings.HasSuffix(told[0], "a policy says no") {
				t.Errorf("events %q", told)
			}
			account := e.account(t)
			if c := meta.FindStatusCondition(account.Status.Conditions, v1alpha1.ConditionPriced); c == nil || c.Reason != tc.wantCondition {
				t.Errorf("condition %+v, want reason %s", c, tc.wantCondition)
			}
			if account.Status.Balance != tc.wantBalance {
				t.Errorf("balance %s, want %s", account.Status.Balance, tc.wantBalance)
			}
			e.intercept(nil)
			if _, err := e.reconcile(t); err != nil {
				t.Fatal(err)
			}
			if told := refused(); len(told) > 0 {
				t.Errorf("once it is let, events say %q", told)
			}
			if c := meta.FindStatusCondition(e.account(t).Status.Conditions, v1alpha1.ConditionPriced); c == nil || c.Reason != reasonPriced {
				t.Errorf("condition %+v, want reason %s", c, reasonPriced)
			}
		})
	}
}

// kind returns an object's kind.
func kind(o client.Object) string {
	switch o.(type) {
	case *v1alpha1.Invoice:
		return v1alpha1.InvoiceKind
	case *v1alpha1.UsageRecord:
		return v1alpha1.UsageRecordKind
	case *v1alpha1.TenantAccount:
		return v1alpha1.TenantAccountKind
	}
	return ""
}
