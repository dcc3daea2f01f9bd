// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/transcript"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/pools/invoicing"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// office bills on a real API server, by a clock of its own. The pool controller does not run.
type office struct {
	*testEnv
	clock      *testingclock.FakePassiveClock
	batchAfter time.Duration // 0: sessions stay in records
}

const requirementsPrices = `apiVersion: pool.nvtopo.dev/v1alpha1
kind: PriceBook
metadata: {name: %s}
spec:
  currency: USD
  prices: [{resource: nvidia.com/gpu, pricePerHour: "2.0"}]
  minPeriodSeconds: 60
  discounts:
  - {thresholdHours: "100", multiplier: "0.9"}
  - {thresholdHours: "500", multiplier: "0.8"}
  - {thresholdHours: "1000", multiplier: "0.7"}
`

const (
	grace = 24 * time.Hour
	keep  = 90 * 24 * time.Hour
)

// open runs a number of billing controllers at once, each of which acts as leader, until the test ends or
// closed is called.
func (o *office) open(t *testing.T, controllers int) (closed func()) {
	t.Helper()
	return o.openAs(t, o.RESTConfig(), controllers)
}

// openAs is open with another client configuration.
func (o *office) openAs(t *testing.T, config *rest.Config, controllers int) (closed func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	closed = func() { cancel(); running.Wait() }
	t.Cleanup(closed)
	for range controllers {
		mgr, err := ctrl.NewManager(config, ctrl.Options{
			Scheme: kinds(), Metrics: metricsserver.Options{BindAddress: "0"}, LeaderElection: false,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := invoicing.Setup(mgr, invoicing.Options{Grace: grace, Keep: keep, BatchAfter: o.batchAfter, Clock: o.clock}); err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			if err := mgr.Start(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return closed
}

// account creates a tenant's account.
func (o *office) account(t *testing.T, tenant string, credits ...poolv1alpha1.Money) {
	t.Helper()
	account := &poolv1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: tenant}}
	for i, amount := range credits {
		account.Spec.Credits = append(account.Spec.Credits, poolv1alpha1.Credit{ID: fmt.Sprintf("c%d", i), Amount: amount, At: metav1.NewTime(o.clock.Now())})
	}
	if err := o.Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
}

// look triggers a reconciliation of an account: the controllers wait by the real clock.
func (o *office) look(t *testing.T, tenant string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"test/looks":%q}}}`, uuid.NewUUID())
	account := &poolv1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: tenant}}
	if err := o.Patch(t.Context(), account, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// held records a session of a tenant; one without an end continues.
func (o *office) held(t *testing.T, tenant, resource string, quantity poolv1alpha1.Decimal, start, end time.Time) *poolv1alpha1.UsageRecord {
	t.Helper()
	r := &poolv1alpha1.UsageRecord{
		ObjectMeta: metav1.ObjectMeta{Name: string(uuid.NewUUID()), Namespace: "default", Finalizers: []string{names.FinalizerBilling}},
	}
	r.Spec = poolv1alpha1.UsageRecordSpec{
		Tenant: tenant, Pool: "training", Pod: "p", PodUID: types.UID(r.Name), Node: "n", Resource: resource, Quantity: quantity, Start: metav1.NewTime(start),
	}
	if err := o.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if !end.IsZero() {
		before := r.DeepCopy()
		at := metav1.NewTime(end)
		r.Status.End = &at
		if err := o.Status().Patch(t.Context(), r, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// owes waits until a tenant's account has these amounts.
func (o *office) owes(t *testing.T, tenant, balance, billed, accrued string) {
	t.Helper()
	var got poolv1alpha1.TenantAccount
	testkit.Eventually(t, patience, fmt.Sprintf("%s has %s, billed %s, accrued %s", tenant, balance, billed, accrued), func(ctx context.Context) (bool, string) {
		if err := o.Get(ctx, client.ObjectKey{Name: tenant}, &got); err != nil {
			return false, err.Error()
		}
		s := &got.Status
		return string(s.Balance) == balance && string(s.Billed) == billed && string(s.Accrued) == accrued, fmt.Sprintf("%+v", got.Status)
	})
	if overdrawn := meta.IsStatusConditionTrue(got.Status.Conditions, poolv1alpha1.ConditionOverdrawn); overdrawn != strings.HasPrefix(balance, "-") {
		t.Errorf("balance %s, Overdrawn %v", balance, overdrawn)
	}
}

// invoices returns a tenant's invoices, by month; each is written as total, with ! if it is final.
func (o *office) invoices(ctx context.Context, tenant string) (map[string]string, []poolv1alpha1.Invoice, error) {
	var list poolv1alpha1.InvoiceList
	if err := o.List(ctx, &list, client.MatchingFields{"spec.tenant": tenant}); err != nil {
		return nil, nil, err
	}
	out := map[string]string{}
	for i := range list.Items {
		v := &list.Items[i].Spec
		month := v.Period.Start.UTC().Format("2006-01")
		if out[month] != "" {
			return nil, nil, errors.New("two invoices of " + tenant + " for " + month)
		}
		if out[month] = string(v.Total); v.Finalized {
			out[month] += "!"
		}
	}
	return out, list.Items, nil
}

func (o *office) waitInvoices(t *testing.T, tenant string, want map[string]string) []poolv1alpha1.Invoice {
	t.Helper()
	var list []poolv1alpha1.Invoice
	testkit.Eventually(t, patience, fmt.Sprint("the invoices of ", tenant, " are ", want), func(ctx context.Context) (bool, string) {
		got, items, err := o.invoices(ctx, tenant)
		if err != nil {
			return false, err.Error()
		}
		list = items
		return fmt.Sprint(got) == fmt.Sprint(want), fmt.Sprint(got)
	})
	return list
}

func november(day, hour int) time.Time {
	return time.Date(2026, time.November, day, hour, 0, 0, 0, time.UTC)
}

// TestBilling runs the scenarios of billing, on one API server with a clock that the test sets.
func TestBilling(t *testing.T) { //nolint:tparallel // its steps share one clock
	l := newTestEnv(t)
	if err := l.pools.Kill(); err != nil {
		t.Fatal(err)
	}
	o := &office{testEnv: l, clock: testingclock.NewFakePassiveClock(november(20, 0))}
	o.apply(t, fmt.Sprintf(requirementsPrices, poolv1alpha1.DefaultPriceBook))
	for _, step := range []struct {
		name string
		run  func(*testing.T, *office)
	}{
		{"a charge is taken from the balance once, however often it is computed", charged},
		{"a tenant that nobody made an account for gets one", unknownTenant},
		{"what has no price costs nothing, and says so", unpriced},
		{"a slice costs a part of its device", sliced},
		{"another price book", otherBook},
		{"a session over midnight is billed in the month of its end", overMidnight},
		{"a final invoice never changes, and what comes late is on the next", final},
		{"a hundred tenants in one second, by three controllers at once", hundred},
		{"records go after their time, and the balance stays", retained},
		{"sessions go from records into batches, and count once", batched},
		{"a price that changes is about what ends from then on", priceChanged},
		{"an account with something to lose is not deleted", notDeleted},
		{"an account without a price book has its credits", withoutBook},
		{"five hundred records get a price at once", pricedAtOnce},
		{"a record that was restored without its status is not billed until it is settled", restored},
		{"many credits are put together by the controller alone", rolledUp},
		{"an invoice of more lines than a page takes goes on on the next", paged},
		{"a clock that is ahead of the API server's closes no month", clockAhead},
		{"the command shows it", shown},
	} {
		t.Run(step.name, func(t *testing.T) {
			o.clock.SetTime(november(20, 0))
			step.run(t, o)
		})
	}
}

// charged is scenario 45: sessions are billed once, even if the controller restarts.
func charged(t *testing.T, o *office) {
	t.Helper()
	closed := o.open(t, 1)
	o.account(t, "charged", "1000")
	r := o.held(t, "charged", "nvidia.com/gpu", "4", november(2, 0), november(3, 1))
	o.owes(t, "charged", "820.00", "180.00", "0.00")
	o.waitInvoices(t, "charged", map[string]string{"2026-11": "180.00"})
	for range 2 {
		closed()
		closed = o.open(t, 1)
		o.look(t, "charged")
		o.held(t, "charged", "nvidia.com/gpu", "1", november(4, 0), november(4, 0)) // for which it waits
	}
	o.owes(t, "charged", "819.94", "180.06", "0.00")
	var got poolv1alpha1.UsageRecord
	o.get(t, &got, r.Namespace, r.Name)
	if got.Status.Cost != "180.00" || got.Status.Invoice != "" {
		t.Errorf("the record says cost %s, invoice %q", got.Status.Cost, got.Status.Invoice)
	}
	refused := o.tryApply(t.Context(), `apiVersion: pool.nvtopo.dev/v1alpha1
