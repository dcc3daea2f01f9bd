// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/billing"
)

// Tally keeps a tenant's books so that a statement costs only the changes since the last one. The
// statement is the one that Books.Compute makes of the same objects, in whatever order they became
// known.
//
// Ended and priced sessions are added up by month, invoice and line. A change rates only the changed
// sessions; open ones are rated at each statement. A Tally keeps the objects that it is given and does
// not modify them: they may belong to a cache.
type Tally struct {
	mu       sync.Mutex
	entries  map[string]entry                // guarded by mu; by the name of the session's record
	recorded map[string]bool                 // guarded by mu; the entries that have a record
	batches  map[string]*v1alpha1.UsageBatch // guarded by mu
	invoices map[string]*v1alpha1.Invoice    // guarded by mu
	marks    map[string]int                  // guarded by mu; as Books.Marks
	bytes    int64                           // guarded by mu; StoredBytes of all records and batches

	terms   *terms                       // guarded by mu; used for the sums; nil: there are none
	changed map[string]bool              // guarded by mu; the entries to rate
	apart   map[string]source            // guarded by mu; the sessions that are in no sum
	sums    map[sumKey]*billing.Subtotal // guarded by mu
}

// entry is a session.
type entry struct {
	sources []source // records and batch places that have it: usually one
	summed  source   // the source that is in a sum; zero if none is
}

// source is a record, or a place in a batch.
type source struct {
	record *v1alpha1.UsageRecord
	batch  *v1alpha1.UsageBatch
	group  int32
	at     int32
}

// read returns the record, or the one that the batch's session replaces.
func (s source) read() v1alpha1.UsageRecord {
	if s.record != nil {
		return *s.record
	}
	group := &s.batch.Spec.Groups[s.group]
	return recordOf(&s.batch.Spec, &group.UsageTerms, &group.Sessions[s.at])
}

// chosen returns the source to use: a batch on a final invoice before another batch, and a batch before
// a record.
func chosen(sources []source, final map[string]bool) source {
	rank := func(s source) int {
		switch {
		case s.record != nil:
			return 2
		case final[s.batch.Spec.Invoice]:
			return 0
		}
		return 1
	}
	if len(sources) == 1 {
		return sources[0]
	}
	return slices.MinFunc(sources, func(a, b source) int {
		if first := rank(a) - rank(b); first != 0 {
			return first
		}
		x, y := a.read(), b.read()
		return compareCopies(&x, &y)
	})
}

// NewTally returns empty books of a tenant.
func NewTally() *Tally {
	return &Tally{
		entries: map[string]entry{}, recorded: map[string]bool{}, batches: map[string]*v1alpha1.UsageBatch{},
		invoices: map[string]*v1alpha1.Invoice{}, marks: map[string]int{},
	}
}

// SetRecord adds or updates a record.
func (t *Tally) SetRecord(r *v1alpha1.UsageRecord) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.record(r.Namespace, r.Name); old != nil && same(old, r) {
		return
	}
	t.dropRecord(r.Namespace, r.Name)
	t.add(r.Name, source{record: r})
	t.recorded[r.Name] = true
	t.mark(r.Status.Invoice, 1)
	t.bytes += StoredBytes([]v1alpha1.UsageRecord{*r}, nil)
}

// DeleteRecord removes a record.
func (t *Tally) DeleteRecord(namespace, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropRecord(namespace, name)
}

// record returns the record of that name; nil if there is none.
func (t *Tally) record(namespace, name string) *v1alpha1.UsageRecord {
	for _, s := range t.entries[name].sources {
		if s.record != nil && s.record.Namespace == namespace {
			return s.record
		}
	}
	return nil
}

// same reports whether an object is unchanged.
func same(a, b metav1.Object) bool {
	return a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion() && a.GetUID() == b.GetUID()
}

func (t *Tally) dropRecord(namespace, name string) {
	old := t.record(namespace, name)
	if old == nil {
		return
	}
	t.drop(name, func(s source) bool { return s.record == old })
	if !slices.ContainsFunc(t.entries[name].sources, func(s source) bool { return s.record != nil }) {
		delete(t.recorded, name)
	}
	t.mark(old.Status.Invoice, -1)
	t.bytes -= StoredBytes([]v1alpha1.UsageRecord{*old}, nil)
}

// SetBatch adds or updates a batch.
func (t *Tally) SetBatch(b *v1alpha1.UsageBatch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.batches[b.Name]; old != nil && same(old, b) {
		return
	}
	t.dropBatch(b.Name)
	t.batches[b.Name] = b
	for g := range b.Spec.Groups {
		for i := range b.Spec.Groups[g].Sessions {
			s := &b.Spec.Groups[g].Sessions[i]
			t.add(string(s.PodUID)+s.Record, source{batch: b, group: int32(g), at: int32(i)}) //nolint:gosec // the API takes 4096
		}
	}
	t.mark(b.Spec.Invoice, 1)
	t.bytes += StoredBytes(nil, []v1alpha1.UsageBatch{*b})
}

