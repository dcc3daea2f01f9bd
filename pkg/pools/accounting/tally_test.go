// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// world is the API server's objects of a tenant, which change at random, and a tally that is notified of
// the changes.
type world struct {
	random   *rand.Rand
	now      time.Time
	account  *v1alpha1.TenantAccount
	prices   *v1alpha1.PriceBook
	records  map[types.NamespacedName]*v1alpha1.UsageRecord
	batches  map[string]*v1alpha1.UsageBatch
	invoices map[string]*v1alpha1.Invoice
	made     int
	did      []string

	tally  *Tally
	untold []func() // changes not reported to the tally yet, each of one object
}

func newWorld(seed uint64) *world {
	return &world{
		random: rand.New(rand.NewPCG(seed, 8)), now: day(11, 20, 0), account: account("1000"), prices: prices(),
		records: map[types.NamespacedName]*v1alpha1.UsageRecord{}, batches: map[string]*v1alpha1.UsageBatch{}, invoices: map[string]*v1alpha1.Invoice{},
		tally: NewTally(),
	}
}

// books returns all objects of the API server.
func (w *world) books() Books {
	b := Books{Account: w.account, Prices: w.prices, Now: w.now, Grace: 24 * time.Hour}
	for _, name := range slices.Sorted(maps.Keys(w.invoices)) {
		b.Invoices = append(b.Invoices, *w.invoices[name])
	}
	for _, r := range w.records {
		b.Records = append(b.Records, *r)
	}
	for _, batch := range w.batches {
		b.Batches = append(b.Batches, *batch)
	}
	return b
}

func (w *world) setRecord(r *v1alpha1.UsageRecord) {
	key := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	w.records[key] = r
	w.untold = append(w.untold, func() {
		if r := w.records[key]; r != nil {
			w.tally.SetRecord(r)
		} else {
			w.tally.DeleteRecord(key.Namespace, key.Name)
		}
	})
}

func (w *world) deleteRecord(r *v1alpha1.UsageRecord) {
	w.setRecord(r)
	delete(w.records, types.NamespacedName{Namespace: r.Namespace, Name: r.Name})
}

func (w *world) setBatch(name string, b *v1alpha1.UsageBatch) {
	if w.batches[name] = b; b == nil {
		delete(w.batches, name)
	} else {
		w.made++
		b.UID = types.UID(fmt.Sprintf("batch-%d", w.made))
	}
	w.untold = append(w.untold, func() {
		if b := w.batches[name]; b != nil {
			w.tally.SetBatch(b)
		} else {
			w.tally.DeleteBatch(name)
		}
	})
}

func (w *world) setInvoice(name string, v *v1alpha1.Invoice) {
	if w.invoices[name] = v; v == nil {
		delete(w.invoices, name)
	}
	w.untold = append(w.untold, func() {
		if v := w.invoices[name]; v != nil {
			w.tally.SetInvoice(v)
		} else {
			w.tally.DeleteInvoice(name)
		}
	})
}

// tell reports the pending changes to the tally, in any order and some of them twice.
func (w *world) tell() {
	w.random.Shuffle(len(w.untold), func(i, j int) { w.untold[i], w.untold[j] = w.untold[j], w.untold[i] })
	for _, tell := range w.untold {
		tell()
		if w.random.IntN(8) == 0 {
			tell()
		}
	}
	w.untold = nil
}

// any returns one of the records for which is returns true; nil if there is none.
func (w *world) any(is func(*v1alpha1.UsageRecord) bool) *v1alpha1.UsageRecord {
	var some []*v1alpha1.UsageRecord
	for _, r := range w.records {
		if is == nil || is(r) {
			some = append(some, r)
		}
	}
	if len(some) == 0 {
		return nil
	}
	slices.SortFunc(some, func(a, b *v1alpha1.UsageRecord) int {
		return strings.Compare(a.Name+"/"+a.Namespace, b.Name+"/"+b.Namespace)
	})
	return some[w.random.IntN(len(some))].DeepCopy()
}

func isOpen(r *v1alpha1.UsageRecord) bool { return r.Status.End == nil }

func isEnded(r *v1alpha1.UsageRecord) bool { return r.Status.End != nil }