kind: TenantAccount
metadata: {name: charged}
spec: {credits: [{id: c0, amount: "2000", at: "2026-11-20T00:00:00Z"}]}`)
	if refused == nil || !strings.Contains(refused.Error(), "credits: can only be added to") {
		t.Errorf("a credit was changed: %v", refused)
	}
}

func unknownTenant(t *testing.T, o *office) {
	t.Helper()
	o.open(t, 1)
	o.held(t, "unknown", "nvidia.com/gpu", "1", november(2, 0), november(2, 1))
	o.held(t, "unknown", "nvidia.com/gpu", "1", november(19, 0), time.Time{})
	o.owes(t, "unknown", "-2.00", "2.00", "48.00")
}

// unpriced is scenario 51: a session without a price is on the invoice at no cost, and the account reports it.
func unpriced(t *testing.T, o *office) {
	t.Helper()
	o.open(t, 1)
	o.held(t, "unpriced", "habana.ai/gaudi", "8", november(2, 0), november(2, 1))
	o.owes(t, "unpriced", "0.00", "0.00", "0.00")
	line := o.waitInvoices(t, "unpriced", map[string]string{"2026-11": "0.00"})[0].Spec.LineItems[0]
	if !line.NoPrice || line.Hours != "8" || line.Sessions != 1 {
		t.Errorf("the invoice says %+v", line)
	}
	var account poolv1alpha1.TenantAccount
	o.get(t, &account, "", "unpriced")
	if c := meta.FindStatusCondition(account.Status.Conditions, poolv1alpha1.ConditionPriced); c == nil || c.Reason != "NoPrice" || !strings.Contains(c.Message, "habana.ai/gaudi") {
		t.Errorf("condition %+v", c)
	}
}

// sliced is scenario 52: the price of a part of a GPU.
func sliced(t *testing.T, o *office) {
	t.Helper()
	o.open(t, 1)
	o.held(t, "sliced", "nvidia.com/mig-3g.40gb", "0.428", november(2, 0), november(2, 1))
	o.owes(t, "sliced", "-0.86", "0.86", "0.00")
}

func otherBook(t *testing.T, o *office) {
	t.Helper()
	o.open(t, 1)
	o.apply(t, `apiVersion: pool.nvtopo.dev/v1alpha1