// DeleteBatch removes a batch.
func (t *Tally) DeleteBatch(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dropBatch(name)
}

func (t *Tally) dropBatch(name string) {
	old := t.batches[name]
	if old == nil {
		return
	}
	delete(t.batches, name)
	for g := range old.Spec.Groups {
		for i := range old.Spec.Groups[g].Sessions {
			s := &old.Spec.Groups[g].Sessions[i]
			t.drop(string(s.PodUID)+s.Record, func(s source) bool { return s.batch == old })
		}
	}
	t.mark(old.Spec.Invoice, -1)
	t.bytes -= StoredBytes(nil, []v1alpha1.UsageBatch{*old})
}

// SetInvoice adds or updates an invoice.
func (t *Tally) SetInvoice(v *v1alpha1.Invoice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.invoices[v.Name] = v
}

// DeleteInvoice removes an invoice.
func (t *Tally) DeleteInvoice(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.invoices, name)
}

// add adds a source to an entry.
func (t *Tally) add(name string, s source) {
	e := t.entries[name]
	e.sources = append(e.sources, s)
	t.entries[name] = e
	t.change(name)
}

// drop removes sources from an entry.
func (t *Tally) drop(name string, in func(source) bool) {
	e, known := t.entries[name]
	if !known {
		return
	}
	e.sources = slices.DeleteFunc(e.sources, in)
	if t.entries[name] = e; len(e.sources) == 0 && e.summed == (source{}) {
		delete(t.entries, name)
	}
	t.change(name)
}

// change marks an entry to be rated at the next statement. Before the first one all are.
func (t *Tally) change(name string) {
	if t.terms != nil {
		t.changed[name] = true
	}
}

// mark adds n to the number of records and batches that are marked with an invoice.
func (t *Tally) mark(invoice string, n int) {
	if invoice == "" {
		return
	}
	if t.marks[invoice] += n; t.marks[invoice] == 0 {
		delete(t.marks, invoice)
	}
}

// Empty reports whether the tally has neither records nor batches.
func (t *Tally) Empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.recorded)+len(t.batches) == 0
}

// StoredBytes estimates the bytes of etcd that records and batches take.
func (t *Tally) StoredBytes() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes
}

// BatchUIDs returns the UIDs of the batches.
func (t *Tally) BatchUIDs() map[types.UID]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.batchUIDs()
}

func (t *Tally) batchUIDs() map[types.UID]bool {
	uids := make(map[types.UID]bool, len(t.batches))
	for _, b := range t.batches {
		uids[b.UID] = true
	}
	return uids
}

// Ready returns the records that Books.Ready returns, including those that only lack their invoice.
func (t *Tally) Ready(prices *v1alpha1.PriceBook, after time.Duration, now time.Time) []*v1alpha1.UsageRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	alone := prices != nil && prices.Spec.DiscountScope != v1alpha1.ScopeBillingPeriod
	var out []*v1alpha1.UsageRecord
	for name := range t.recorded {
		r := chosen(t.entries[name].sources, nil).record
		if r == nil || r.Status.End == nil || r.Status.End.Add(after).After(now) {
			continue
		}
		invoice := t.invoices[r.Status.Invoice]
		if r.Status.UnitPrice != "" && alone || invoice != nil && invoice.Spec.Finalized {
			out = append(out, r)
		}
	}
	return out
}

// Replaced returns the records that batches replace.
func (t *Tally) Replaced() []*v1alpha1.UsageRecord {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*v1alpha1.UsageRecord
	for name := range t.recorded {
		sources := t.entries[name].sources
		for _, s := range sources {
			if s.record != nil && slices.ContainsFunc(sources, func(o source) bool { return o.batch != nil && stands(o.read(), s.record) }) {
				out = append(out, s.record)
			}
		}
	}
	return out
}

// Expired returns the records and batches that can be deleted: their invoice is final, and was exported
// at least keep ago. The account's balance has the invoice in their place.
func (t *Tally) Expired(keep time.Duration, now time.Time) ([]*v1alpha1.UsageRecord, []*v1alpha1.UsageBatch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	over := overIn(t.allInvoices(), keep, now)
	maps.DeleteFunc(over, func(invoice string, is bool) bool { return !is || t.marks[invoice] == 0 })
	if len(over) == 0 {
		return nil, nil
	}
	var records []*v1alpha1.UsageRecord
	for name := range t.recorded {
		for _, s := range t.entries[name].sources {
			if s.record != nil && s.record.Status.End != nil && over[s.record.Status.Invoice] {
				records = append(records, s.record)
			}
		}
	}
	var batches []*v1alpha1.UsageBatch
	for _, b := range t.batches {
		if over[b.Spec.Invoice] {
			batches = append(batches, b)
		}
	}
	return records, batches
}

// allInvoices returns the invoices, sorted by name.
func (t *Tally) allInvoices() []v1alpha1.Invoice {
	out := make([]v1alpha1.Invoice, 0, len(t.invoices))
	for _, name := range slices.Sorted(maps.Keys(t.invoices)) {
		out = append(out, *t.invoices[name])
	}
	return out
}
