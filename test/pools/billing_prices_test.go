// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/cli"
)

// book applies a price book with prices of a GPU, written as YAML.
func (o *office) book(t *testing.T, name, prices string) {
	t.Helper()
	o.apply(t, fmt.Sprintf(`apiVersion: pool.nvtopo.dev/v1alpha1
kind: PriceBook
metadata: {name: %s}
spec: {currency: USD, prices: [%s]}`, name, prices))
}

// accountWith creates an account that names a price book.
func (o *office) accountWith(t *testing.T, tenant, book string, credit poolv1alpha1.Money) {
	t.Helper()
	o.apply(t, fmt.Sprintf(`apiVersion: pool.nvtopo.dev/v1alpha1
kind: TenantAccount
metadata: {name: %s, annotations: {pool.nvtopo.dev/price-book: %s}}
spec: {credits: [{id: c0, amount: %q, at: "2026-11-01T00:00:00Z"}]}`, tenant, book, credit))
}

// command returns the output of a command of `nvtopo pool`.
func (o *office) command(t *testing.T, line string) string {
	t.Helper()
	var out strings.Builder
	cmd := cli.New("nvtopo")
	cmd.SetOut(&out)
	cmd.SetArgs(append(append([]string{"pool"}, strings.Fields(line)...), "--kubeconfig", o.Kubeconfig()))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Errorf("nvtopo pool %s: %v", line, err)
	}
	return out.String()
}

// priceChanged checks that the cost of a session is fixed when it ends: a price that is changed in place,
// one with validFrom, and a book without prices apply to sessions that end later.
func priceChanged(t *testing.T, o *office) {
	t.Helper()
	o.open(t, 1)
	const gpu = "nvidia.com/gpu"
	o.book(t, "changing", `{resource: nvidia.com/gpu, pricePerHour: "2.0"}`)
	o.accountWith(t, "changing", "changing", "1000")
	first := o.held(t, "changing", gpu, "1", november(2, 0), november(2, 1))
	o.owes(t, "changing", "998.00", "2.00", "0.00")

	o.book(t, "changing", `{resource: nvidia.com/gpu, pricePerHour: "5.0"}`)
	o.held(t, "changing", gpu, "1", november(3, 0), november(3, 1))
	o.owes(t, "changing", "993.00", "7.00", "0.00")

	o.book(t, "changing", `{resource: nvidia.com/gpu, pricePerHour: "5.0"}, {resource: nvidia.com/gpu, pricePerHour: "10", validFrom: "2026-11-10T00:00:00Z"}`)
	o.held(t, "changing", gpu, "1", november(9, 22), november(10, 0).Add(-time.Second)) // 1 h 59 min 59 s: 10.00
	o.held(t, "changing", gpu, "1", november(9, 23), november(10, 0))
	o.held(t, "changing", gpu, "1", november(19, 0), time.Time{})
	o.owes(t, "changing", "973.00", "27.00", "240.00")
	invoice := o.waitInvoices(t, "changing", map[string]string{"2026-11": "27.00"})[0]
	var lines []string
	for _, l := range invoice.Spec.LineItems {
		lines = append(lines, fmt.Sprintf("%d at %s: %s", l.Sessions, l.UnitPrice, l.Subtotal))
	}
	if want := "1 at 2: 2.00, 2 at 5: 15.00, 1 at 10: 10.00"; strings.Join(lines, ", ") != want {
		t.Errorf("the invoice's lines are %v, want %s", lines, want)
	}
	bill := strings.Join(strings.Fields(o.command(t, "bill changing")), " ")
	for _, want := range []string{gpu + " - 2 1 2.00", gpu + " - 5 2 15.00", gpu + " - 10 1 10.00", "Balance 973.00 USD"} {
		if !strings.Contains(bill, want) {
			t.Errorf("the bill has no %q:\n%s", want, bill)
		}
	}

	o.book(t, "changing", `{resource: amd.com/gpu, pricePerHour: "1"}`)
	o.owes(t, "changing", "973.00", "27.00", "0.00")
	o.waitInvoices(t, "changing", map[string]string{"2026-11": "27.00"})
	o.get(t, first, first.Namespace, first.Name)
	if s := first.Status; s.UnitPrice != "2" || s.BilledSeconds != 3600 || s.Cost != "2.00" {
		t.Errorf("the first record says %+v", s)
	}
	for field, change := range map[string]string{"unitPrice": `"3"`, "billedSeconds": "7200"} {
		patch := fmt.Appendf(nil, `{"status":{%q:%s}}`, field, change)
		err := o.Status().Patch(t.Context(), first.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "status."+field+": cannot be changed") {
			t.Errorf("%s changes a record: %v", patch, err)
		}
	}
}