// begin starts a session, of a resource that may have no price.
func (w *world) begin() *v1alpha1.UsageRecord {
	w.made++
	name := fmt.Sprintf("s%04d", w.made)
	start := w.now.Add(-time.Duration(w.random.IntN(40*3600)) * time.Second)
	r := session(name, []v1alpha1.Decimal{"1", "4", "0.428", "8"}[w.random.IntN(4)], start, time.Time{})
	r.Spec.Resource = []string{"nvidia.com/gpu", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "x/unknown"}[w.random.IntN(4)]
	r.Spec.Model = []string{"", "A1", "H100"}[w.random.IntN(3)]
	if w.random.IntN(10) == 0 {
		r.Name = names.RestRecord(r.Name, start)
	}
	w.setRecord(&r)
	return &r
}

// end ends an open session.
func (w *world) end() {
	if r := w.any(isOpen); r != nil {
		seconds := int(w.now.Sub(r.Spec.Start.Time) / time.Second)
		at := metav1.NewTime(r.Spec.Start.Add(time.Duration(w.random.IntN(max(seconds, 1))) * time.Second))
		r.Status.End, r.Status.Estimated = &at, w.random.IntN(5) == 0
		w.setRecord(r)
	}
}

// bill does the controller's writes, or the first of them.
func (w *world) bill(writes int) {
	b := w.books()
	s, err := b.Compute()
	if err != nil || s.NoPrices != "" {
		return
	}
	var due []string
	for i := range s.Invoices {
		spec := s.Invoices[i]
		if spec.Finalized {
			due = append(due, spec.InvoiceID)
		}
		spec.Finalized = false
		w.setInvoice(spec.InvoiceID, &v1alpha1.Invoice{ObjectMeta: metav1.ObjectMeta{Name: spec.InvoiceID}, Spec: spec})
	}
	for i := range s.Sessions {
		session := &s.Sessions[i]
		if session.Batched {
			continue
		}
		if writes--; writes < 0 {
			return
		}
		r := w.records[session.Record].DeepCopy()
		Fix(&r.Status, &session.Charge)
		if session.Late || slices.Contains(due, session.Invoice) {
			r.Status.Invoice = session.Invoice
		}
		w.setRecord(r)
	}
	for _, id := range slices.Backward(due) {
		v := w.invoices[id].DeepCopy()
		v.Spec.Finalized = true
		w.setInvoice(id, v)
	}
	for _, id := range s.Stale {
		w.setInvoice(id, nil)
	}
}

// batch moves ended sessions into batches, which their records may outlive, or come back from a backup.
func (w *world) batch() {
	b := w.books()
	s, err := b.Compute()
	if err != nil || s.NoPrices != "" {
		return
	}
	for i := range s.Sessions { // as if they were ready
		if session := &s.Sessions[i]; !session.Batched && w.random.IntN(2) == 0 {
			r := w.records[session.Record].DeepCopy()
			Fix(&r.Status, &session.Charge)
			r.Status.Invoice = session.Invoice
			w.setRecord(r)
		}
	}
	b = w.books()
	marked := slices.DeleteFunc(Distinct(Unbatched(b.Records, b.Batches)), func(r v1alpha1.UsageRecord) bool {
		return r.Status.Invoice == "" || r.Status.End == nil || w.random.IntN(3) == 0
	})
	made, err := Batches(marked, b.Batches)
	if err != nil {
		panic(err)
	}
	for i := range made {
		w.setBatch(made[i].Name, &made[i])
	}
}

// discard deletes records that batches replace.
func (w *world) discard() {
	b := w.books()
	for _, r := range Replaced(b.Records, b.Batches) {
		if w.random.IntN(3) > 0 {
			w.deleteRecord(&r)
		}
	}
}

// secondPage makes page 2 of an invoice final, with some sessions, before page 1.
func (w *world) secondPage() {
	p := Month(w.now.AddDate(0, -w.random.IntN(2), 0))
	account, err := AccountOf(w.account)
	if err != nil {
		return
	}
	first := billing.InvoiceID(account, p)
	if v := w.invoices[first]; v != nil && v.Spec.Finalized {
		return
	}
	v := invoice(billing.PageID(first, 2), int(p.Start.Month()), "1.00", true)
	v.Spec.Period = v1alpha1.BillingPeriod{Start: metav1.NewTime(p.Start), End: metav1.NewTime(p.End)}
	v.Spec.Page = 2
	for range 3 {
		r := w.any(func(r *v1alpha1.UsageRecord) bool {
			return isEnded(r) && r.Status.Invoice == "" && p.Has(r.Status.End.Time)
		})
		if r != nil {
			r.Status.Invoice = v.Name
			w.setRecord(r)
		}
	}
	w.setInvoice(v.Name, &v)
}

