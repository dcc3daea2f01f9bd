// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

func at(second int) time.Time { return time.Unix(1_800_000_000+int64(second), 0) }

func TestProtect(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		capacity int64
		change   func([]Share)
		requests []Request
		want     []string
		wantPins []int64
	}{
		"within the guarantee": {
			capacity: 56, requests: []Request{{Job: "x", Share: "a", Devices: 16}}, want: []string{"x"}, wantPins: []int64{16, 0, 0},
		},
		"above it, from what is nobody's": {
			capacity: 56, requests: []Request{{Job: "x", Share: "c", Devices: 16}}, want: []string{"x"}, wantPins: []int64{0, 0, 16},
		},
		"never above the limit": {
			capacity: 56, change: func(s []Share) { s[2].Pinned = 9 }, requests: []Request{{Job: "x", Share: "c", Devices: 8}}, wantPins: []int64{0, 0, 9},
		},
		"never above what may be protected": {
			capacity: 56, change: func(s []Share) { s[0].Protected = 16 }, requests: []Request{{Job: "x", Share: "a", Devices: 17}}, wantPins: []int64{0, 0, 0},
		},
		"up to what may be protected": {
			capacity: 56, change: func(s []Share) { s[0].Protected, s[0].Pinned = 16, 12 },
			requests: []Request{{Job: "x", Share: "a", Devices: 5}, {Job: "y", Share: "a", Devices: 4}}, want: []string{"y"}, wantPins: []int64{16, 0, 0},
		},
		"never from what others are guaranteed, though it is idle": {
			capacity: 30, requests: []Request{{Job: "x", Share: "c", Devices: 7}}, wantPins: []int64{0, 0, 0},
		},
		"the most important first, then the oldest": {
			capacity: 32, requests: []Request{
				{Job: "late", Share: "c", Devices: 8, Since: at(2)},
				{Job: "early", Share: "c", Devices: 8, Since: at(1)},
				{Job: "urgent", Share: "a", Devices: 17, Priority: 5, Since: at(3)},
			}, want: []string{"urgent"}, wantPins: []int64{17, 0, 0},
		},
		"a small one goes where a great one before it could not": {
			capacity: 32, requests: []Request{{Job: "great", Share: "c", Devices: 12, Since: at(1)}, {Job: "small", Share: "c", Devices: 8, Since: at(2)}},
			want: []string{"small"}, wantPins: []int64{0, 0, 8},
		},
		"none while nodes are lost": {
			capacity: 20, requests: []Request{{Job: "x", Share: "a", Devices: 1}}, wantPins: []int64{0, 0, 0},
		},
		"a job of a tenant without quota": {
			capacity: 56, requests: []Request{{Job: "x", Share: "nobody", Devices: 1}}, wantPins: []int64{0, 0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shares := threeTenants()
			if tc.change != nil {
				tc.change(shares)
			}
			granted, pinned := Protect(tc.capacity, shares, tc.requests)
			var pins []int64
			for _, s := range pinned {
				pins = append(pins, s.Pinned)
			}
			if diff := gocmp.Diff(tc.want, granted); diff != "" {
				t.Errorf("granted (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(tc.wantPins, pins); diff != "" {
				t.Errorf("pinned (-want +got):\n%s", diff)
			}
		})
	}
}

// TestProtectBruteForce: protection follows the rule. Each request, in order, is granted exactly if
// a division with it keeps within its limit and promises no more than the capacity.
func TestProtectBruteForce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(17, 3))
	for range 5000 {
		capacity, shares := randomPool(r)
		var requests []Request
		for i := range r.IntN(8) {
			requests = append(requests, Request{
				Job: fmt.Sprint("job-", i), Share: strconv.Itoa(r.IntN(6)), Devices: 1 + r.Int64N(12), Priority: r.Int64N(3), Since: at(r.IntN(3)),
			})
		}
		granted, pinned := Protect(capacity, shares, requests)
		want, wantPinned := protectSlowly(capacity, shares, requests)
		if diff := gocmp.Diff(want, granted); diff != "" {
			t.Fatalf("%d devices, shares %+v, requests %+v: granted (-want +got):\n%s", capacity, shares, requests, diff)
		}
		if diff := gocmp.Diff(wantPinned, pinned); diff != "" {
			t.Fatalf("pinned (-want +got):\n%s", diff)
		}
	}
}

// protectSlowly makes a new division for each request.
func protectSlowly(capacity int64, shares []Share, requests []Request) (granted []string, pinned []Share) {
	pinned, requests = slices.Clone(shares), slices.Clone(requests)
	slices.SortFunc(requests, func(a, b Request) int {
		return cmp.Or(-cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Since.UnixNano(), b.Since.UnixNano()), cmp.Compare(a.Job, b.Job))
	})
	for _, r := range requests {
		for i := range pinned {
			with := slices.Clone(pinned)
			with[i].Pinned += r.Devices
			d := Divide(capacity, with)
			if with[i].Name == r.Share && d.Short == 0 && d.Queues[i].Borrowing >= 0 && with[i].Pinned <= with[i].Protected {
				pinned, granted = with, append(granted, r.Job)
				break
			}
		}
	}
	return granted, pinned
}

// TestJudge: a refused request has one reason, with the deciding numbers.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		capacity int64
		change   func([]Share)
		request  Request
		want     Verdict
	}{
		"there is room":     {capacity: 56, request: Request{Share: "a", Devices: 20}, want: Verdict{Most: 32, More: 4, Free: 32}},
		"it is of no share": {capacity: 56, request: Request{Share: "x", Devices: 1}, want: Verdict{Reason: NoShare}},
		"alone it is more than may be": {
			capacity: 56, change: func(s []Share) { s[2].Protected = 8 }, request: Request{Share: "c", Devices: 9},
			want: Verdict{Reason: NeverFits, Most: 8, More: 9, Free: 32},
		},
		"with others it is": {
			capacity: 56, change: func(s []Share) { s[2].Protected, s[2].Pinned = 8, 4 }, request: Request{Share: "c", Devices: 5},
			want: Verdict{Reason: AtLimit, Most: 8, Pinned: 4, More: 5, Free: 28},
		},
		"others are guaranteed what it needs": {
			capacity: 30, request: Request{Share: "c", Devices: 7}, want: Verdict{Reason: OthersGuaranteed, Most: 16, More: 7, Free: 6},
		},
		"less is there than is guaranteed": {
			capacity: 20, request: Request{Share: "a", Devices: 1}, want: Verdict{Reason: OthersGuaranteed, Most: 32, Free: -4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shares := threeTenants()
			if tc.change != nil {
				tc.change(shares)
			}
			if diff := gocmp.Diff(tc.want, Judge(tc.capacity, shares, tc.request)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
