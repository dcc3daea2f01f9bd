// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strconv"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

// cell is the result for one number of sessions and tenants.
type cell struct {
	Sessions int    `json:"sessions"`
	Tenants  int    `json:"tenants"`
	Kept     string `json:"kept"`
	Tally    cost   `json:"tally"`
	Anew     cost   `json:"anew"`
	// StartMs is the time of the first statements of all tenants together.
	StartMs float64 `json:"startMs"`
	// ObjectsMiB is the memory of records and batches, and TalliesMiB the additional memory of the
	// tallies.
	ObjectsMiB float64 `json:"objectsMiB"`
	TalliesMiB float64 `json:"talliesMiB"`
	// PageMs is the time of the web's page of all tenants' amounts, BillMs of the bill of one tenant,
	// and BillsMs of the bills of all, which were that page before: computed and encoded, without the
	// API server's time to list them.
	PageMs  float64 `json:"pageMs"`
	BillMs  float64 `json:"billMs"`
	BillsMs float64 `json:"billsMs"`
	// Bytes is the bytes of JSON of a session in its record or in its batch.
	Bytes float64 `json:"bytesPerSession"`
}

// cost is the cost of one event: milliseconds of CPU time, including the garbage collector's, and the
// MiB allocated meanwhile. It is negative where nothing was measured.
type cost struct {
	Median float64 `json:"medianMs"`
	Worst  float64 `json:"worstMs"`
	MiB    float64 `json:"MiB"`
}

// tenant is the books of one tenant.
type tenant struct {
	account *v1alpha1.TenantAccount
	records []*v1alpha1.UsageRecord
	batches []*v1alpha1.UsageBatch
	tally   *accounting.Tally
}

const (
	namespace = "research"
	// lastRecords is the number of a tenant's sessions that are in no batch yet: that many go into one
	// together.
	lastRecords = 1000
	// inChunk is the number of sessions put into batches at once.
	inChunk = 20_000
)

var (
	month = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	now   = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	book  = &v1alpha1.PriceBook{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultPriceBook}, Spec: v1alpha1.PriceBookSpec{
		Currency: "USD", Mode: v1alpha1.AllUnits, DiscountScope: v1alpha1.ScopeSession,
		Prices:    []v1alpha1.Price{{Resource: "nvidia.com/gpu", PricePerHour: "2.0"}},
		Discounts: []v1alpha1.Discount{{ThresholdHours: "100", Multiplier: "0.9"}, {ThresholdHours: "500", Multiplier: "0.8"}},
	}}
)

// measure creates the sessions, and measures events of the tenants in turn.
func measure(o *options, sessions, tenants int, kept string) (*cell, error) {
	c := &cell{Sessions: sessions, Tenants: tenants, Kept: kept, Anew: cost{-1, -1, -1}}
	empty := heap()
	all := make([]*tenant, tenants)
	for i := range all {
		var err error
		if all[i], err = newTenant(i, sessions/tenants, kept); err != nil {
			return nil, err
		}
	}
	objects := heap()
	c.ObjectsMiB, c.Bytes = objects-empty, all[0].bytes()
	began := cpu()
	for _, t := range all {
		if err := t.begin(); err != nil {
			return nil, err
		}
	}
	c.StartMs = cpu() - began
	c.TalliesMiB = heap() - objects
	var err error
	if c.Tally, err = costOf(o.Events, func(i int) error { return all[i%tenants].event(i) }); err != nil {
		return nil, err
	}
	c.PageMs, err = page(all, (*tenant).summary)
	c.BillMs, c.BillsMs = -1, -1
	if err != nil || sessions/tenants > o.Anew {
		return c, err
	}
	if c.BillMs, err = page(all[:1], (*tenant).bill); err == nil && sessions <= o.Anew {
		c.BillsMs, err = page(all, (*tenant).bill)
	}
	if err != nil {
		return nil, err
	}
	c.Anew, err = costOf(min(o.Events, 1+200_000*tenants/sessions), func(i int) error { return all[i%tenants].anew() })
	return c, err
}

// costOf measures the cost of do over a number of calls.
func costOf(times int, do func(int) error) (cost, error) {
	var took report.Sample
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range times {
		began := cpu()
		if err := do(i); err != nil {
			return cost{}, err
		}
		took = append(took, cpu()-began)
	}
	runtime.ReadMemStats(&after)
	return cost{Median: took.Median(), Worst: took.Quantile(1), MiB: mib(after.TotalAlloc-before.TotalAlloc) / float64(times)}, nil
}

// cpu returns the CPU time of this process in milliseconds, which other processes influence little.
func cpu() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // it fails for no process
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e6
}

func mib(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

// heap returns the MiB of live objects.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return mib(m.HeapAlloc)
}

// newTenant creates a tenant with priced sessions, and two open ones.
func newTenant(number, sessions int, kept string) (*tenant, error) {
	t := &tenant{account: &v1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("tenant-%d", number), UID: types.UID(uuid(number, 0))}, Status: v1alpha1.TenantAccountStatus{
		Balance: "-1234.00", Billed: "1234.00", Accrued: "12.00", AsOf: new(metav1.NewTime(now)),
	}}}
	invoice := "inv-20261101-20261201-" + string(t.account.UID)
	batched := 0
	if kept == inBatches {
		batched = max(0, sessions-lastRecords)
	}
	var there []v1alpha1.UsageBatch
	for from := 0; from < batched; from += inChunk {
		var chunk []v1alpha1.UsageRecord
		for i := from; i < min(from+inChunk, batched); i++ {
			r := t.session(i)
			priced(r).Status.Invoice = invoice
			chunk = append(chunk, *r)
		}
		made, err := accounting.Batches(chunk, there)
		if err != nil {
			return nil, err
		}
		for i := range made {
			made[i].UID = types.UID(made[i].Name)
			t.batches = append(t.batches, &made[i])
			there = append(there, made[i])
		}
	}
	for i := batched; i < sessions; i++ {
		t.records = append(t.records, priced(t.session(i)))
	}
	for i := range 2 {
		r := t.session(sessions + i)
		r.Status = v1alpha1.UsageRecordStatus{}
		t.records = append(t.records, r)
	}
	return t, nil
}