// change changes a record at random, also to invalid contents.
func (w *world) change() {
	r := w.any(nil)
	if r == nil {
		return
	}
	switch w.random.IntN(6) {
	case 0:
		r.Spec.Quantity = []v1alpha1.Decimal{"x", "2", "-1"}[w.random.IntN(3)]
	case 1:
		if r.Status.End != nil {
			r.Status.Invoice = []string{"inv-nowhere", october, november, december, "inv-20261101-20261201-uid-old", "inv-20270201-20270301-uid-a"}[w.random.IntN(6)]
		}
	case 2:
		r.Namespace = "elsewhere" // a copy
	case 3:
		*r = restored(*r)
		r.Status = v1alpha1.UsageRecordStatus{}
	case 4:
		r.Status.Cost = "0.01"
	case 5:
		w.deleteRecord(r)
		return
	}
	w.setRecord(r)
}

// edit changes the account or the price book.
func (w *world) edit() {
	switch w.random.IntN(9) {
	case 8:
		v := brokenInvoice()
		w.setInvoice(v.Name, &v)
	case 0:
		a := w.account.DeepCopy()
		a.Spec.Credits = append(a.Spec.Credits, v1alpha1.Credit{ID: fmt.Sprintf("n%d", w.random.IntN(1000)), Amount: "12.50", At: metav1.NewTime(w.now)})
		w.account = a
	case 1:
		w.account = account("10")
		w.account.UID = types.UID([]string{"uid-a", "uid-b"}[w.random.IntN(2)])
	case 2:
		w.prices = nil
	case 3:
		w.prices = prices(func(s *v1alpha1.PriceBookSpec) { s.DiscountScope = v1alpha1.ScopeBillingPeriod })
	case 4:
		w.prices = prices(func(s *v1alpha1.PriceBookSpec) { s.Currency = "EUR" })
	case 5:
		w.prices = prices(func(s *v1alpha1.PriceBookSpec) {
			s.Prices = append(s.Prices, v1alpha1.Price{Resource: "x/unknown", PricePerHour: "0.33"}, v1alpha1.Price{Resource: "nvidia.com/gpu", Model: "H100", PricePerHour: "3.017"})
		})
	default:
		w.prices = prices()
	}
}

// step carries out a random step.
func (w *world) step() {
	steps := []struct {
		name   string
		weight int
		do     func()
	}{
		{"begin", 12, func() { w.begin() }},
		{"end", 10, w.end},
		{"bill", 6, func() { w.bill(1 << 30) }},
		{"bill in part", 3, func() { w.bill(w.random.IntN(5)) }},
		{"batch", 3, w.batch},
		{"discard", 3, w.discard},
		{"a batch goes", 1, func() {
			if all := slices.Sorted(maps.Keys(w.batches)); len(all) > 0 && w.random.IntN(3) == 0 {
				w.setBatch(all[w.random.IntN(len(all))], nil)
			}
		}},
		{"an invoice goes", 1, func() {
			if all := slices.Sorted(maps.Keys(w.invoices)); len(all) > 0 && w.random.IntN(3) == 0 {
				w.setInvoice(all[w.random.IntN(len(all))], nil)
			}
		}},
		{"second page", 1, w.secondPage},
		{"change", 3, w.change},
		{"edit", 2, w.edit},
		{"as before", 2, func() {
			w.prices = prices()
			if v := w.invoices[november]; v != nil && v.Spec.Total == brokenInvoice().Spec.Total {
				w.setInvoice(november, nil)
			}
		}},
		{"hours pass", 6, func() { w.now = w.now.Add(time.Duration(w.random.IntN(50)) * time.Hour) }},
	}
	all := 0
	for _, s := range steps {
		all += s.weight
	}
	at := w.random.IntN(all)
	for _, s := range steps {
		if at -= s.weight; at < 0 {
			w.did = append(w.did, s.name)
			s.do()
			return
		}
	}
}

