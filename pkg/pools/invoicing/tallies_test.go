// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"k8s.io/client-go/util/workqueue"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

// askedFor records the enqueued tenants, with their delay.
type askedFor struct {
	workqueue.TypedRateLimitingInterface[string]

	tenants []string
}

func (a *askedFor) AddAfter(tenant string, after time.Duration) {
	if after == pause {
		a.tenants = append(a.tenants, tenant)
	}
}

// TestEvents: each event of a record, a batch or an invoice updates the tally of its tenant, and
// enqueues the tenant with a delay. A record that is recreated for another tenant belongs to that one
// alone.
func TestEvents(t *testing.T) {
	ofTenant := func(r v1alpha1.UsageRecord, tenant, version string) *v1alpha1.UsageRecord {
		r.Spec.Tenant, r.ResourceVersion = tenant, version
		return &r
	}
	batches, err := accounting.Batches([]v1alpha1.UsageRecord{sold("u9", 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, ended, moved := ofTenant(sold("u1", 1), "a", "1"), ofTenant(sold("u1", 2), "a", "2"), ofTenant(sold("u1", 2), "b", "3")
	bytes := func(o ...*v1alpha1.UsageRecord) (sum int64) {
		for _, r := range o {
			sum += accounting.StoredBytes([]v1alpha1.UsageRecord{*r}, nil)
		}
		return sum
	}
	for name, tc := range map[string]struct {
		events func(made, gone func(client.Object), changed func(before, after client.Object))
		want   map[string]int64 // bytes by tenant
		asked  []string
	}{
		"a record is made and changes": {
			events: func(made, _ func(client.Object), changed func(before, after client.Object)) {
				made(first)
				changed(first, ended)
			},
			want: map[string]int64{"a": bytes(ended), "b": 0}, asked: []string{"a", "a"},
		},
		"a record goes": {
			events: func(made, gone func(client.Object), _ func(before, after client.Object)) {
				made(first)
				gone(ended)
			},
			want: map[string]int64{"a": 0, "b": 0}, asked: []string{"a", "a"},
		},
		"a record is of another tenant": {
			events: func(made, _ func(client.Object), changed func(before, after client.Object)) {
				made(first)
				changed(first, moved)
			},
			want: map[string]int64{"a": 0, "b": bytes(moved)}, asked: []string{"a", "a", "b"},
		},
		"a batch is made and goes": {
			events: func(made, gone func(client.Object), _ func(before, after client.Object)) {
				made(&batches[0])
				gone(&batches[0])
			},
			want: map[string]int64{"a": 0, "b": 0}, asked: []string{batches[0].Spec.Tenant, batches[0].Spec.Tenant},
		},
		"an account": {
			events: func(made, _ func(client.Object), _ func(before, after client.Object)) { made(anAccount(1)) },
			want:   map[string]int64{"a": 0, "b": 0}, asked: []string{"team-a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			all, q := newTallies(), &askedFor{}
			h := all.events()
			tc.events(
				func(o client.Object) { h.Create(t.Context(), event.CreateEvent{Object: o}, q) },
				func(o client.Object) { h.Delete(t.Context(), event.DeleteEvent{Object: o}, q) },
				func(before, after client.Object) {
					h.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
				},
			)
			got := map[string]int64{"a": all.get("a").StoredBytes(), "b": all.get("b").StoredBytes()}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("bytes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.asked, q.tenants); diff != "" {
				t.Errorf("asked for (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEventsBesideStatements: events of any goroutine continue while statements are made, and the last
// statement includes all of them.
func TestEventsBesideStatements(t *testing.T) {
	e := newTestEnv(t, anAccount(1))
	q := &askedFor{}
	var all sync.WaitGroup
	for from := range 4 {
		all.Go(func() {
			h := e.r.tallies.events()
			for _, o := range hours(100*from, 100, day(11, 20)) {
				h.Create(context.Background(), event.CreateEvent{Object: o}, noQueue{q})
			}
		})
	}
	for range 20 {
		tally, err := e.r.tallies.read(t.Context(), e, "team-a")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := tally.Statement(accounting.Books{Account: anAccount(1), Now: day(11, 21)}); err != nil {
			t.Fatal(err)
		}
	}
	all.Wait()
	tally := e.r.tallies.get("team-a")
	_, s, err := tally.Statement(accounting.Books{Account: anAccount(1), Prices: e.prices(t), Now: day(11, 21)})
	if err != nil || s.Billed.String() != "800.00" {
		t.Errorf("billed %v, %v; want 800.00", s.Billed, err)
	}
}

// noQueue accepts requests from several goroutines, and drops them.
type noQueue struct{ *askedFor }

func (noQueue) AddAfter(string, time.Duration) {}
