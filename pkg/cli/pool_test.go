// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

func hour(day, hour int) time.Time {
	return time.Date(2026, time.November, day, hour, 0, 0, 0, time.UTC)
}

// used is a record of one GPU; one whose end is zero goes on.
func used(name, resource string, start, end time.Time) poolv1alpha1.UsageRecord {
	r := poolv1alpha1.UsageRecord{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: poolv1alpha1.UsageRecordSpec{
		Tenant: "team-a", Pool: "training", Pod: name, Node: "n1", Resource: resource, Quantity: "1", Start: metav1.NewTime(start),
	}}
	if !end.IsZero() {
		at := metav1.NewTime(end)
		r.Status.End, r.Status.Cost = &at, "2.00"
	}
	return r
}

// The requirement's summary lost sessions that had begun before the period.
func TestUsagePeriod(t *testing.T) {
	p := billing.Period{Start: hour(10, 0), End: hour(11, 0)}
	for name, tc := range map[string]struct {
		start, end time.Time
		want       bool
	}{
		"within":                         {hour(10, 1), hour(10, 2), true},
		"began before":                   {hour(9, 0), hour(10, 2), true},
		"began before and goes on":       {hour(9, 0), time.Time{}, true},
		"began before and ended after":   {hour(9, 0), hour(12, 0), true},
		"ended before":                   {hour(9, 0), hour(9, 1), false},
		"begins when the period is over": {hour(11, 0), time.Time{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := accounting.Within([]poolv1alpha1.UsageRecord{used("s", "nvidia.com/gpu", tc.start, tc.end)}, p)
			if (len(got) == 1) != tc.want {
				t.Errorf("it is in the answer: %v, want %v", len(got) == 1, tc.want)
			}
		})
	}
}

// TestBillAccrued: a bill states accrued costs separately.
func TestBillAccrued(t *testing.T) {
	books := &accounting.Books{
		Account: &poolv1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "u"}, Spec: poolv1alpha1.TenantAccountSpec{
			Credits: []poolv1alpha1.Credit{{ID: "c", Amount: "10", At: metav1.NewTime(hour(1, 0))}},
		}},
		Prices: &poolv1alpha1.PriceBook{Spec: poolv1alpha1.PriceBookSpec{
			Currency: "USD", Prices: []poolv1alpha1.Price{{Resource: "nvidia.com/gpu", PricePerHour: "2.0"}}, Mode: "AllUnits", DiscountScope: "Session",
		}},
		Records: []poolv1alpha1.UsageRecord{
			used("a", "nvidia.com/gpu", hour(2, 0), hour(2, 3)), used("b", "nvidia.com/gpu", hour(3, 0), hour(3, 1)),
			used("c", "nvidia.com/gpu", hour(19, 0), time.Time{}), used("d", "amd.com/gpu", hour(4, 0), hour(4, 1)),
		},
		Now: hour(20, 0),
	}
	bill, err := accounting.BillOf(books)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := writeBill(&got, bill); err != nil {
		t.Fatal(err)
	}
	want := `RESOURCE        MODEL  PRICE  SESSIONS  COST  OPEN  ACCRUED  
amd.com/gpu     -      -      1         0.00  0     0.00     no price
nvidia.com/gpu  -      2      2         8.00  1     48.00    

Billed   8.00 USD
Balance  2.00 USD
Accrued  48.00 USD, if all sessions ended now
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("want - got +\n%s", diff)
	}
}

// TestBillHeld: a bill names the records that are held, and prints once how to release them.
func TestBillHeld(t *testing.T) {
	var got strings.Builder
	if err := writeBill(&got, &accounting.Bill{Currency: "USD", Held: []string{"team-a/one", "team-a/two"}}); err != nil {
		t.Fatal(err)
	}
	want := `Not billed: record team-a/one was restored from a backup without its status
Not billed: record team-a/two was restored from a backup without its status
Say when each ended: nvtopo pool settle NAMESPACE/RECORD --end TIME, and --invoice ID if a final invoice has it
`
	if !strings.HasSuffix(got.String(), "\n"+want) {
		t.Errorf("got %q, want %q at its end", got.String(), want)
	}
}

// TestInvoicePages: each page of an invoice has its sum, and after the last of them is the sum of all.
func TestInvoicePages(t *testing.T) {
	page := func(id string, number, pages int32, total poolv1alpha1.Money, final bool) poolv1alpha1.Invoice {
		return poolv1alpha1.Invoice{ObjectMeta: metav1.ObjectMeta{Name: id}, Spec: poolv1alpha1.InvoiceSpec{
			InvoiceID: id, Page: number, Pages: pages, Currency: "USD", Total: total, Finalized: final,
			LineItems: []poolv1alpha1.LineItem{{Resource: "nvidia.com/gpu", Hours: "1", UnitPrice: "2", Discount: "0.00", Subtotal: total, Sessions: 1}},
		}}
	}
	var got strings.Builder
	err := writeInvoices(&got, []poolv1alpha1.Invoice{
		page("inv-10-u", 0, 0, "3.00", true), page("inv-11-u", 1, 2, "2.00", false), page("inv-11-u-page-2", 2, 0, "1.50", true), page("inv-12-u", 0, 0, "4.00", false),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `INVOICE          RESOURCE          MODEL  SESSIONS  HOURS  PRICE  DISCOUNT  SUBTOTAL  