// said is the contents of a statement in canonical order, without the sessions that need no write.
type said struct {
	Err, NoPrices            string
	Invoices                 []v1alpha1.InvoiceSpec
	Stale                    []string
	Open                     []billing.Charge
	Balance, Billed, Accrued string
	Wrong                    []string
	Held                     []types.NamespacedName
	Unpriced                 []string
	Settles                  bool
	ToWrite                  map[string]string // records that need a write, with their new contents
	Sessions                 map[string]string // contents of all records
	Lines                    []BillLine
}

func saidBy(t *testing.T, w *world, b *Books, s *Statement, err error) said {
	t.Helper()
	if err != nil {
		return said{Err: err.Error()}
	}
	out := said{
		NoPrices: s.NoPrices, Invoices: s.Invoices, Stale: s.Stale, Open: s.Open, Balance: s.Balance.String(), Billed: s.Billed.String(), Accrued: s.Accrued.String(),
		Held: s.Held, Unpriced: s.Unpriced(), Settles: s.Settles(), ToWrite: map[string]string{}, Sessions: map[string]string{},
	}
	slices.Sort(out.Stale)
	for _, err := range s.Wrong {
		out.Wrong = append(out.Wrong, err.Error())
	}
	slices.Sort(out.Wrong)
	for i := range s.Sessions {
		session := &s.Sessions[i]
		if session.Batched || s.NoPrices != "" {
			continue
		}
		status := w.records[session.Record].Status
		was := status
		Fix(&status, &session.Charge)
		out.Sessions[session.Record.String()] = fmt.Sprintf("%s of %s for %d s on %s, late: %t", status.Cost, status.UnitPrice, status.BilledSeconds, session.Invoice, session.Late)
		if status != was {
			out.ToWrite[session.Record.String()] = out.Sessions[session.Record.String()]
		}
	}
	bill, err := BillOf(b)
	if err != nil {
		t.Fatal(err)
	}
	out.Lines = bill.Lines
	return out
}

// exactly compares the hours of charges.
var exactly = cmp.Comparer(func(a, b *big.Rat) bool { return a.Cmp(b) == 0 })

// check compares the tally's statement with the one computed from scratch.
func (w *world) check(t *testing.T) said {
	t.Helper()
	anew := w.books()
	s, err := anew.Compute()
	want := saidBy(t, w, &anew, s, err)
	books, s, err := w.tally.Statement(Books{Account: w.account, Prices: w.prices, Now: w.now, Grace: 24 * time.Hour})
	got := saidBy(t, w, books, s, err)
	want.Sessions, got.Sessions = nil, nil // those that are as they should be are in sums
	if diff := cmp.Diff(want, got, exactly); diff != "" {
		t.Fatalf("after %v: computed anew (-), by the tally (+):\n%s", w.did, diff)
	}
	w.checkLists(t, &anew)
	w.checkWithBatches(t)
	return got
}

// checkWithBatches compares the statement of all records and the tally's batches with the one computed
// from scratch.
func (w *world) checkWithBatches(t *testing.T) {
	t.Helper()
	anew := w.books()
	anew.BatchAfter = time.Hour
	apart, uids := anew, map[types.UID]bool{}
	apart.Batches = nil
	for _, b := range anew.Batches {
		uids[b.UID] = true
	}
	books, s, ok, err := w.tally.WithBatches(apart, uids)
	if w.prices != nil && w.prices.Spec.DiscountScope == v1alpha1.ScopeBillingPeriod {
		if ok || err != nil {
			t.Fatalf("after %v: sums of discounts over the month: %v, %v", w.did, ok, err)
		}
		return
	}
	if !ok && err == nil {
		t.Fatalf("after %v: the tally has not the batches %v", w.did, uids)
	}
	got := saidBy(t, w, books, s, err)
	s, err = anew.Compute()
	want := saidBy(t, w, &anew, s, err)
	if diff := cmp.Diff(want, got, exactly); diff != "" {
		t.Fatalf("after %v: computed anew (-), with the tally's batches (+):\n%s", w.did, diff)
	}
	uids["another"] = true
	if _, _, ok, err := w.tally.WithBatches(apart, uids); ok || err != nil {
		t.Fatalf("after %v: a batch is missing: %v, %v", w.did, ok, err)
	}
}

