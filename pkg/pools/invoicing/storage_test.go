// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

func TestStorageAddsUpTenants(t *testing.T) {
	s := newStorage(100)
	for _, tc := range []struct {
		tenant string
		bytes  int64
		want   int64
	}{{"a", 10, 10}, {"b", 20, 30}, {"a", 5, 25}, {"b", 0, 5}, {"b", 0, 5}, {"a", 7, 7}} {
		if got := s.set(tc.tenant, tc.bytes); got != tc.want {
			t.Errorf("%s has %d: all have %d, want %d", tc.tenant, tc.bytes, got, tc.want)
		}
	}
}

// TestAccountSaysThatStorageIsFull: an account reports that the records of all tenants reached their
// limit, and when they are below it again.
func TestAccountSaysThatStorageIsFull(t *testing.T) {
	m, err := newMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	account := &v1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	full := "UsageStorageFull=True AboveLimit: UsageRecords and UsageBatches of all tenants take 5Mi of 4Mi, those of this tenant 1Mi. "
	for name, tc := range map[string]struct {
		limit, others int64
		before        []metav1.Condition
		want          string
	}{
		"below":                    {limit: 4 << 20, others: 1 << 20},
		"above":                    {limit: 4 << 20, others: 4 << 20, want: full},
		"no limit":                 {others: 1 << 40},
		"below, and it was above":  {limit: 4 << 20, before: []metav1.Condition{{Type: v1alpha1.ConditionUsageStorageFull, Status: metav1.ConditionTrue}}, want: "UsageStorageFull=False BelowLimit: "},
		"no limit any more either": {others: 1 << 40, before: []metav1.Condition{{Type: v1alpha1.ConditionUsageStorageFull, Status: metav1.ConditionTrue}}, want: "UsageStorageFull=False BelowLimit: "},
	} {
		t.Run(name, func(t *testing.T) {
			r := &reconciler{clock: clocktesting.NewFakePassiveClock(time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC)), metrics: m, storage: newStorage(tc.limit)}
			r.storage.set("others", tc.others)
			status := &v1alpha1.TenantAccountStatus{Conditions: tc.before}
			r.setStored(status, account, 1300)
			got := strings.Join(said(status), "\n")
			if (got == "") != (tc.want == "") || !strings.HasPrefix(got, tc.want) {
				t.Errorf("it says %q, want %q", got, tc.want)
			}
		})
	}
}

// TestStorageStaysFullAtAStart: the condition does not change because of a new controller that has
// billed one tenant of several.
func TestStorageStaysFullAtAStart(t *testing.T) {
	for name, tc := range map[string]struct {
		limit int64
		want  metav1.ConditionStatus
	}{
		"the other tenant's sessions fill it": {4 << 20, metav1.ConditionTrue},
		"it was raised meanwhile":             {1 << 30, metav1.ConditionFalse},
	} {
		t.Run(name, func(t *testing.T) {
			account := &v1alpha1.TenantAccount{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "account"}}
			account.Status.Conditions = []metav1.Condition{{
				Type: v1alpha1.ConditionUsageStorageFull, Status: metav1.ConditionTrue, Reason: reasonAboveLimit, LastTransitionTime: metav1.NewTime(day(12, 1)),
			}}
			e := newTestEnv(t, account)
			for i := range 4000 {
				r := sold(uuidOf(i), 1)
				r.Spec.Tenant = "team-b"
				if err := e.Create(t.Context(), &r); err != nil {
					t.Fatal(err)
				}
			}
			e.r.storage = newStorage(tc.limit)
			e.look(t, 1)
			c := meta.FindStatusCondition(e.account(t).Status.Conditions, v1alpha1.ConditionUsageStorageFull)
			if c == nil || c.Status != tc.want {
				t.Errorf("after the first look the condition is %+v, want %s", c, tc.want)
			}
		})
	}
}

// TestStoredBytesAreNearTheTruth: the estimate is near to the size in etcd: the JSON of objects with the
// fields that the API server adds.
func TestStoredBytesAreNearTheTruth(t *testing.T) {
	records := make([]v1alpha1.UsageRecord, 0, 1000)
	for i := range cap(records) {
		name := uuidOf(i)
		r := sold(name, 1)
		r.Spec.Pod = "sweep-7-" + name[:5]
		records = append(records, r)
	}
	batches, err := accounting.Batches(records, nil)
	if err != nil {
		t.Fatal(err)
	}
	stored := 0
	for i := range batches {
		data, err := json.Marshal(&batches[i])
		if err != nil {
			t.Fatal(err)
		}
		stored += len(data)
	}
	inBatches, inRecords := accounting.StoredBytes(nil, batches), accounting.StoredBytes(records, nil)
	if got := float64(inBatches) / float64(stored); got < 0.8 || got > 1.2 {
		t.Errorf("%d bytes are counted of %d in batches", inBatches, stored)
	}
	if inBatches*4 > inRecords {
		t.Errorf("a session takes %d bytes in a batch and %d in a record", inBatches/1000, inRecords/1000)
	}
	t.Logf("a session takes %d bytes in a batch (counted as %d), and is counted as %d in a record", stored/1000, inBatches/1000, inRecords/1000)
}

func uuidOf(i int) string {
	const digits = "0123456789abcdef"
	b := []byte("00000000-0000-4000-8000-000000000000")
	for at := len(b) - 1; i > 0; at, i = at-1, i/16 {
		b[at] = digits[i%16]
	}
	return string(b)
}
