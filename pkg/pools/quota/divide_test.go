// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTenantCapacity(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		capacity Capacity
		want     int64
	}{
		"all is there":                          {capacity: Capacity{Total: 64, Healthy: 64, Reserved: 8}, want: 56},
		"a node of 8 takes no pods":             {capacity: Capacity{Total: 64, Healthy: 56, Reserved: 8}, want: 48},
		"more is there than the owner says":     {capacity: Capacity{Total: 64, Healthy: 80, Reserved: 8}, want: 56},
		"pods of no tenant hold some":           {capacity: Capacity{Total: 64, Healthy: 64, Reserved: 8, Foreign: 6}, want: 50},
		"less is there than is reserved":        {capacity: Capacity{Total: 64, Healthy: 4, Reserved: 8}, want: 0},
		"no node is there and all is in demand": {capacity: Capacity{Total: 64, Reserved: 8, Foreign: 3}, want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.capacity.ForTenants(); got != tc.want {
				t.Errorf("%+v: %d devices for tenants, want %d", tc.capacity, got, tc.want)
			}
		})
	}
}

// threeTenants returns the shares of the acceptance scenarios: a pool of 64 GPUs with 8 reserved.
func threeTenants() []Share {
	return []Share{
		{Name: "a", Guaranteed: 16, Limit: 32, Protected: 32, Weight: 1},
		{Name: "b", Guaranteed: 8, Limit: 24, Protected: 24, Weight: 1},
		{Name: "c", Limit: 16, Protected: 16, Weight: 1},
	}
}

func TestDivide(t *testing.T) {
	t.Parallel()
	zero := int64(0)
	for name, tc := range map[string]struct {
		capacity int64
		change   func([]Share)
		want     Division
	}{
		"what is nobody's is the cohort's": {
			capacity: 56,
			want: Division{Cohort: 32, Queues: []Queue{
				{Name: "a", Nominal: 16, Borrowing: 16, Weight: 1}, {Name: "b", Nominal: 8, Borrowing: 16, Weight: 1}, {Name: "c", Borrowing: 16, Weight: 1},
			}},
		},
		"protected jobs above the guarantee take from the cohort, and the limit stays": {
			capacity: 56, change: func(s []Share) { s[0].Pinned, s[1].Pinned = 24, 4 },
			want: Division{Cohort: 24, Queues: []Queue{
				{Name: "a", Nominal: 24, Borrowing: 8, Weight: 1}, {Name: "b", Nominal: 8, Borrowing: 16, Weight: 1}, {Name: "c", Borrowing: 16, Weight: 1},
			}},
		},
		"a share that is not lent": {
			capacity: 56, change: func(s []Share) { s[1].Keep = true },
			want: Division{Cohort: 32, Queues: []Queue{
				{Name: "a", Nominal: 16, Borrowing: 16, Weight: 1}, {Name: "b", Nominal: 8, Borrowing: 16, Lending: &zero, Weight: 1}, {Name: "c", Borrowing: 16, Weight: 1},
			}},
		},
		"fewer devices than are guaranteed": {
			capacity: 20,
			want: Division{Short: 4, Queues: []Queue{
				{Name: "a", Nominal: 16, Borrowing: 16, Weight: 1}, {Name: "b", Nominal: 8, Borrowing: 16, Weight: 1}, {Name: "c", Borrowing: 16, Weight: 1},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shares := threeTenants()
			if tc.change != nil {
				tc.change(shares)
			}
			if diff := cmp.Diff(tc.want, Divide(tc.capacity, shares)); diff != "" {
				t.Errorf("division of %d (-want +got):\n%s", tc.capacity, diff)
			}
		})
	}
}

// TestRandomDivisions: divisions of random pools are sound. Nothing is lost or created, for any
// promises.
func TestRandomDivisions(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(17, 1))
	for range 5000 {
		capacity, shares := randomPool(r)
		d := Divide(capacity, shares)
		sum := d.Cohort - d.Short
		for i, q := range d.Queues {
			sum += q.Nominal
			if s := shares[i]; q.Borrowing < 0 || q.Nominal+q.Borrowing != s.Limit || q.Nominal < s.Guaranteed || q.Nominal < s.Pinned {
				t.Fatalf("queue %+v of share %+v", q, s)
			}
		}
		if sum != capacity || d.Cohort < 0 || d.Short < 0 || d.Cohort > 0 && d.Short > 0 {
			t.Fatalf("%d devices divided as %+v: that is %d", capacity, d, sum)
		}
	}
}

// randomPool returns shares whose promises may exceed the capacity.
func randomPool(r *rand.Rand) (int64, []Share) {
	shares := make([]Share, r.IntN(6))
	for i := range shares {
		limit := r.Int64N(40)
		shares[i] = Share{
			Name: strconv.Itoa(i), Limit: limit, Guaranteed: r.Int64N(limit + 1), Pinned: r.Int64N(limit + 1),
			Protected: r.Int64N(limit + 1), Weight: r.Int64N(4), Keep: r.IntN(4) == 0,
		}
	}
	return r.Int64N(100), shares
}
