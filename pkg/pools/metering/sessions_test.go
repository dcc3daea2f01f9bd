// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

// dearer is the time from which on a GPU costs 3 an hour instead of 2.
var dearer = time.Date(2026, 12, 16, 12, 0, 0, 0, time.UTC)

// thePrices returns the prices of the requirement, and one that changes.
func thePrices() *v1alpha1.PriceBook {
	least := int64(60)
	return &v1alpha1.PriceBook{Spec: v1alpha1.PriceBookSpec{
		Currency: "USD", MinPeriodSeconds: &least,
		Prices: []v1alpha1.Price{
			{Resource: "nvidia.com/gpu", PricePerHour: "2.0"}, {Resource: "nvidia.com/gpu", PricePerHour: "3.0", ValidFrom: dearer.Format(time.RFC3339)},
		},
		Discounts: []v1alpha1.Discount{
			{ThresholdHours: "100", Multiplier: "0.9"}, {ThresholdHours: "500", Multiplier: "0.8"}, {ThresholdHours: "1000", Multiplier: "0.7"},
		},
		Mode: v1alpha1.AllUnits, DiscountScope: v1alpha1.ScopeSession,
	}}
}

// cents returns the cost of a session at those prices, in integers and without the code under test.
func (ran *truth) cents() int64 {
	seconds := max(ran.end.Unix()-ran.start.Unix(), 60)
	work := ran.thousandth * seconds // thousandths of device seconds
	tenths := int64(10)
	for _, tier := range []struct{ hours, tenths int64 }{{100, 9}, {500, 8}, {1000, 7}} {
		if work >= tier.hours*3600*1000 {
			tenths = tier.tenths
		}
	}
	price := int64(200) // cents an hour
	if !ran.end.Before(dearer) {
		price = 300
	}
	// Tenths of the price, rounded half up.
	numerator, denominator := work*price*tenths, int64(3600*1000*10)
	return (2*numerator + denominator) / (2 * denominator)
}

// TestTenThousandSessions is must-show 5: with the controller killed 20 times at any of its writes,
// 10 000 sessions over three months cost to the cent their independently computed cost; each is on
// one invoice.
func TestTenThousandSessions(t *testing.T) {
	seed := uint64(1)
	if text := os.Getenv("NVTOPO_BILLING_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seed = n
	}
	w := newTestEnv(seed, 3)
	live(w, 11_500, 20) // some pods exist unobserved, without a finalizer
	for _, err := range w.failed {
		t.Error(err)
	}
	estimated, late := 0, 0
	for name, want := range w.want {
		r := w.records[name]
		if r == nil {
			t.Errorf("session %s has no record", name)
			continue
		}
		if !r.Spec.Start.Time.Equal(want.start) || !r.Status.End.Time.Equal(want.end) || r.Status.Estimated != want.estimated {
			t.Errorf("session %s is from %v to %v, estimated %v; want %+v", name, r.Spec.Start, r.Status.End, r.Status.Estimated, *want)
		}
		if month := accounting.Month(want.end).Start.Format("20060102"); r.Status.Invoice[len("inv-"):][:len(month)] != month {
			late++
		}
		if want.estimated {
			estimated++
		}
	}
	if len(w.records) != len(w.want) {
		t.Errorf("there are %d records of %d sessions", len(w.records), len(w.want))
	}
	var sessions int32
	for _, account := range w.accounts {
		var want int64
		for _, ran := range w.want {
			if ran.tenant == account.Name {
				want += ran.cents()
			}
		}
		s, err := w.bill(account)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Billed.String(); got != fmt.Sprintf("%d.%02d", want/100, want%100) || len(s.Sessions) != 0 || len(s.Open) != 0 {
			t.Errorf("%s is billed %s, want %d cents; %d sessions are on no final invoice", account.Name, got, want, len(s.Sessions)+len(s.Open))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.invoices)) {
		for _, line := range w.invoices[id].Spec.LineItems {
			sessions += line.Sessions
		}
	}
	if int(sessions) != len(w.want) {
		t.Errorf("the invoices have %d sessions, want %d", sessions, len(w.want))
	}
	if w.kills < 20 || len(w.want) < 10_000 || late == 0 || estimated == 0 {
		t.Errorf("%d kills, %d late sessions, %d estimated: the test shows less than it says", w.kills, late, estimated)
	}
	t.Logf("%d sessions on %d invoices, %d estimated, %d on a later invoice, %d kills", len(w.want), len(w.invoices), estimated, late, w.kills)
}

// live starts and ends n pods, and kills the controller the given number of times.
func live(w *testEnv, n, kills int) {
	months := w.now.AddDate(0, 3, 0).Sub(w.now)
	back, next := time.Time{}, n/kills/2 // when the controller is again, and which pod's it will not see
	for i := range n {
		w.pass(time.Duration(w.random.Int64N(int64(2*months/time.Duration(n)/time.Second))) * time.Second)
		if !w.up && back.IsZero() {
			back = w.now.Add(time.Duration(w.random.IntN(60)) * time.Minute)
			if w.kills%7 == 0 { // a long time, in which months end
				back = accounting.Month(w.now).End.AddDate(0, 0, 2)
			}
		}
		if !w.up && w.now.After(back) {
			settle(w)
			w.begin()
			back, next = time.Time{}, i+n/kills/3
		}
		if i >= next && w.up && w.writes < 0 && w.kills < kills {
			w.writes = w.random.IntN(50) // so many more, and then
		}
		w.bind(i)
		for running := w.running(); len(running) > 40; running = running[1:] {
			if pod := running[0]; w.random.IntN(3) == 0 {
				w.delete(pod)
			} else {
				w.finish(pod)
			}
		}
		if i%500 == 0 && w.up {
			w.billAll()
		}
	}
	w.pass(time.Hour)
	w.writes = -1
	settle(w)
	w.begin()
	for _, pod := range w.running() {
		w.pass(time.Minute)
		w.finish(pod)
	}
	w.now = accounting.Month(w.now).End.AddDate(0, 2, 0)
	w.billAll()
}

// settle corrects the truth where a node's clock was ahead while the controller was away: the end is
// the time at which it is read, if that is earlier: now.
func settle(w *testEnv) {
	for name, ran := range w.want {
		if pod := w.pods[types.UID(name)]; pod != nil && pod.Status.Phase == v1.PodSucceeded && ran.end.After(w.now) {
			ran.end = w.now
		}
	}
}