// notDeleted checks that an account with credits or costs can only be deleted after an annotation allows
// it.
func notDeleted(t *testing.T, o *office) {
	t.Helper()
	o.open(t, 1)
	o.account(t, "kept", "510")
	o.held(t, "kept", "nvidia.com/gpu", "1", november(2, 0), november(2, 1))
	o.owes(t, "kept", "508.00", "2.00", "0.00")
	account := &poolv1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
	refused := func(what string, err error) {
		t.Helper()
		for _, want := range []string{"TenantAccount kept", "balance 508.00", "kubectl annotate tenantaccount kept pool.nvtopo.dev/allow-deletion=true"} {
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
				t.Fatalf("%s: %v, want a refusal with %q", what, err, want)
			}
		}
	}
	refused("delete the account", o.Delete(t.Context(), account))
	refused("delete all of its name", o.DeleteAllOf(t.Context(), &poolv1alpha1.TenantAccount{}, client.MatchingFields{"metadata.name": "kept"}))
	o.look(t, "kept")
	o.owes(t, "kept", "508.00", "2.00", "0.00")

	said := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, poolv1alpha1.AnnotationAllowDeletion)
	if err := o.Patch(t.Context(), account.DeepCopy(), client.RawPatch(types.MergePatchType, said)); err != nil {
		t.Fatal(err)
	}
	if err := o.Delete(t.Context(), account.DeepCopy()); err != nil {
		t.Fatalf("the account cannot be deleted: %v", err)
	}
	o.owes(t, "kept", "-2.00", "2.00", "0.00") // as it was said

	invoice := o.waitInvoices(t, "kept", map[string]string{"2026-11": "2.00"})[0]
	final := invoice.DeepCopy()
	final.Name, final.ResourceVersion, final.Spec.Finalized = "inv-of-somebody", "", true
	final.Spec.InvoiceID, final.Spec.Tenant = final.Name, "somebody"
	if err := o.Create(t.Context(), final); err != nil {
		t.Fatal(err)
	}
	if err := o.Delete(t.Context(), final); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it is final, and the balance of somebody has its total") {
		t.Errorf("a final invoice is deleted: %v", err)
	}

	o.account(t, "nothing-to-lose")
	o.owes(t, "nothing-to-lose", "0.00", "0.00", "0.00")
	if err := o.Delete(t.Context(), &poolv1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "nothing-to-lose"}}); err != nil {
		t.Errorf("an account without anything cannot be deleted: %v", err)
	}
}