kind: TenantAccount
metadata: {name: dear, annotations: {pool.nvtopo.dev/price-book: dear}}
spec: {}`)
	o.held(t, "dear", "nvidia.com/gpu", "1", november(2, 0), november(2, 1))
	testkit.Eventually(t, patience, "there is no such book yet", func(ctx context.Context) (bool, string) {
		var account poolv1alpha1.TenantAccount
		err := o.Get(ctx, client.ObjectKey{Name: "dear"}, &account)
		c := meta.FindStatusCondition(account.Status.Conditions, poolv1alpha1.ConditionPriced)
		return c != nil && c.Reason == "NoPriceBook" && account.Status.Balance == "0.00", fmt.Sprint(err, account.Status)
	})
	o.apply(t, strings.ReplaceAll(fmt.Sprintf(requirementsPrices, "dear"), `"2.0"`, `"5.55"`))
	o.owes(t, "dear", "-5.55", "5.55", "0.00")
}

// overMidnight is scenario 49: a session across the end of a month is billed in the month of its end.
func overMidnight(t *testing.T, o *office) {
	t.Helper()
	o.open(t, 1)
	start := november(30, 20)
	o.held(t, "night", "nvidia.com/gpu", "2", start, time.Time{})
	o.clock.SetTime(november(30, 23))
	o.account(t, "night")
	o.owes(t, "night", "0.00", "0.00", "12.00")
	o.held(t, "night", "nvidia.com/gpu", "8", start, november(31, 1)) // 31 November is 1 December
	o.clock.SetTime(november(31, 1))
	o.look(t, "night")
	o.owes(t, "night", "-80.00", "80.00", "20.00")
	o.waitInvoices(t, "night", map[string]string{"2026-12": "80.00"})
}

// final is scenario 50, first half: an invoice becomes final.
func final(t *testing.T, o *office) {
	t.Helper()
	o.open(t, 1)
	o.account(t, "final", "100")
	first := o.held(t, "final", "nvidia.com/gpu", "1", november(2, 0), november(2, 1))
	o.waitInvoices(t, "final", map[string]string{"2026-11": "2.00"})
	o.clock.SetTime(november(31, 23)) // within the grace
	second := o.held(t, "final", "nvidia.com/gpu", "2", november(3, 0), november(3, 1))
	o.waitInvoices(t, "final", map[string]string{"2026-11": "6.00"})
	o.clock.SetTime(november(32, 0))
	o.look(t, "final")
	invoice := o.waitInvoices(t, "final", map[string]string{"2026-11": "6.00!"})[0]
	for _, change := range []string{`{"spec":{"total":"1.00"}}`, `{"spec":{"finalized":false}}`, `{"spec":{"lineItems":[]}}`} {
		if err := o.Patch(t.Context(), invoice.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change))); !apierrors.IsInvalid(err) {
			t.Errorf("%s changes a final invoice: %v", change, err)
		}
	}
	late := o.held(t, "final", "nvidia.com/gpu", "4", november(5, 0), november(5, 1))
	o.waitInvoices(t, "final", map[string]string{"2026-11": "6.00!", "2026-12": "8.00"})
	o.owes(t, "final", "86.00", "14.00", "0.00")
	o.clock.SetTime(november(32+31, 0))
	o.look(t, "final")
	o.waitInvoices(t, "final", map[string]string{"2026-11": "6.00!", "2026-12": "8.00!"})
	for record, month := range map[*poolv1alpha1.UsageRecord]string{first: "20261101", second: "20261101", late: "20261201"} {
		var got poolv1alpha1.UsageRecord
		o.get(t, &got, record.Namespace, record.Name)
		if !strings.HasPrefix(got.Status.Invoice, "inv-"+month+"-") {
			t.Errorf("record of %s GPUs is on %q, want one that begins %s", got.Spec.Quantity, got.Status.Invoice, month)
		}
	}
}

// hundred is scenario 50, second half: all months are closed in one second by three controllers without
// coordination, while records are added.
func hundred(t *testing.T, o *office) {
	t.Helper()
	const tenants = 100
	name := func(i int) string { return fmt.Sprintf("of-hundred-%d", i) }
	for i := range tenants {
		o.account(t, name(i))
		o.held(t, name(i), "nvidia.com/gpu", "1", november(2, 0), november(2, 1))
	}
	o.clock.SetTime(november(40, 0))
	o.open(t, 3)
	for i := range tenants {
		o.held(t, name(i), "nvidia.com/gpu", "1", november(3, 0), november(3, 1))
	}
	ids := map[string]bool{}
	for i := range tenants {
		o.owes(t, name(i), "-4.00", "4.00", "0.00")
	}
	var records poolv1alpha1.UsageRecordList
	if err := o.List(t.Context(), &records); err != nil {
		t.Fatal(err)
	}
	for i := range tenants {
		_, list, err := o.invoices(t.Context(), name(i))
		if err != nil {
			t.Fatal(err)
		}
		var sum strings.Builder
		for k := range list {
			if v := &list[k].Spec; v.InvoiceID != list[k].Name || ids[v.InvoiceID] {
				t.Errorf("invoice %s has the ID %s, or it is there twice", list[k].Name, v.InvoiceID)
			}
			ids[list[k].Name] = true
			fmt.Fprint(&sum, list[k].Spec.Total, " ")
			if marked := count(records.Items, list[k].Name); list[k].Spec.Finalized && len(list[k].Spec.LineItems) > 0 && marked != int(list[k].Spec.LineItems[0].Sessions) {
				t.Errorf("invoice %s is final with %d sessions, and %d records are marked with it", list[k].Name, list[k].Spec.LineItems[0].Sessions, marked)
			}
		}
		if got := sum.String(); got != "4.00 " && got != "2.00 2.00 " { // the second record was in time, or it was late
			t.Errorf("the invoices of %s are %s", name(i), got)
		}
	}
}

func count(records []poolv1alpha1.UsageRecord, invoice string) (n int) {
	for i := range records {
		if records[i].Status.Invoice == invoice {
			n++
		}
	}
	return n
}

func retained(t *testing.T, o *office) {
	t.Helper()
	o.clock.SetTime(november(40, 0))
	o.open(t, 1)
	o.account(t, "retained", "10")
	r := o.held(t, "retained", "nvidia.com/gpu", "1", november(2, 0), november(2, 1))
	invoice := o.waitInvoices(t, "retained", map[string]string{"2026-11": "2.00!"})[0]
	open := o.held(t, "retained", "nvidia.com/gpu", "1", november(39, 0), november(39, 1))
	o.owes(t, "retained", "6.00", "4.00", "0.00")

	exported := metav1.NewTime(o.clock.Now())
	before := invoice.DeepCopy()
	invoice.Status.ExportedAt = &exported
	if err := o.Status().Patch(t.Context(), &invoice, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	o.clock.SetTime(exported.Add(keep - time.Second))
	o.look(t, "retained")
	o.waitInvoices(t, "retained", map[string]string{"2026-11": "2.00!", "2026-12": "2.00!"}) // the second is not exported
	o.get(t, r, r.Namespace, r.Name)
	o.clock.SetTime(exported.Add(keep))
	o.look(t, "retained")
	testkit.Eventually(t, patience, "the record of the exported invoice is gone", func(ctx context.Context) (bool, string) {
		err := o.Get(ctx, client.ObjectKeyFromObject(r), r)
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	o.get(t, open, open.Namespace, open.Name)
	o.held(t, "retained", "nvidia.com/gpu", "1", november(100, 0), november(100, 1))
	o.owes(t, "retained", "4.00", "6.00", "0.00")
}

// shown checks the output of the commands.
func shown(t *testing.T, o *office) {
	t.Helper()
	o.clock.SetTime(november(40, 0))
	o.open(t, 1)
	o.account(t, "shown", "10")
	o.held(t, "shown", "nvidia.com/gpu", "1", november(2, 0), november(2, 1))
	invoice := o.waitInvoices(t, "shown", map[string]string{"2026-11": "2.00!"})[0]
	o.held(t, "shown", "nvidia.com/gpu", "1", november(39, 0), time.Time{})
	o.owes(t, "shown", "8.00", "2.00", "48.00")
	for _, tc := range []struct{ command, want string }{
		{"bill shown", "Balance  8.00 USD"},
		{"usage shown --period 2026-12-09", "2026-12-09T00:00:00Z  -"},
		{"usage shown --period 2026-11 -o csv", ",2026-11-02T00:00:00Z,2026-11-02T01:00:00Z,false," + invoice.Name},
		{"invoice shown", invoice.Name + "  total, final"},
		{"invoice shown --period 2026-11 -o csv --export", invoice.Name + ",shown,2026-11-01T00:00:00Z,2026-12-01T00:00:00Z,nvidia.com/gpu,,1,2,0.00,2.00,USD,1,0,false"},
		{"invoice shown -o json", `"invoice_id": "` + invoice.Name + `"`},
	} {
		var out strings.Builder
		cmd := cli.New("nvtopo")
		cmd.SetOut(&out)
		cmd.SetArgs(append(append([]string{"pool"}, strings.Fields(tc.command)...), "--kubeconfig", o.Kubeconfig()))
		if err := cmd.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), tc.want) {
			t.Errorf("nvtopo pool %s: %v, want %q in\n%s", tc.command, err, tc.want, out.String())
		}
	}
	o.get(t, &invoice, "", invoice.Name)
	if invoice.Status.ExportedAt == nil {
		t.Error("the invoice was exported, and does not say so")
	}

	o.showBills(t)
}

// showBills writes the transcript of a tenant's usage and bills. All sessions have ended: the cost of
// continuing ones depends on the real clock.
func (o *office) showBills(t *testing.T) {
	t.Helper()
	o.account(t, "team-a", "100")
	o.held(t, "team-a", "nvidia.com/gpu", "4", november(2, 0), november(2, 3))
	o.held(t, "team-a", "nvidia.com/gpu", "1", november(39, 0), november(39, 12))
	o.waitInvoices(t, "team-a", map[string]string{"2026-11": "24.00!", "2026-12": "24.00"})
	o.owes(t, "team-a", "52.00", "48.00", "0.00")
	s := transcript.New("bills", "--kubeconfig", o.Kubeconfig())
	s.Hide("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "00000000-0000-0000-0000-000000000000")
	s.Say("It is 10 December. A tenant with a credit of 100 USD held four GPUs for three hours of November,\nand one for half a day of December.")
	for _, line := range []string{
		"usage team-a --period 2026-11-01/2027-01-01", "bill team-a", "invoice team-a", "invoice team-a --period 2026-11 -o csv --export",
	} {
		s.Run(t, append([]string{"pool"}, strings.Fields(line)...)...)
	}
	s.Compare(t)
}
