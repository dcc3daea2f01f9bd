// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// by sets tenant, queue and model of a session.
func by(r v1alpha1.UsageRecord, tenant, queue, model string) v1alpha1.UsageRecord {
	r.Spec.Tenant, r.Spec.Queue, r.Spec.Model = tenant, queue, model
	return r
}

// monthly returns a final invoice of a tenant with a line of these hours and sessions.
func monthly(tenant string, month int, model string, hours v1alpha1.Decimal, sessions int32) v1alpha1.Invoice {
	v := invoice(fmt.Sprintf("inv-%d-%s", month, tenant), month, "0", true)
	v.Spec.Tenant = tenant
	v.Spec.LineItems = []v1alpha1.LineItem{{Resource: "nvidia.com/gpu", Model: model, Hours: hours, UnitPrice: "0", Discount: "0", Subtotal: "0", Sessions: sessions}}
	return v
}

func period(t *testing.T, text string) billing.Period {
	t.Helper()
	p, err := billing.ParsePeriod(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sums formats rows of a report.
func sums(rows []HoursOf) string {
	var out []string
	for _, r := range rows {
		text := fmt.Sprintf("%s %s/%d", Recorded(r.Name), r.Hours, r.Sessions)
		if r.Invoiced.Sign() != 0 {
			text += " invoiced " + r.Invoiced.String()
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestGPUHours(t *testing.T) {
	all := []v1alpha1.UsageRecord{
		by(session("a1", "4", day(11, 1, 0), day(11, 1, 12)), "team-a", "training", "H100"),
		by(session("a2", "1", day(10, 31, 12), day(11, 2, 0)), "team-a", "training.batch", "H100"),
		by(session("b1", "8", day(11, 20, 6), time.Time{}), "team-b", "training", "A100"),
		by(session("b2", "0.5", day(10, 1, 0), day(10, 1, 4)), "team-b", "", ""),
	}
	gone, open := monthly("team-a", 9, "H100", "100", 3), monthly("team-a", 11, "", "7", 1)
	open.Spec.Finalized = false
	onDay := func(d int) v1alpha1.UsageRecord {
		return by(session(fmt.Sprintf("d%d", d), "1", day(10, d, 10), day(10, d, 11)), "team-a", "training", "H100")
	}
	for name, tc := range map[string]struct {
		period, tenant string
		records        []v1alpha1.UsageRecord
		invoices       []v1alpha1.Invoice
		wantTenants    string
		wantQueues     string
		wantModels     string
		wantNotes      []string // a part of each
	}{
		"of this month, what was held before it is cut off, and what goes on counts until now": {
			period: "2026-11", records: all,
			wantTenants: "team-a 72/2, team-b 48/1, team-c 0/0", wantQueues: "training 96/2, training.batch 24/1", wantModels: "H100 72/2, A100 48/1",
			wantNotes: []string{"No record from 2026-11-02T00:00:00Z until 2026-11-20T00:00:00Z: no GPU was held then"},
		},
		"of one tenant": {
			period: "2026-11", tenant: "team-b", records: all, wantTenants: "team-b 48/1", wantQueues: "training 48/1", wantModels: "A100 48/1",
			wantNotes: []string{"No record of team-b from 2026-11-01T00:00:00Z until 2026-11-20T06:00:00Z: no GPU was held then"},
		},
		"of all tenants likewise, whatever their open invoices are about": {
			period: "2026-11", records: all[2:3], invoices: []v1alpha1.Invoice{open}, wantTenants: "team-b 48/1, team-a 0/0, team-c 0/0",
			wantQueues: "training 48/1", wantModels: "A100 48/1", wantNotes: []string{"No record from 2026-11-01T00:00:00Z until 2026-11-20T06:00:00Z: no GPU was held then"},
		},
		"days without a record are named, the first three times": {
			period: "2026-10", wantTenants: "team-a 5/5, team-c 0/0", wantQueues: "training 5/5", wantModels: "H100 5/5",
			records: []v1alpha1.UsageRecord{onDay(3), onDay(5), onDay(6), onDay(8), onDay(20)},
			wantNotes: []string{"No record from 2026-10-01T00:00:00Z until 2026-10-03T10:00:00Z, from 2026-10-04T00:00:00Z until 2026-10-05T00:00:00Z, " +
				"from 2026-10-07T00:00:00Z until 2026-10-08T00:00:00Z, and in 2 more times that -o json and -o csv name: no GPU was held then"},
		},
		"a tenant without use has a row": {
			period: "2026-11", tenant: "team-c", records: all, wantTenants: "team-c 0/0",
			wantNotes: []string{"No record of team-c from 2026-11-01T00:00:00Z until 2026-11-20T12:00:00Z"},
		},
		"a queue and a model that are not recorded, and a time before all records": {
			period: "2026-09-30/2026-10-31", records: all, wantTenants: "team-b 2/1, team-a 0/0, team-c 0/0", wantQueues: "not recorded 2/1", wantModels: "not recorded 2/1",
			wantNotes: []string{"No record from 2026-09-30T00:00:00Z until 2026-10-01T00:00:00Z, from 2026-10-02T00:00:00Z until 2026-10-31T00:00:00Z"},
		},
		"where no session is kept, the invoice has the hours": {
			period: "2026-09-01/2026-12-01", records: all, invoices: []v1alpha1.Invoice{gone},
			wantTenants: "team-a 184/5 invoiced 100, team-b 50/2, team-c 0/0", wantQueues: "not recorded 102/4 invoiced 100, training 96/2, training.batch 36/1",
			wantModels: "H100 184/5 invoiced 100, A100 48/1, not recorded 2/1",
			wantNotes: []string{
				"100 of the hours are from the invoices of 2026-09, whose sessions are kept no more",
				"No record from 2026-10-02T00:00:00Z until 2026-10-31T00:00:00Z, from 2026-11-02T00:00:00Z until 2026-11-20T00:00:00Z: no GPU was held then",
			},
		},
		"of an invoice whose sessions are in part kept, only the rest counts": {
			period: "2026-10", records: []v1alpha1.UsageRecord{marked(by(session("a", "2", day(10, 2, 0), day(10, 2, 5)), "team-a", "training", "H100"), "inv-10-team-a")},
			invoices:    []v1alpha1.Invoice{monthly("team-a", 10, "H100", "14.5", 3)},
			wantTenants: "team-a 14.5/3 invoiced 4.5, team-c 0/0", wantQueues: "training 10/1, not recorded 4.5/2 invoiced 4.5", wantModels: "H100 14.5/3 invoiced 4.5",
			wantNotes: []string{"4.5 of the hours are from the invoices of 2026-10"},
		},
		"an invoice whose sessions are all kept adds nothing, though it has a minimum billed": {
			period: "2026-10", records: []v1alpha1.UsageRecord{marked(by(session("a", "2", day(10, 2, 0), day(10, 2, 5)), "team-a", "training", "H100"), "inv-10-team-a")},
			invoices:    []v1alpha1.Invoice{monthly("team-a", 10, "H100", "10.5", 1)},
			wantTenants: "team-a 10/1, team-c 0/0", wantQueues: "training 10/1", wantModels: "H100 10/1",
			wantNotes: []string{"No record from 2026-10-01T00:00:00Z until 2026-10-02T00:00:00Z, from 2026-10-03T00:00:00Z until 2026-11-01T00:00:00Z"},
		},
		"of an invoice only a part of whose month is asked for, nothing counts, and it is said": {
			period: "2026-09-15/2026-10-01", invoices: []v1alpha1.Invoice{gone}, wantTenants: "team-a 0/0, team-c 0/0",
			wantNotes: []string{"Not counted: 100 hours on the invoices of 2026-09, of which only a part is asked for"},
		},
		"an invoice that is open says nothing: its sessions are kept": {
			period: "2026-11", invoices: []v1alpha1.Invoice{open}, wantTenants: "team-a 0/0, team-c 0/0",
			wantNotes: []string{"No record from 2026-11-01T00:00:00Z until 2026-11-20T12:00:00Z"},
		},
		"months without any record between others": {
			period: "2026-07-01/2026-10-01", invoices: []v1alpha1.Invoice{monthly("team-a", 7, "", "1", 1)}, wantTenants: "team-a 1/1 invoiced 1, team-c 0/0",
			wantQueues: "not recorded 1/1 invoiced 1", wantModels: "not recorded 1/1 invoiced 1",
			wantNotes: []string{"are from the invoices of 2026-07", "No record from 2026-08-01T00:00:00Z until 2026-10-01T00:00:00Z: no GPU was held then, or the pool controller did not record it."},
		},
		"a record without its end, and one that cannot be read": {
			period: "2026-11", records: []v1alpha1.UsageRecord{restored(session("r", "1", day(11, 2, 0), time.Time{})), session("w", "much", day(11, 2, 0), day(11, 3, 0)), all[0]},
			wantTenants: "team-a 48/1, team-c 0/0", wantQueues: "training 48/1", wantModels: "H100 48/1",
			wantNotes: []string{"restored from a backup without their end: team-a/r. Say when each ended", "record team-a/w: quantity"},
		},
		"a record that is in two namespaces counts once": {
			period: "2026-11", records: []v1alpha1.UsageRecord{all[0], func() v1alpha1.UsageRecord { r := all[0]; r.Namespace = "system"; return r }()},
			wantTenants: "team-a 48/1, team-c 0/0", wantQueues: "training 48/1", wantModels: "H100 48/1", wantNotes: []string{"No record from 2026-11-02T00:00:00Z"},
		},
		"a time to come": {
			period: "2027-03", records: all, wantTenants: "team-a 0/0, team-b 0/0, team-c 0/0", wantNotes: []string{"is to come: it is 2026-11-20T12:00:00Z now"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := GPUHoursOf(HoursQuery{Period: period(t, tc.period), Tenant: tc.tenant, Now: day(11, 20, 12)}, []string{"team-c"}, tc.records, tc.invoices)
			for of, pair := range map[string][2]string{
				"tenants": {tc.wantTenants, sums(got.ByTenant)}, "queues": {tc.wantQueues, sums(got.ByQueue)}, "models": {tc.wantModels, sums(got.ByModel)},
			} {
				if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", of, diff)
				}
			}
			if tc.tenant == "" {
				tc.wantNotes = append(tc.wantNotes, "Pods of no tenant are in no row")
			}
			if len(got.Notes) != len(tc.wantNotes) {
				t.Fatalf("notes %q, want %q", got.Notes, tc.wantNotes)
			}
			for i, want := range tc.wantNotes {
				if !strings.Contains(got.Notes[i], want) {
					t.Errorf("note %q, want %q in it", got.Notes[i], want)
				}
			}
		})
	}
}

// TestGPUHoursCSV: a row has its own period and source, and the sum of all rows is that of the report.
func TestGPUHoursCSV(t *testing.T) {
	h := GPUHoursOf(HoursQuery{Period: period(t, "2026-08-15/2026-12-01"), Now: day(11, 20, 12)}, []string{"team-c"},
		[]v1alpha1.UsageRecord{by(session("a", "4", day(11, 1, 0), day(11, 1, 12)), "team-a", "training", "H100")},
		[]v1alpha1.Invoice{monthly("team-a", 8, "H100", "9", 1), monthly("team-b", 9, "", "7.5", 2)})
	var got strings.Builder
	if err := WriteGPUHoursCSV(&got, h); err != nil {
		t.Fatal(err)
	}
	want := `from,until,tenant,queue,model,source,hours,sessions
2026-08-15T00:00:00Z,2026-11-20T12:00:00Z,team-a,training,H100,sessions,48,1
2026-08-01T00:00:00Z,2026-09-01T00:00:00Z,team-a,not recorded,H100,"invoice, not counted",,
2026-09-01T00:00:00Z,2026-10-01T00:00:00Z,team-b,not recorded,not recorded,invoice,7.5,2
2026-08-15T00:00:00Z,2026-11-20T12:00:00Z,team-c,,,sessions,0,0
2026-10-01T00:00:00Z,2026-11-01T00:00:00Z,,,,no record,,
2026-11-02T00:00:00Z,2026-11-20T12:00:00Z,,,,no record,,
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("want - got +\n%s", diff)
	}
}

// minutes returns the GPU hours of a session, added up over the minutes for which counts is true.
func minutes(r *v1alpha1.UsageRecord, now time.Time, counts func(time.Time) bool) *big.Rat {
	end, n := now, int64(0)
	if r.Status.End != nil {
		end = r.Status.End.Time
	}
	for at := r.Spec.Start.Time; at.Before(end); at = at.Add(time.Minute) {
		if at.Before(now) && counts(at) {
			n++
		}
	}
	quantity, _ := new(big.Rat).SetString(string(r.Spec.Quantity))
	return quantity.Mul(quantity, big.NewRat(n, 60))
}

// TestGPUHoursByTheMinute compares sums with those over each minute of each session. The hours of
// deleted sessions, some of an invoice or all, are taken from their invoice, whole, if its whole month
// is requested. Requests month by month, or of all months together, have the same hours.
func TestGPUHoursByTheMinute(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 37)) //nolint:gosec // tests want the same numbers again
		now := day(11, 3, 0).Add(time.Duration(random.IntN(24*60)) * time.Minute)
		first := day(7, 28, 0)
		var all, kept []v1alpha1.UsageRecord
		gone := map[string]bool{}
		invoices := map[string]*v1alpha1.Invoice{}
		for i := range 12 {
			start := first.Add(time.Duration(random.IntN(98*24*60)) * time.Minute)
			end := start.Add(time.Duration(random.IntN(20*24*20)) * 3 * time.Minute) // rounded hours of invoices are exact
			if !end.Before(now) {
				end = time.Time{}
			}
			tenant, quantity := fmt.Sprintf("team-%d", random.IntN(3)), []v1alpha1.Decimal{"1", "2", "8", "0.5"}[random.IntN(4)]
			r := by(session(fmt.Sprintf("s%d", i), quantity, start, end), tenant, []string{"", "q1", "q2"}[random.IntN(3)], []string{"", "H100"}[random.IntN(2)])
			if !end.IsZero() && end.Before(day(11, 1, 0)) {
				month := int(end.Month())
				v := monthly(tenant, month, r.Spec.Model, v1alpha1.Decimal(decimalHours(minutes(&r, now, func(time.Time) bool { return true })).String()), 1)
				if known := invoices[v.Name]; known != nil {
					known.Spec.LineItems = append(known.Spec.LineItems, v.Spec.LineItems...)
				} else {
					invoices[v.Name] = &v
				}
				r = marked(r, v.Name)
				gone[r.Name] = month < 10 && random.IntN(3) > 0
			}
			if all = append(all, r); !gone[r.Name] {
				kept = append(kept, r)
			}
		}
		var final []v1alpha1.Invoice
		for _, v := range invoices {
			final = append(final, *v)
		}
		hours := func(p billing.Period) *GPUHours { return GPUHoursOf(HoursQuery{Period: p, Now: now}, nil, kept, final) }
		a, b := first.Add(time.Duration(random.IntN(98*24*60))*time.Minute), first.Add(time.Duration(random.IntN(98*24*60))*time.Minute)
		if !a.Before(b) {
			a, b = b, a.Add(time.Minute)
		}
		for _, p := range []billing.Period{{Start: a, End: b}, period(t, "2026-07-01/2026-12-01"), Month(a)} {
			got := hours(p)
			wants := [3]map[string]*big.Rat{{}, {}, {}}
			for i := range all {
				r := &all[i]
				sum, names := minutes(r, now, p.Has), [3]string{r.Spec.Tenant, r.Spec.Queue, r.Spec.Model}
				if gone[r.Name] {
					month := Month(r.Status.End.Time)
					sum, names[1] = new(big.Rat), ""
					if !month.Start.Before(p.Start) && !p.End.Before(month.End) {
						sum = minutes(r, now, func(time.Time) bool { return true })
					}
				}
				for k, name := range names {
					if wants[k][name] == nil {
						wants[k][name] = new(big.Rat)
					}
					wants[k][name].Add(wants[k][name], sum)
				}
			}
			for k, rows := range [3][]HoursOf{got.ByTenant, got.ByQueue, got.ByModel} {
				for i, row := range rows {
					want := wants[k][row.Name]
					if want == nil || row.Hours.String() != decimalHours(want).String() {
						t.Fatalf("seed %d, %s: %q has %s hours, want %v", seed, p, row.Name, row.Hours, want)
					}
					if i > 0 && rows[i-1].Hours.Cmp(row.Hours) < 0 {
						t.Fatalf("seed %d, %s: %q has %s hours and is behind %s", seed, p, row.Name, row.Hours, rows[i-1].Hours)
					}
					delete(wants[k], row.Name)
				}
				for name, left := range wants[k] {
					if left.Sign() != 0 {
						t.Fatalf("seed %d, %s: %q has no row, want %v hours", seed, p, name, left)
					}
				}
			}
		}
		parts := new(big.Rat)
		for m := Month(day(7, 1, 0)); m.Start.Before(day(12, 1, 0)); m = after(m) {
			parts.Add(parts, hours(m).Hours.Rat())
		}
		whole := hours(period(t, "2026-07-01/2026-12-01")).Hours.Rat()
		if differ := new(big.Rat).Sub(parts, whole); differ.Abs(differ).Cmp(big.NewRat(1, 100_000)) > 0 {
			t.Fatalf("seed %d: %s hours month by month, %s together", seed, parts.FloatString(6), whole.FloatString(6))
		}
	}
}

func TestSince(t *testing.T) {
	now := day(11, 20, 12)
	for text, want := range map[string]string{
		"7d": "2026-11-13T12:00:00Z/2026-11-20T12:00:00Z", "90m": "2026-11-20T10:30:00Z/2026-11-20T12:00:00Z", "1w2d": "2026-11-11T12:00:00Z/2026-11-20T12:00:00Z",
		"0": "", "7": "", "-7d": "", "soon": "", "": "",
	} {
		got, err := Since(text, now)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%q: %v (%v), want %q", text, got, err, want)
		}
	}
}

// TestForeignHours: reports of all tenants state that hours of pods of no tenant are not recorded, and
// how much such pods hold now.
func TestForeignHours(t *testing.T) {
	const none = "Pods of no tenant are in no row: of a pod whose namespace has no label pool.nvtopo.dev/tenant no hours are recorded."
	for name, tc := range map[string]struct {
		tenant  string
		foreign []string
		want    []string
	}{
		"nobody holds anything": {want: []string{none}},
		"such pods hold GPUs":   {foreign: []string{"pool a: 2", "pool b: 3"}, want: []string{none + " Now: pool a: 2; pool b: 3."}},
		"in many pools":         {foreign: []string{"a", "b", "c", "d", "e"}, want: []string{none + " Now: a; b; c; and those of 2 more pools."}},
		"of one tenant":         {tenant: "team-a", foreign: []string{"pool a: 2"}, want: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			all := []v1alpha1.UsageRecord{by(session("s", "4", day(11, 1, 0), day(11, 20, 0)), "team-a", "", "")}
			got := GPUHoursOf(HoursQuery{Period: period(t, "2026-11"), Tenant: tc.tenant, Now: day(11, 20, 0), Foreign: tc.foreign}, nil, all, nil)
			if diff := cmp.Diff(tc.want, got.Notes); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