inv-10-u         nvidia.com/gpu           1         1      2      0.00      3.00      
inv-10-u         total, final                                               3.00      USD
inv-11-u         nvidia.com/gpu           1         1      2      0.00      2.00      
inv-11-u         total, open                                                2.00      USD
inv-11-u-page-2  nvidia.com/gpu           1         1      2      0.00      1.50      
inv-11-u-page-2  total, final                                               1.50      USD
inv-11-u         total of 2 pages                                           3.50      USD
inv-12-u         nvidia.com/gpu           1         1      2      0.00      4.00      
inv-12-u         total, open                                                4.00      USD
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("want - got +\n%s", diff)
	}
}

func TestPoolTables(t *testing.T) {
	pools := []poolv1alpha1.ComputePool{{ObjectMeta: metav1.ObjectMeta{Name: "training"}, Spec: poolv1alpha1.ComputePoolSpec{PoolType: "gpu"}, Status: poolv1alpha1.ComputePoolStatus{
		Phase: "Ready", TotalCapacity: 64, ReservedCapacity: 8, AllocatedCapacity: 20, AvailableCapacity: 36, Nodes: 8, ReadyNodes: 7,
		Shares: []poolv1alpha1.PoolShare{{Tenant: "team-a", Guaranteed: 16, Limit: 32, Used: 20, Borrowed: 4, Pending: 3}},
	}}}
	records := []poolv1alpha1.UsageRecord{used("a", "nvidia.com/gpu", hour(2, 0), hour(2, 1)), used("b", "nvidia.com/gpu", hour(3, 0), time.Time{})}
	records[0].Status.Estimated = true
	records = append(records, used("c", "nvidia.com/gpu", hour(4, 0), time.Time{}))
	records[2].Annotations = map[string]string{names.AnnotationRecorded: hour(4, 0).Format(time.RFC3339)}
	records[2].CreationTimestamp = metav1.NewTime(hour(9, 0)) // from a backup
	var got strings.Builder
	if err := errors.Join(writePools(&got, pools), writeShares(&got, pools), writeSessions(&got, records)); err != nil {
		t.Fatal(err)
	}
	want := `POOL      TYPE  PHASE  TOTAL  RESERVED  ALLOCATED  AVAILABLE  NODES
training  gpu   Ready  64     8         20         36         7/8
POOL      TENANT  QUEUE  USED  GUARANTEED  LIMIT  BORROWED  PENDING
training  team-a  -      20    16          32     4         3
POD  POOL      NODE  RESOURCE        MODEL  QUANTITY  START                 END                    COST
a    training  n1    nvidia.com/gpu  -      1         2026-11-02T00:00:00Z  ~2026-11-02T01:00:00Z  2.00
b    training  n1    nvidia.com/gpu  -      1         2026-11-03T00:00:00Z  -                      -
c    training  n1    nvidia.com/gpu  -      1         2026-11-04T00:00:00Z  unknown                -
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("want - got +\n%s", diff)
	}
}

func TestPoolUsage(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no tenant":             {[]string{"pool", "bill"}, "one TENANT, 0 are given"},
		"two pools":             {[]string{"pool", "top", "a", "b"}, "one POOL at most"},
		"a form that it has no": {[]string{"pool", "bill", "a", "-o", "csv"}, "--output"},
		"no period":             {[]string{"pool", "usage", "a", "--period", "soon"}, "--period"},
		"no time so long ago":   {[]string{"pool", "usage", "--since", "soon"}, "--since"},
		"two times":             {[]string{"pool", "usage", "--since", "7d", "--period", "2026-11"}, "want one of them"},
		"a tenant twice":        {[]string{"pool", "usage", "a", "--tenant", "a"}, "--tenant is for GPU hours"},
		"two tenants":           {[]string{"pool", "usage", "a", "b"}, "one TENANT at most"},
		"an export of a table":  {[]string{"pool", "invoice", "a", "--export"}, "--export"},
		"no record":             {[]string{"pool", "settle", "team-a", "--end", "2026-11-03T10:15:00Z"}, "want NAMESPACE/RECORD"},
		"no end":                {[]string{"pool", "settle", "team-a/u1"}, "--end"},
		"no such command":       {[]string{"pool", "bil"}, "did you mean bill?"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, "", tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) || ExitCode(err) != ExitUsage {
				t.Errorf("got %v (exit code %d), want %q", err, ExitCode(err), tc.want)
			}
		})
	}
}
