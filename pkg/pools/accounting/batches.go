// SPDX-License-Identifier: Apache-2.0

package accounting

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	// maxBatch is the most bytes of JSON of a batch's sessions: with its metadata it stays below 512
	// KiB, for which etcd uses three times as much.
	maxBatch = 448 << 10
	// maxInGroup is the most sessions, or groups, in one list of a batch.
	maxInGroup = 4096
)

// InBatches returns the records that batches replace.
func InBatches(batches []v1alpha1.UsageBatch) []v1alpha1.UsageRecord {
	var out []v1alpha1.UsageRecord
	for i := range batches {
		batch := &batches[i].Spec
		for g := range batch.Groups {
			for s := range batch.Groups[g].Sessions {
				out = append(out, recordOf(batch, &batch.Groups[g].UsageTerms, &batch.Groups[g].Sessions[s]))
			}
		}
	}
	return out
}

// InBatchOf returns the records of one pod that a batch replaces.
func InBatchOf(batch *v1alpha1.UsageBatch, pod types.UID) []v1alpha1.UsageRecord {
	var out []v1alpha1.UsageRecord
	for g := range batch.Spec.Groups {
		group := &batch.Spec.Groups[g]
		for s := range group.Sessions {
			if group.Sessions[s].PodUID == pod {
				out = append(out, recordOf(&batch.Spec, &group.UsageTerms, &group.Sessions[s]))
			}
		}
	}
	return out
}

func recordOf(batch *v1alpha1.UsageBatchSpec, t *v1alpha1.UsageTerms, s *v1alpha1.EndedSession) v1alpha1.UsageRecord {
	end := s.End
	return v1alpha1.UsageRecord{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.UsageRecordKind},
		ObjectMeta: metav1.ObjectMeta{
			Name: string(s.PodUID) + s.Record, Namespace: batch.Namespace,
			Labels: map[string]string{v1alpha1.LabelTenant: batch.Tenant, v1alpha1.LabelPool: t.Pool},
		},
		Spec: v1alpha1.UsageRecordSpec{
			Tenant: batch.Tenant, Namespace: batch.Namespace, Pool: t.Pool, Queue: t.Queue, Owner: t.Owner,
			Pod: s.Pod, PodUID: s.PodUID, Node: s.Node, Resource: t.Resource, Model: t.Model, Quantity: t.Quantity, Start: s.Start,
		},
		Status: v1alpha1.UsageRecordStatus{
			End: &end, Estimated: s.Estimated, UnitPrice: t.UnitPrice, BilledSeconds: s.Seconds, Cost: s.Cost, Invoice: batch.Invoice,
		},
	}
}

// batched calls do for each session in batches that has the name of one of the records, with the
// record's index. It is cheap for many sessions and few records.
func batched(records []v1alpha1.UsageRecord, batches []v1alpha1.UsageBatch, do func(i int, b *v1alpha1.UsageBatchSpec, t *v1alpha1.UsageTerms, s *v1alpha1.EndedSession)) {
	if len(records) == 0 || len(batches) == 0 {
		return
	}
	byName := make(map[string][]int, len(records))
	for i := range records {
		byName[records[i].Name] = append(byName[records[i].Name], i)
	}
	for i := range batches {
		for g := range batches[i].Spec.Groups {
			group := &batches[i].Spec.Groups[g]
			for k := range group.Sessions {
				for _, at := range byName[string(group.Sessions[k].PodUID)+group.Sessions[k].Record] {
					do(at, &batches[i].Spec, &group.UsageTerms, &group.Sessions[k])
				}
			}
		}
	}
}

// Unbatched returns the records whose session is in no batch. If a record exists in addition to its
// batch, since it has not been deleted yet or came back from a backup, the batch's session is used.
func Unbatched(records []v1alpha1.UsageRecord, batches []v1alpha1.UsageBatch) []v1alpha1.UsageRecord {
	in := map[int]bool{}
	batched(records, batches, func(i int, _ *v1alpha1.UsageBatchSpec, _ *v1alpha1.UsageTerms, _ *v1alpha1.EndedSession) {
		in[i] = true
	})
	if len(in) == 0 {
		return records
	}
	var out []v1alpha1.UsageRecord
	for i := range records {
		if !in[i] {
			out = append(out, records[i])
		}
	}
	return out
}

// Replaced returns the records that batches replace, each once.
func Replaced(records []v1alpha1.UsageRecord, batches []v1alpha1.UsageBatch) []v1alpha1.UsageRecord {
	var out []v1alpha1.UsageRecord
	in := map[int]bool{}
	batched(records, batches, func(i int, b *v1alpha1.UsageBatchSpec, t *v1alpha1.UsageTerms, s *v1alpha1.EndedSession) {
		if !in[i] && stands(recordOf(b, t, s), &records[i]) {
			in[i] = true
			out = append(out, records[i])
		}
	})
	return out
}

