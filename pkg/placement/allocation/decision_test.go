// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func decision(candidates int, name string) *Decision {
	d := &Decision{
		Version: DecisionVersion, Node: name + "0", At: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC), Band: 1, BestRing: 300_000_000,
		Scored: 40, Refused: map[string]int{"FewGPUs": 12, "StaleGraph": 1, "KubeletRefuses": 3},
	}
	for i := range candidates {
		d.Candidates = append(d.Candidates, Candidate{Node: fmt.Sprint(name, i), Ring: 225_000_000, Terms: &Terms{1000, 1000, 870 - i}, Score: 9610 - i})
	}
	return d
}

// TestDecisionRoundTrip: a record of a decision is read back equal to the written one.
func TestDecisionRoundTrip(t *testing.T) {
	want := decision(3, "gpu-node-")
	want.Millis, want.Left = 10, &Left{Node: "gpu-node-7", Model: "NVIDIA-H200", Millis: 3.5, PodsOf: 8}
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes: %s", len(text), text)
	got, err := ParseDecision(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	if a := (&Allocation{Node: want.Node, Assumed: want.At.Add(300 * time.Millisecond)}); !got.Of(a) {
		t.Error("it is not of the choice of the same second")
	}
	for name, a := range map[string]*Allocation{
		"another node": {Node: "gpu-node-1", Assumed: want.At}, "an earlier choice": {Node: want.Node, Assumed: want.At.Add(-time.Second)},
	} {
		if got.Of(a) {
			t.Errorf("it is said to be of %s", name)
		}
	}
}

// TestDecisionBounds: a record of a decision is bounded.
func TestDecisionBounds(t *testing.T) {
	long := strings.Repeat("n", 251)
	left := func(d *Decision, node string) *Decision {
		d.Left = &Left{Node: node, Model: "NVIDIA-H200", Millis: 3.5, PodsOf: 8}
		return d
	}
	for name, tc := range map[string]struct {
		of             *Decision
		wantCandidates int
		wantReasons    int
		wantLeft       bool
	}{
		"three nodes of names as they are":                   {decision(3, "gpu-node-"), 3, 3, false},
		"and one that was left to larger pods":               {left(decision(3, "gpu-node-"), "gpu-node-7"), 3, 3, true},
		"long names push out all but the chosen":             {decision(4, strings.Repeat("n", 120)), 1, 3, false},
		"and the reasons of refusals before what was left":   {left(decision(4, strings.Repeat("n", 80)), strings.Repeat("n", 120)), 1, 2, true},
		"of names of the greatest length only the choice is": {left(decision(2, long), long), 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := tc.of.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > MaxDecisionBytes {
				t.Errorf("%d bytes, at most %d", len(text), MaxDecisionBytes)
			}
			got, err := ParseDecision(text)
			if err != nil {
				t.Fatal(err)
			}
			if got.Node != tc.of.Node || len(got.Candidates) != tc.wantCandidates || len(got.Refused) != tc.wantReasons {
				t.Errorf("node %s, %d candidates, reasons %v; want %s, %d, %d", got.Node, len(got.Candidates), got.Refused, tc.of.Node, tc.wantCandidates, tc.wantReasons)
			}
			if (got.Left != nil) != tc.wantLeft {
				t.Errorf("left is %+v, want one: %t", got.Left, tc.wantLeft)
			}
		})
	}
}

// TestMalformedDecisions: text that is no record of a decision is refused.
func TestMalformedDecisions(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"no JSON":                  {`{`, "unexpected end"},
		"a later version":          {`{"v":2,"node":7}`, ErrNewerVersion.Error()},
		"no version":               {`{"node":"n"}`, "version 0, want 1"},
		"no node":                  {`{"v":1}`, "node is empty"},
		"a band below 0":           {`{"v":1,"node":"n","band":-1}`, "below 0"},
		"a candidate without name": {`{"v":1,"node":"n","c":[{"r":1}]}`, "c[0]"},
		"one left without a name":  {`{"v":1,"node":"n","left":{"ms":3,"of":8}}`, "left: node is empty"},
		"a time below 0":           {`{"v":1,"node":"n","left":{"n":"m","ms":-3,"of":8}}`, "below 0"},
		"a reason of no node":      {`{"v":1,"node":"n","no":{"FewGPUs":0}}`, "0 nodes"},
		"too long":                 {`{"v":1,"node":"` + strings.Repeat("n", 5000) + `"}`, "at most 4096"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := ParseDecision(tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%+v, error %v, want %q", d, err, tc.want)
			}
			if name == "a later version" && !errors.Is(err, ErrNewerVersion) {
				t.Errorf("%v is no ErrNewerVersion", err)
			}
		})
	}
}

// FuzzDecision: a record that was read can be written within the limit, and is then read again.
func FuzzDecision(f *testing.F) {
	for _, n := range []int{0, 1, 4} {
		text, err := decision(n, "node-").Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add(`{"v":1,"node":"n","at":"2026-11-24T12:00:00.5+01:00","c":[{"n":"n","t":[1,2,3,4]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		d, err := ParseDecision(text)
		if err != nil {
			return
		}
		short, err := d.Encode()
		if err != nil {
			return // a node name that no node has
		}
		again, err := ParseDecision(short)
		if err != nil || len(short) > MaxDecisionBytes || again.Node != strings.ToValidUTF8(d.Node, "\uFFFD") {
			t.Errorf("%q is written as %q (%d bytes): %v", text, short, len(short), err)
		}
	})
}
