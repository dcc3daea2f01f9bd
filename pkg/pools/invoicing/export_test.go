// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

const november = "inv-20261101-20261201-uid-a"

// sold returns a session of an hour of one GPU that is on November's invoice.
func sold(name string, hour int) v1alpha1.UsageRecord {
	start := time.Date(2026, 11, 2, hour, 0, 0, 0, time.UTC)
	end := metav1.NewTime(start.Add(time.Hour))
	return v1alpha1.UsageRecord{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team-a"},
		Spec: v1alpha1.UsageRecordSpec{
			Tenant: "a", Namespace: "team-a", Pool: "training", Queue: "training", Owner: "Job/sweep", Pod: "sweep-" + name, PodUID: types.UID(name),
			Node: "n1", Resource: "nvidia.com/gpu", Quantity: "1", Start: metav1.NewTime(start),
		},
		Status: v1alpha1.UsageRecordStatus{End: &end, UnitPrice: "2", BilledSeconds: 3600, Cost: "2.00", Invoice: november},
	}
}

func ofNovember(final bool, sessions int32) *v1alpha1.Invoice {
	day := func(month time.Month) metav1.Time {
		return metav1.NewTime(time.Date(2026, month, 1, 0, 0, 0, 0, time.UTC))
	}
	return &v1alpha1.Invoice{ObjectMeta: metav1.ObjectMeta{Name: november}, Spec: v1alpha1.InvoiceSpec{
		InvoiceID: november, Tenant: "a", Currency: "USD", Total: "4.00", Finalized: final, GeneratedAt: day(12),
		Period:    v1alpha1.BillingPeriod{Start: day(11), End: day(12)},
		LineItems: []v1alpha1.LineItem{{Resource: "nvidia.com/gpu", Hours: "2", UnitPrice: "2", Discount: "0", Subtotal: "4.00", Sessions: sessions}},
	}}
}

func TestExport(t *testing.T) {
	for name, tc := range map[string]struct {
		invoice      *v1alpha1.Invoice
		command      string // {to} is another folder
		wantExported bool
		wantFiles    []string // existing files
		wantProblem  string
	}{
		"a final invoice":                  {invoice: ofNovember(true, 2), wantExported: true},
		"an open invoice":                  {invoice: ofNovember(false, 2)},
		"a command that takes the files":   {invoice: ofNovember(true, 2), command: "cp {} {to}", wantExported: true, wantFiles: []string{november + ".csv", november + ".json"}},
		"a command that fails":             {invoice: ofNovember(true, 2), command: "cp {} {to}/none/", wantProblem: "command cp: exit status 1; see the controller"},
		"a command that is not there":      {invoice: ofNovember(true, 2), command: "/none {}", wantProblem: "command /none:"},
		"a session without its record":     {invoice: ofNovember(true, 3), wantProblem: "it has 3 sessions, and there are records of 2"},
		"the sessions of another are more": {invoice: ofNovember(true, 1), wantProblem: "it has 1 sessions, and there are records of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			batches, err := accounting.Batches([]v1alpha1.UsageRecord{sold("u1", 1)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			elsewhere := sold("u3", 3)
			elsewhere.Status.Invoice = "inv-20261001-20261101-uid-a"
			one, both := sold("u2", 2), sold("u1", 1)
			api := apiBuilder(t).WithObjects(tc.invoice, &batches[0], &one, &both, &elsewhere).Build()
			dir, to := t.TempDir(), t.TempDir()
			now := time.Date(2026, 12, 2, 1, 0, 0, 0, time.UTC)
			e := &exporter{client: api, reader: api, clock: clocktesting.NewFakeClock(now), now: clocktesting.NewFakeClock(now), dir: dir, command: strings.Fields(strings.ReplaceAll(tc.command, "{to}", to))}
			if err := e.all(t.Context()); (err != nil) != (tc.wantProblem != "") || !strings.Contains(e.problem("a"), tc.wantProblem) || e.problem("b") != "" {
				t.Errorf("error %v, problem %q, want %q", err, e.problem("a"), tc.wantProblem)
			}
			var v v1alpha1.Invoice
			if err := api.Get(t.Context(), client.ObjectKey{Name: november}, &v); err != nil {
				t.Fatal(err)
			}
			if exported := v.Status.ExportedAt != nil && v.Status.ExportedAt.Time.Equal(now); exported != tc.wantExported {
				t.Errorf("status.exportedAt: %v, want it: %v", v.Status.ExportedAt, tc.wantExported)
			}
			if diff := cmp.Diff(tc.wantFiles, filesIn(t, to)); diff != "" {
				t.Errorf("files that the command took: (-want +got)\n%s", diff)
			}
			if !tc.wantExported {
				return
			}
			checkExported(t, dir)
		})
	}
}

// checkExported reads the export: an invoice in billing's format, and its sessions, of which one is in a
// batch.
func checkExported(t *testing.T, dir string) {
	t.Helper()
	if diff := cmp.Diff([]string{november + ".csv", november + ".json"}, filesIn(t, dir)); diff != "" {
		t.Errorf("files: (-want +got)\n%s", diff)
	}
	invoice, err := os.ReadFile(filepath.Join(dir, november+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var read []billing.Invoice
	if err := json.Unmarshal(invoice, &read); err != nil || len(read) != 1 || read[0].Validate() != nil || read[0].Total.String() != "4.00" {
		t.Errorf("%v, %v", read, err)
	}
	sessions, err := os.ReadFile(filepath.Join(dir, november+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	want := `session,tenant,namespace,pool,queue,owner,pod,pod_uid,node,resource,model,quantity,start,end,estimated,billed_seconds,unit_price,cost,invoice
u1,a,team-a,training,training,Job/sweep,sweep-u1,u1,n1,nvidia.com/gpu,,1,2026-11-02T01:00:00Z,2026-11-02T02:00:00Z,false,3600,2,2.00,inv-20261101-20261201-uid-a
u2,a,team-a,training,training,Job/sweep,sweep-u2,u2,n1,nvidia.com/gpu,,1,2026-11-02T02:00:00Z,2026-11-02T03:00:00Z,false,3600,2,2.00,inv-20261101-20261201-uid-a
`
	if diff := cmp.Diff(want, string(sessions)); diff != "" {
		t.Errorf("sessions: (-want +got)\n%s", diff)
	}
}

func filesIn(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestAccountSaysThatExportFailed: a tenant's account names an invoice that cannot be exported, until it
// is exported.
func TestAccountSaysThatExportFailed(t *testing.T) {
	r := &reconciler{clock: clocktesting.NewFakePassiveClock(time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC)), exporter: &exporter{}}
	account := &v1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	status := &v1alpha1.TenantAccountStatus{}
	for _, tc := range []struct {
		failed map[string]string
		want   []string
	}{
		{map[string]string{"b": "no room"}, nil},
		{map[string]string{"a": "no room"}, []string{"Exported=False NotExported: no room"}},
		{nil, []string{"Exported=True AllExported: all final invoices were exported"}},
	} {
		r.exporter.failed = tc.failed
		r.setExported(status, account)
		if diff := cmp.Diff(tc.want, said(status)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

func said(status *v1alpha1.TenantAccountStatus) (out []string) {
	for _, c := range status.Conditions {
		out = append(out, c.Type+"="+string(c.Status)+" "+c.Reason+": "+c.Message)
	}
	return out
}