// stands reports whether a batch's record replaces a record of the same name: it is the same pod's hold
// of the same devices. A record that came back from a backup may lack its end, price and invoice.
func stands(batched v1alpha1.UsageRecord, r *v1alpha1.UsageRecord) bool {
	a, b := &batched.Spec, &r.Spec
	same := a.PodUID == b.PodUID && a.Pod == b.Pod && a.Tenant == b.Tenant
	return same && a.Resource == b.Resource && a.Quantity == b.Quantity && a.Start.Equal(&b.Start)
}

// NamespaceOf returns the namespace of a record's pod. Old records without the field, which were moved
// out of a deleted namespace, return the controller's namespace.
func NamespaceOf(r *v1alpha1.UsageRecord) string { return cmp.Or(r.Spec.Namespace, r.Namespace) }

// Batches returns the batches of records that have ended and are on an invoice. there are the existing
// batches. Order and names depend only on both arguments: two controllers at the same time make batches
// of the same names, of which the API server admits one.
func Batches(records []v1alpha1.UsageRecord, there []v1alpha1.UsageBatch) ([]v1alpha1.UsageBatch, error) {
	type key struct{ invoice, namespace, tenant string }
	sorted := slices.Clone(records)
	of := func(r *v1alpha1.UsageRecord) key { return key{r.Status.Invoice, NamespaceOf(r), r.Spec.Tenant} }
	slices.SortFunc(sorted, func(a, b v1alpha1.UsageRecord) int {
		ka, kb := of(&a), of(&b)
		return cmp.Or(cmp.Compare(ka.invoice, kb.invoice), cmp.Compare(ka.namespace, kb.namespace), cmp.Compare(ka.tenant, kb.tenant),
			a.Status.End.Compare(b.Status.End.Time), cmp.Compare(a.Name, b.Name))
	})
	numbers := lastNumbers(there)
	var out []v1alpha1.UsageBatch
	var filler *filler
	for i := range sorted {
		r, k := &sorted[i], of(&sorted[i])
		if filler == nil || !filler.takes(r) || k != (key{filler.batch.Spec.Invoice, filler.batch.Spec.Namespace, filler.batch.Spec.Tenant}) {
			if filler != nil {
				out = append(out, filler.batch)
			}
			prefix := batchPrefix(k.invoice, k.namespace)
			numbers[prefix]++
			filler = newFiller(prefix+strconv.Itoa(numbers[prefix]), v1alpha1.UsageBatchSpec{Tenant: k.tenant, Namespace: k.namespace, Invoice: k.invoice})
		}
		if err := filler.add(r); err != nil {
			return nil, err
		}
	}
	if filler != nil {
		out = append(out, filler.batch)
	}
	return out, nil
}

// batchPrefix is the part before the number in the names of an invoice's batches of a namespace.
func batchPrefix(invoice, namespace string) string { return invoice + "." + namespace + "." }

// lastNumbers returns the highest number of the batches of each prefix.
func lastNumbers(there []v1alpha1.UsageBatch) map[string]int {
	last := map[string]int{}
	for i := range there {
		prefix := batchPrefix(there[i].Spec.Invoice, there[i].Spec.Namespace)
		if text, ok := strings.CutPrefix(there[i].Name, prefix); ok {
			if n, err := strconv.Atoi(text); err == nil {
				last[prefix] = max(last[prefix], n)
			}
		}
	}
	return last
}

// filler fills a batch until it has no room.
type filler struct {
	batch  v1alpha1.UsageBatch
	groups map[v1alpha1.UsageTerms]int // index of each group in the batch
	size   int
}

func newFiller(name string, spec v1alpha1.UsageBatchSpec) *filler {
	return &filler{
		groups: map[v1alpha1.UsageTerms]int{},
		batch: v1alpha1.UsageBatch{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{v1alpha1.LabelTenant: spec.Tenant}, Finalizers: []string{names.FinalizerBilling},
			},
			Spec: spec,
		},
	}
}

// aSession is an upper bound on the bytes of JSON of a session and its group, without their texts.
const aSession = 512

// takes reports whether the batch has room for a record.
func (f *filler) takes(r *v1alpha1.UsageRecord) bool {
	text := len(r.Name) + len(r.Spec.Pod) + len(r.Spec.Node) + len(r.Spec.Queue) + len(r.Spec.Owner) + len(r.Spec.Resource) + len(r.Spec.Model)
	at, known := f.groups[termsOf(r)]
	full := known && len(f.batch.Spec.Groups[at].Sessions) == maxInGroup || !known && len(f.groups) == maxInGroup
	return !full && f.size+aSession+text <= maxBatch
}

