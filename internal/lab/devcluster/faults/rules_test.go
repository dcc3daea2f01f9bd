// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"testing"
	"time"
)

// TestDecisionSeed: decisions follow from the seed. The n-th request of a kind meets the same fault
// whatever else was asked, another seed gives others, and a rule that is switched off changes
// nothing about the rest.
func TestDecisionSeed(t *testing.T) {
	rules := []Rule{
		{Kind: Slow, On: Writes, Share: 0.3, AtMost: time.Second},
		{Kind: Conflict, On: Writes, Share: 0.1},
		{Kind: Lost, On: Writes, Share: 0.2},
		{Kind: Refused, On: Reads, Share: 0.5},
	}
	bind := &request{traffic: Writes, verb: "create", resource: "pods", subresource: "binding"}
	patch := &request{traffic: Writes, verb: "patch", resource: "pods"}
	const n = 10_000
	count := map[Kind]int{}
	differ, other := 0, 0
	without := append([]Rule{}, rules...)
	without[1].Share = 0
	for i := range uint64(n) {
		v := decide(7, rules, bind, i)
		if v != decide(7, rules, bind, i) {
			t.Fatalf("request %d is decided on in two ways", i)
		}
		count[v.kind]++
		if v != decide(8, rules, bind, i) {
			differ++
		}
		if v != decide(7, rules, patch, i) {
			other++
		}
		if w := decide(7, without, bind, i); v.kind != Conflict && w != v {
			t.Fatalf("request %d: without conflicts %+v becomes %+v", i, v, w)
		}
	}
	if differ < n/2 || other < n/2 {
		t.Errorf("another seed decides otherwise on %d of %d requests, another kind of request on %d", differ, n, other)
	}
	// Conflict comes first, so that a lost answer is 0.2 of the rest.
	for kind, share := range map[Kind]float64{Conflict: 0.1, Lost: 0.18, Refused: 0, "": 0.72} {
		if got := float64(count[kind]) / n; got < share-0.02 || got > share+0.02 {
			t.Errorf("%q happens to %.3f of the requests, want %.2f", kind, got, share)
		}
	}
}