// withoutBook checks that an account keeps its credits and priced costs while its price book does not
// exist.
func withoutBook(t *testing.T, o *office) {
	t.Helper()
	o.open(t, 1)
	const tenant, book = "bookless", "missing"
	o.accountWith(t, tenant, book, "500")
	noBook := func(balance, billed string) {
		t.Helper()
		testkit.Eventually(t, patience, "the account has "+balance+", and no price book", func(ctx context.Context) (bool, string) {
			var account poolv1alpha1.TenantAccount
			err := o.Get(ctx, client.ObjectKey{Name: tenant}, &account)
			c := meta.FindStatusCondition(account.Status.Conditions, poolv1alpha1.ConditionPriced)
			said := c != nil && c.Reason == "NoPriceBook" && strings.Contains(c.Message, "there is no PriceBook missing: make it")
			s := account.Status
			return said && string(s.Balance) == balance && string(s.Billed) == billed && s.Accrued == "0.00", fmt.Sprint(err, account.Status)
		})
	}
	noBook("500.00", "0.00")
	o.held(t, tenant, "nvidia.com/gpu", "1", november(2, 0), november(2, 1))
	bill := o.command(t, "bill "+tenant)
	for _, want := range []string{"Balance  500.00", "No prices: there is no PriceBook missing"} {
		if !strings.Contains(bill, want) {
			t.Errorf("the bill has no %q:\n%s", want, bill)
		}
	}
	o.book(t, book, `{resource: nvidia.com/gpu, pricePerHour: "2.0"}`)
	o.owes(t, tenant, "498.00", "2.00", "0.00")
	o.waitInvoices(t, tenant, map[string]string{"2026-11": "2.00"})
	if err := o.Delete(t.Context(), &poolv1alpha1.PriceBook{ObjectMeta: metav1.ObjectMeta{Name: book}}); err != nil {
		t.Fatal(err)
	}
	noBook("498.00", "2.00")
	o.waitInvoices(t, tenant, map[string]string{"2026-11": "2.00"})
}

// repriced is the number of records that get a price at once.
const repriced = 500

// pricedAtOnce checks that five hundred records get a price at once, and are written once.
func pricedAtOnce(t *testing.T, o *office) {
	t.Helper()
	const tenant = "many"
	o.book(t, tenant, `{resource: amd.com/gpu, pricePerHour: "1"}`)
	o.accountWith(t, tenant, tenant, "10000")
	for range repriced {
		o.held(t, tenant, "nvidia.com/gpu", "1", november(2, 0), november(2, 1))
	}
	o.open(t, 1)
	o.costs(t, tenant, "0.00")
	began := time.Now()
	o.book(t, tenant, `{resource: amd.com/gpu, pricePerHour: "1"}, {resource: nvidia.com/gpu, pricePerHour: "2"}`)
	o.owes(t, tenant, "9000.00", "1000.00", "0.00")
	took := time.Since(began)
	written := o.costs(t, tenant, "2.00")
	t.Logf("%d records have a price after %v", repriced, took.Round(time.Millisecond))

	o.book(t, tenant, `{resource: nvidia.com/gpu, pricePerHour: "3"}`)
	o.held(t, tenant, "nvidia.com/gpu", "1", november(3, 0), november(3, 1)) // for which it waits
	o.owes(t, tenant, "8997.00", "1003.00", "0.00")
	again := o.versions(t, tenant)
	maps.DeleteFunc(again, func(name, version string) bool { return written[name] == version })
	if len(again) != 1 {
		t.Errorf("%d records were written after the price of the next had changed, want that one: %v", len(again), slices.Collect(maps.Keys(again)))
	}
}

// costs waits until all records of a tenant have a cost, and returns their versions.
func (o *office) costs(t *testing.T, tenant string, want poolv1alpha1.Money) map[string]string {
	t.Helper()
	testkit.Eventually(t, patience, fmt.Sprintf("all records of %s cost %s", tenant, want), func(ctx context.Context) (bool, string) {
		var list poolv1alpha1.UsageRecordList
		err := o.List(ctx, &list, client.MatchingFields{"spec.tenant": tenant})
		others := slices.DeleteFunc(list.Items, func(r poolv1alpha1.UsageRecord) bool { return r.Status.Cost == want })
		return err == nil && len(others) == 0, fmt.Sprintf("%v, %d do not", err, len(others))
	})
	return o.versions(t, tenant)
}

// versions returns the resource versions of a tenant's records by name.
func (o *office) versions(t *testing.T, tenant string) map[string]string {
	t.Helper()
	var list poolv1alpha1.UsageRecordList
	if err := o.List(t.Context(), &list, client.MatchingFields{"spec.tenant": tenant}); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i].ResourceVersion
	}
	return out
}