func (f *filler) add(r *v1alpha1.UsageRecord) error {
	suffix, ok := strings.CutPrefix(r.Name, string(r.Spec.PodUID))
	if !ok {
		return fmt.Errorf("record %s/%s: its name does not begin with spec.podUID", r.Namespace, r.Name)
	}
	terms := termsOf(r)
	at, known := f.groups[terms]
	if !known {
		at = len(f.batch.Spec.Groups)
		f.groups[terms] = at
		f.batch.Spec.Groups = append(f.batch.Spec.Groups, v1alpha1.UsageGroup{UsageTerms: terms})
		f.size += jsonSize(terms)
	}
	s := v1alpha1.EndedSession{
		Pod: r.Spec.Pod, PodUID: r.Spec.PodUID, Record: suffix, Node: r.Spec.Node, Start: r.Spec.Start, End: *r.Status.End,
		Estimated: r.Status.Estimated, Seconds: r.Status.BilledSeconds, Cost: r.Status.Cost,
	}
	f.batch.Spec.Groups[at].Sessions = append(f.batch.Spec.Groups[at].Sessions, s)
	f.size += jsonSize(s)
	return nil
}

func termsOf(r *v1alpha1.UsageRecord) v1alpha1.UsageTerms {
	return v1alpha1.UsageTerms{
		Pool: r.Spec.Pool, Queue: r.Spec.Queue, Owner: r.Spec.Owner, Resource: r.Spec.Resource, Model: r.Spec.Model,
		Quantity: r.Spec.Quantity, UnitPrice: r.Status.UnitPrice,
	}
}

func jsonSize(v any) int {
	data, _ := json.Marshal(v) // it has texts and numbers only
	return len(data) + len(`,"sessions":[]`)
}

// BatchSize returns the bytes of JSON of a batch's sessions, for reports.
func BatchSize(b *v1alpha1.UsageBatch) int { return jsonSize(b.Spec) }

// aRecord is the bytes of etcd that a UsageRecord takes without its texts, including managedFields.
const aRecord = 1200

// StoredBytes estimates the bytes of etcd that records and batches take.
func StoredBytes(records []v1alpha1.UsageRecord, batches []v1alpha1.UsageBatch) int64 {
	var bytes int
	for i := range records {
		r := &records[i]
		bytes += aRecord + 2*len(r.Name) + len(r.Namespace) + len(r.Spec.Pod) + len(r.Spec.Node) + len(r.Spec.Resource) + len(r.Spec.Model) +
			len(r.Spec.Queue) + len(r.Spec.Owner) + len(r.Status.Invoice)
	}
	for i := range batches {
		bytes += aSession
		for g := range batches[i].Spec.Groups {
			group := &batches[i].Spec.Groups[g]
			bytes += aGroup + len(group.Resource) + len(group.Model) + len(group.Queue) + len(group.Owner)
			for s := range group.Sessions {
				bytes += anEntry + len(group.Sessions[s].Pod) + len(group.Sessions[s].PodUID) + len(group.Sessions[s].Node)
			}
		}
	}
	return int64(bytes)
}

// aGroup and anEntry are the bytes that a group and a session of a batch take without their texts.
const (
	aGroup  = 100
	anEntry = 135
)

// Ready returns the records whose session can go into a batch now: it ended at least after ago, and its
// cost and invoice change no more. The invoice may still be open where each session has its own
// discount; a discount over the month is known only once the invoice is final. unmarked are the records
// that only lack their invoice.
func (b *Books) Ready(after time.Duration) (ready, unmarked []v1alpha1.UsageRecord) {
	if after <= 0 {
		return nil, nil
	}
	final := map[string]bool{}
	for i := range b.Invoices {
		final[b.Invoices[i].Name] = b.Invoices[i].Spec.Finalized
	}
	alone := b.Prices != nil && b.Prices.Spec.DiscountScope != v1alpha1.ScopeBillingPeriod
	for _, r := range Unbatched(b.Records, b.AllBatches()) {
		if r.Spec.Tenant != b.Account.Name || r.Status.End == nil || r.Status.End.Add(after).After(b.Now) {
			continue
		}
		switch priced := r.Status.UnitPrice != "" && alone; {
		case r.Status.Invoice != "" && (priced || final[r.Status.Invoice]):
			ready = append(ready, r)
		case r.Status.Invoice == "" && priced:
			unmarked = append(unmarked, r)
		}
	}
	return Distinct(ready), Distinct(unmarked)
}
