// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
)

// billed has two tenants in the API: the controller wrote the amounts of both.
func billed(t *testing.T) *testEnv {
	t.Helper()
	b := newTestEnv(t, viewtest.New(), nil)
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: poolv1alpha1.SchemeGroupVersion.String(), Kind: name}
	}
	b.addCustom(t, poolv1alpha1.PriceBookGVR, &poolv1alpha1.PriceBook{
		TypeMeta: kind("PriceBook"), ObjectMeta: metav1.ObjectMeta{Name: poolv1alpha1.DefaultPriceBook}, Spec: poolv1alpha1.PriceBookSpec{
			Currency: "USD", Prices: []poolv1alpha1.Price{{Resource: "nvidia.com/gpu", PricePerHour: "2"}}, Mode: poolv1alpha1.AllUnits, DiscountScope: poolv1alpha1.ScopeSession,
		},
	})
	end := metav1.NewTime(b.clock.Now().UTC().Truncate(time.Second))
	for _, tenant := range []string{"team-b", "team-a"} {
		b.addCustom(t, poolv1alpha1.TenantAccountGVR, &poolv1alpha1.TenantAccount{
			TypeMeta: kind("TenantAccount"), ObjectMeta: metav1.ObjectMeta{Name: tenant, UID: "uid-1"},
			Status: poolv1alpha1.TenantAccountStatus{
				Balance: "-2.00", Billed: "2.00", Accrued: "0.50", AsOf: &end,
				Conditions: []metav1.Condition{{Type: poolv1alpha1.ConditionPriced, Status: metav1.ConditionFalse, Reason: "NoPrice", Message: "the price book has no price for x"}},
			},
		})
		b.addCustom(t, poolv1alpha1.UsageRecordGVR, &poolv1alpha1.UsageRecord{
			TypeMeta: kind(poolv1alpha1.UsageRecordKind), ObjectMeta: metav1.ObjectMeta{Name: "of-" + tenant, Namespace: tenant},
			Spec: poolv1alpha1.UsageRecordSpec{
				Tenant: tenant, Pool: "training", Pod: "p", PodUID: "p", Node: "n1", Resource: "nvidia.com/gpu", Quantity: "1", Start: metav1.NewTime(end.Add(-time.Hour)),
			},
			Status: poolv1alpha1.UsageRecordStatus{End: &end},
		})
	}
	b.dyn.ClearActions()
	return b
}

// listed are the kinds that were listed since, and of which tenant.
func (e *testEnv) listed(kinds ...schema.GroupVersionResource) (out []string) {
	for _, a := range e.dyn.Actions() {
		list, ok := a.(clienttesting.ListAction)
		if !ok {
			continue
		}
		for _, kind := range kinds {
			if a.GetResource() == kind {
				out = append(out, kind.Resource+" "+list.GetListRestrictions().Fields.String())
			}
		}
	}
	return out
}

// TestBills: the amounts of all tenants cost no look at their records, and the bill of one only at its own.
func TestBills(t *testing.T) {
	b := billed(t)
	usage := []schema.GroupVersionResource{poolv1alpha1.UsageRecordGVR, poolv1alpha1.UsageBatchGVR, poolv1alpha1.InvoiceGVR}
	var all billsDocument
	b.get(t, "/api/v1/pools/bills", &all)
	var got []string
	for _, bill := range all.Items {
		got = append(got, strings.Join([]string{bill.Tenant, bill.Currency, bill.Billed.String(), bill.Balance.String(), bill.Accrued.String()}, " "))
	}
	if diff := cmp.Diff([]string{"team-a USD 2.00 -2.00 0.50", "team-b USD 2.00 -2.00 0.50"}, got); diff != "" {
		t.Errorf("bills (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"team-a: the price book has no price for x", "team-b: the price book has no price for x"}, all.Problems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if got := b.listed(usage...); len(got) > 0 {
		t.Errorf("for the amounts of all were listed %q", got)
	}
	var one billsDocument
	b.get(t, "/api/v1/pools/bills?tenant=team-a", &one)
	if len(one.Items) != 1 || one.Items[0].Tenant != "team-a" || one.Items[0].Billed.String() != "2.00" || len(one.Items[0].Lines) != 1 || one.Items[0].Lines[0].Sessions != 1 {
		t.Errorf("the bill of team-a is %+v", one.Items)
	}
	if diff := cmp.Diff([]string{"invoices spec.tenant=team-a", "usagerecords spec.tenant=team-a", "usagebatches spec.tenant=team-a"}, b.listed(usage...)); diff != "" {
		t.Errorf("listed for one bill (-want +got):\n%s", diff)
	}
}

// TestBillOfNobody: a tenant without an account is not found, and what is no name is refused.
func TestBillOfNobody(t *testing.T) {
	b := billed(t)
	for path, want := range map[string]int{
		"/api/v1/pools/bills?tenant=team-c": http.StatusNotFound, "/api/v1/pools/bills?tenant=a/../b": http.StatusBadRequest,
		"/api/v1/pools/usage?tenant=A,spec.tenant=b": http.StatusBadRequest, "/api/v1/pools/usage?tenant=team-a": http.StatusOK,
	} {
		if head, text := b.ask(t, asked{path: path}); head.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", path, head.StatusCode, text, want)
		}
	}
	if diff := cmp.Diff([]string{"usagerecords spec.tenant=team-a"}, b.listed(poolv1alpha1.UsageRecordGVR)); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}
