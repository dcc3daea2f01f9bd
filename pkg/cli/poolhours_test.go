// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/ledger"
)

// poolsOf is a reader of a cluster that has these objects.
func poolsOf(t *testing.T, objects map[schema.GroupVersionResource][]any) *ledger.Reader {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{}
	for _, kind := range []schema.GroupVersionResource{
		poolv1alpha1.ComputePoolGVR, poolv1alpha1.UsageRecordGVR, poolv1alpha1.UsageBatchGVR, poolv1alpha1.TenantAccountGVR, poolv1alpha1.InvoiceGVR,
		v1.SchemeGroupVersion.WithResource("namespaces"),
	} {
		kinds[kind] = kind.Resource + "List"
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	for kind, list := range objects {
		for _, o := range list {
			u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			if err != nil {
				t.Fatal(err)
			}
			object := &unstructured.Unstructured{Object: u}
			object.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Resource))
			if _, err := client.Resource(kind).Namespace(object.GetNamespace()).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return ledger.NewReader(client)
}

func usedCluster(t *testing.T) *ledger.Reader {
	t.Helper()
	a, b := used("a", "nvidia.com/gpu", hour(1, 0), hour(3, 0)), used("b", "nvidia.com/gpu", hour(19, 18), time.Time{})
	a.Spec.Queue, a.Spec.Model, a.Spec.Quantity, a.Spec.PodUID = "training", "NVIDIA-H100", "4", "a"
	b.Spec.Tenant, b.Spec.Model, b.Spec.Quantity, b.Spec.PodUID = "team-b", "NVIDIA-A100", "0.5", "b"
	month := func(m time.Month) metav1.Time { return metav1.NewTime(time.Date(2026, m, 1, 0, 0, 0, 0, time.UTC)) }
	return poolsOf(t, map[schema.GroupVersionResource][]any{
		poolv1alpha1.UsageRecordGVR: {&a, &b},
		poolv1alpha1.ComputePoolGVR: {&poolv1alpha1.ComputePool{ObjectMeta: metav1.ObjectMeta{Name: "training"}, Spec: poolv1alpha1.ComputePoolSpec{
			Quotas: []poolv1alpha1.TenantQuota{{Tenant: "team-a"}},
			Queues: []poolv1alpha1.PoolQueue{{Name: "batch", Tenants: []string{"team-c"}}},
		}, Status: poolv1alpha1.ComputePoolStatus{Conditions: []metav1.Condition{{
			Type: poolv1alpha1.ConditionForeignUse, Status: metav1.ConditionTrue, Message: "pods outside of tenants' namespaces hold 12 devices: default/x",
		}}}}},
		poolv1alpha1.TenantAccountGVR:                    {&poolv1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "team-b"}}},
		v1.SchemeGroupVersion.WithResource("namespaces"): {&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "d", Labels: map[string]string{poolv1alpha1.LabelTenant: "team-d"}}}},
		poolv1alpha1.InvoiceGVR: {&poolv1alpha1.Invoice{ObjectMeta: metav1.ObjectMeta{Name: "inv-9"}, Spec: poolv1alpha1.InvoiceSpec{
			InvoiceID: "inv-9", Tenant: "team-b", Period: poolv1alpha1.BillingPeriod{Start: month(9), End: month(10)}, Currency: "USD", Total: "0", Finalized: true,
			LineItems: []poolv1alpha1.LineItem{{Resource: "nvidia.com/gpu", Model: "NVIDIA-A100", Hours: "500.25", UnitPrice: "0", Discount: "0", Subtotal: "0", Sessions: 7}},
		}}},
	})
}

// TestPoolHours: GPU hours of all tenants, the most first, with the part from invoices and the part
// without a record.
func TestPoolHours(t *testing.T) {
	o := &poolUsage{period: "2026-09-01/2026-12-01"}
	o.output = "table"
	period, err := o.time(hour(20, 0))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := o.writeHours(t.Context(), &got, usedCluster(t), accounting.HoursQuery{Period: period, Now: hour(20, 0)}); err != nil {
		t.Fatal(err)
	}
	want := `GPU hours from 2026-09-01T00:00:00Z until 2026-11-20T00:00:00Z

TENANT  GPU HOURS  SHARE    FROM INVOICES  SESSIONS
team-b  503.25     72.4 %   500.25         8
team-a  192.00     27.6 %   0.00           1
team-c  0.00       0.0 %    0.00           0
team-d  0.00       0.0 %    0.00           0
total   695.25     100.0 %  500.25         9

QUEUE         GPU HOURS  SHARE    FROM INVOICES  SESSIONS
not recorded  503.25     72.4 %   500.25         8
training      192.00     27.6 %   0.00           1
total         695.25     100.0 %  500.25         9

MODEL        GPU HOURS  SHARE    FROM INVOICES  SESSIONS
NVIDIA-A100  503.25     72.4 %   500.25         8
NVIDIA-H100  192.00     27.6 %   0.00           1
total        695.25     100.0 %  500.25         9

500.25 of the hours are from the invoices of 2026-09, whose sessions are kept no more. An invoice has the hours billed of the sessions that ended in its month, each in one sum: what such a session held before the month counts in it, and its queue is not recorded.
No record from 2026-10-01T00:00:00Z until 2026-11-01T00:00:00Z, from 2026-11-03T00:00:00Z until 2026-11-19T00:00:00Z: no GPU was held then, or the pool controller did not record it.
Pods of no tenant are in no row: of a pod whose namespace has no label pool.nvtopo.dev/tenant no hours are recorded. Now: pool training: pods outside of tenants' namespaces hold 12 devices: default/x.
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("want - got +\n%s", diff)
	}
}

// TestPoolHoursTenant: a tenant without use has a row with 0 hours, and an unknown one is not found.
func TestPoolHoursTenant(t *testing.T) {
	r := usedCluster(t)
	for name, tc := range map[string]struct {
		tenant, form, want string
	}{
		"a pool names it":       {"team-c", "csv", "2026-11-01T00:00:00Z,2026-11-20T00:00:00Z,team-c,,,sessions,0,0\n"},
		"its namespace":         {"team-d", "json", `"byTenant": [`},
		"it has an account":     {"team-b", "yaml", "- hours: \"3\"\n  invoiced: \"0\"\n  name: team-b\n  sessions: 1\n"},
		"this month is said":    {"team-b", "table", "GPU hours of team-b from 2026-11-01T00:00:00Z until 2026-11-20T00:00:00Z (this month; --since or --period ask for another time)"},
		"a row with 0 hours":    {"team-d", "table", "team-d  0.00       -      0.00           0\n"},
		"there is no such team": {"team-x", "table", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := &poolUsage{}
			o.output = tc.form
			period, err := o.time(hour(20, 0))
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			err = o.writeHours(t.Context(), &got, r, accounting.HoursQuery{Period: period, Tenant: tc.tenant, Now: hour(20, 0)})
			if tc.want == "" {
				const want = "there is no tenant team-x; tenants are team-a, team-b, team-c, team-d"
				if err == nil || err.Error() != want || ExitCode(err) != ExitNoAnswer || got.Len() > 0 {
					t.Errorf("got %v (exit code %d) and %q, want %q", err, ExitCode(err), got.String(), want)
				}
				return
			}
			if err != nil || !strings.Contains(got.String(), tc.want) {
				t.Errorf("got %v and\n%s\nwant in it\n%s", err, got.String(), tc.want)
			}
		})
	}
}