// checkLists compares the tally's other results with the functions over all records.
func (w *world) checkLists(t *testing.T, b *Books) {
	t.Helper()
	list := func(records []v1alpha1.UsageRecord) (out []string) {
		for i := range records {
			out = append(out, records[i].Name)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	listed := func(records []*v1alpha1.UsageRecord) (out []string) {
		for _, r := range records {
			out = append(out, r.Name)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	type lists struct {
		Ready, Replaced, Expired, Batches []string
		Bytes                             int64
	}
	var want, got lists
	ready, unmarked := b.Ready(time.Hour)
	want.Ready = list(append(ready, unmarked...))
	got.Ready = listed(w.tally.Ready(w.prices, time.Hour, w.now))
	// Of two copies one may be ready and the other not: the tally uses the more complete one.
	want.Ready = slices.DeleteFunc(want.Ready, func(name string) bool {
		return w.records[types.NamespacedName{Namespace: "elsewhere", Name: name}] != nil && !slices.Contains(got.Ready, name)
	})
	want.Replaced, got.Replaced = list(Replaced(b.Records, b.Batches)), listed(w.tally.Replaced())
	over := overIn(b.Invoices, 0, w.now)
	want.Expired = list(slices.DeleteFunc(slices.Clone(b.Records), func(r v1alpha1.UsageRecord) bool {
		return r.Status.End == nil || r.Status.Invoice == "" || !over[r.Status.Invoice]
	}))
	for i := range b.Batches {
		if over[b.Batches[i].Spec.Invoice] {
			want.Batches = append(want.Batches, b.Batches[i].Name)
		}
	}
	records, batches := w.tally.Expired(0, w.now)
	got.Expired = listed(records)
	for _, batch := range batches {
		got.Batches = append(got.Batches, batch.Name)
	}
	slices.Sort(want.Batches)
	slices.Sort(got.Batches)
	want.Bytes, got.Bytes = StoredBytes(b.Records, b.Batches), w.tally.StoredBytes()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("after %v: by all records (-), by the tally (+):\n%s", w.did, diff)
	}
}

// TestTallyOracle: after any events, in any order, the statement is the one computed from scratch.
func TestTallyOracle(t *testing.T) {
	var settled, invoiced, wrong, held, noPrices, refused int
	for seed := range uint64(50) {
		w := newWorld(seed)
		for range 60 {
			for range 1 + w.random.IntN(4) {
				w.step()
			}
			w.tell()
			s := w.check(t)
			invoiced += len(s.Invoices)
			wrong += len(s.Wrong)
			held += len(s.Held)
			settled += len(w.tally.sums)
			if s.NoPrices != "" {
				noPrices++
			}
			if s.Err != "" {
				refused++
			}
		}
	}
	t.Logf("%d sums, %d invoices, %d wrong, %d held, %d without prices, %d refused", settled, invoiced, wrong, held, noPrices, refused)
	if settled < 10_000 || invoiced < 1000 || wrong < 100 || held < 100 || noPrices < 100 || refused < 10 {
		t.Error("the test shows less than it says")
	}
}

// TestTallyRatesWhatChanged: of many ended sessions, only a changed one is rated again.
func TestTallyRatesWhatChanged(t *testing.T) {
	w := newWorld(1)
	for i := range 200 {
		r := fixed(session(fmt.Sprintf("p%04d", i), "4", day(11, 2, 0), day(11, 2, 1)), "2", 3600, "8.00")
		w.setRecord(&r)
	}
	open := session("open", "1", day(11, 19, 0), time.Time{})
	w.setRecord(&open)
	w.tell()
	w.check(t)
	if got := len(w.tally.apart); got != 1 {
		t.Errorf("%d sessions are rated at each statement, want the one that goes on", got)
	}
	r := w.any(isEnded)
	at := metav1.NewTime(r.Status.End.Add(time.Hour))
	r.Status.End, r.Status.BilledSeconds, r.Status.Cost = &at, 7200, "16.00"
	w.setRecord(r)
	w.tell()
	if diff := cmp.Diff(map[string]bool{r.Name: true}, w.tally.changed); diff != "" {
		t.Errorf("sessions to rate (-want +got):\n%s", diff)
	}
	w.check(t)
	w.prices = prices(func(s *v1alpha1.PriceBookSpec) { s.Prices[0].PricePerHour = "5" })
	w.check(t)
	if got := len(w.tally.sums); got != 1 {
		t.Errorf("%d sums after another price, want the one whose price is fixed", got)
	}
}
