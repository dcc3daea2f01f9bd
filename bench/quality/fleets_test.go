// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestJudgedRun: a short run judges all policies and orders on a fleet, at equal completion.
func TestJudgedRun(t *testing.T) {
	o := short(t, "-unequal", "-clusters", "dgx2+h200+l40s,gb200+l40s")
	o.loads = o.loads[:1]
	r, err := measure(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 4 {
		t.Errorf("%d cells, want 4: two fleets, with equal runs and with runs by placement", len(r.Cells))
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		if want := 6 + len(otherOrders()); len(c.Policies) != want {
			t.Errorf("%s: %d policies, want %d", c.String(), len(c.Policies), want)
		}
		for _, p := range c.Policies {
			pods := p.Fields["judged.bySize.1.pods"].Mean
			if first := c.Policies[0].Fields["judged.bySize.1.pods"].Mean; pods == 0 || pods != first || p.Fields[fieldUnfinished].Mean != 0 {
				t.Errorf("%s, %s: %v pods of one GPU judged and %v never ran; want %v and 0", c.String(), p.Policy, pods, p.Fields[fieldUnfinished].Mean, first)
			}
			if v := p.Fields[fieldAllReduce].Mean; !(v > 0) {
				t.Errorf("%s, %s: all-reduce of %v ms", c.String(), p.Policy, v)
			}
		}
	}
	var b bytes.Buffer
	if err := writeJudged(&b, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"runs by placement", "reserve+exact", "wait of 8, s", "ours:reserve=1"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}