// session returns an unpriced session of an hour that has ended.
func (t *tenant) session(i int) *v1alpha1.UsageRecord {
	uid := uuid(i, 1)
	end := metav1.NewTime(month.Add(time.Duration(i%2_000_000)*time.Second + time.Hour))
	return &v1alpha1.UsageRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: uid, UID: types.UID(uid)},
		Spec: v1alpha1.UsageRecordSpec{
			Tenant: t.account.Name, Namespace: namespace, Pool: "training", Queue: "research", Owner: "Job/sweep-" + strconv.Itoa(i/100), Pod: "sweep-" + strconv.Itoa(i),
			PodUID: types.UID(uid), Node: "gpu-node-" + strconv.Itoa(i%100), Resource: "nvidia.com/gpu", Model: []string{"H100-SXM5-80GB", "A100-SXM4-40GB"}[i%2],
			Quantity: "1", Start: metav1.NewTime(end.Add(-time.Hour)),
		},
		Status: v1alpha1.UsageRecordStatus{End: &end},
	}
}

// priced writes the price on a record, as the controller does.
func priced(r *v1alpha1.UsageRecord) *v1alpha1.UsageRecord {
	r.Status.UnitPrice, r.Status.BilledSeconds, r.Status.Cost = "2", 3600, "2.00"
	return r
}

func uuid(i, kind int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", kind, i) }

// bytes returns the size of a session's JSON.
func (t *tenant) bytes() float64 {
	if len(t.batches) > 0 {
		sessions := 0
		for g := range t.batches[0].Spec.Groups {
			sessions += len(t.batches[0].Spec.Groups[g].Sessions)
		}
		return size(t.batches[0]) / float64(sessions)
	}
	return size(t.records[0])
}

func size(o any) float64 {
	data, _ := json.Marshal(o) // it has texts and numbers only
	return float64(len(data))
}

// begin creates the tally and its first statement.
func (t *tenant) begin() error {
	t.tally = accounting.NewTally()
	for _, b := range t.batches {
		t.tally.SetBatch(b)
	}
	for _, r := range t.records {
		t.tally.SetRecord(r)
	}
	_, _, err := t.tally.Statement(t.books())
	return err
}

func (t *tenant) books() accounting.Books {
	return accounting.Books{Account: t.account, Prices: book, Now: now, Grace: 24 * time.Hour}
}

// event changes one of the last ended records, between unpriced and priced, and makes the statement.
func (t *tenant) event(i int) error {
	at := len(t.records) - 3 - i/2%10
	r := t.records[max(at, 0)].DeepCopy()
	if r.Status.UnitPrice == "" {
		priced(r)
	} else {
		r.Status = v1alpha1.UsageRecordStatus{End: r.Status.End}
	}
	t.records[max(at, 0)] = r
	t.tally.SetRecord(r)
	_, s, err := t.tally.Statement(t.books())
	if err == nil && len(s.Open) != 2 {
		err = fmt.Errorf("%d sessions go on, want 2", len(s.Open))
	}
	// The controller's further queries after an event: records that can go into a batch, and objects
	// that can be deleted.
	t.tally.Ready(book, time.Hour, now.AddDate(0, 0, -28))
	t.tally.Replaced()
	t.tally.Expired(90*24*time.Hour, now)
	return err
}

// page returns the CPU time of a web page with an item of each tenant.
func page(of []*tenant, item func(*tenant) (*accounting.Bill, error)) (float64, error) {
	began := cpu()
	var items []*accounting.Bill
	for _, t := range of {
		bill, err := item(t)
		if err != nil {
			return 0, err
		}
		items = append(items, bill)
	}
	_, err := json.Marshal(items)
	return cpu() - began, err
}

func (t *tenant) summary() (*accounting.Bill, error) {
	return accounting.SummaryOf(t.account, book), nil
}

func (t *tenant) bill() (*accounting.Bill, error) {
	books := t.all()
	return accounting.BillOf(&books)
}

// all returns the books with all objects.
func (t *tenant) all() accounting.Books {
	books := t.books()
	for _, r := range t.records {
		books.Records = append(books.Records, *r)
	}
	for _, b := range t.batches {
		books.Batches = append(books.Batches, *b)
	}
	return books
}

// anew makes the statement from all objects, and compares it with the tally's.
func (t *tenant) anew() error {
	books := t.all()
	s, err := books.Compute()
	if err != nil {
		return err
	}
	_, tallied, err := t.tally.Statement(t.books())
	if err != nil {
		return err
	}
	if !s.Balance.Equal(tallied.Balance) || !s.Accrued.Equal(tallied.Accrued) || len(s.Invoices) != len(tallied.Invoices) || s.Invoices[0].Total != tallied.Invoices[0].Total {
		return fmt.Errorf("%s: the balance is %s computed anew, and %s by the tally", t.account.Name, s.Balance, tallied.Balance)
	}
	return nil
}
