// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestStateRoundTrip: the state is written and read strictly.
func TestStateRoundTrip(t *testing.T) {
	const golden = `{"attempt":3,"whole":false}`
	s := State{Attempt: 3}
	if got := s.Encode(); got != golden {
		t.Errorf("%s, want %s", got, golden)
	}
	if got, err := ParseState(golden); err != nil || got != s {
		t.Errorf("%+v, %v, want %+v", got, err, s)
	}
	if got, ok := StateOf(podGroup(2, texts{StateKey: golden})); !ok || got != s {
		t.Errorf("%+v, %t, want %+v", got, ok, s)
	}
	for name, bad := range map[string]string{
		"nothing":            "",
		"no object":          "3",
		"null":               "null",
		"an empty object":    "{}",
		"no attempt":         `{"attempt":0,"whole":false}`,
		"an attempt below 0": `{"attempt":-1,"whole":false}`,
		"half of it":         `{"attempt":3}`,
		"another order":      `{"whole":false,"attempt":3}`,
		"said twice":         `{"attempt":3,"whole":true,"whole":false}`,
		"other letters":      `{"attempt":3,"Whole":false}`,
		"blanks":             `{"attempt": 3,"whole":false}`,
		"a later release's":  `{"attempt":3,"whole":false,"of":4}`,
		"text after it":      golden + "x",
		"another type":       `{"attempt":3,"whole":0}`,
		"more than is read":  `{"attempt":3,"whole":false` + strings.Repeat(" ", maxInput) + "}",
	} {
		t.Run(name, func(t *testing.T) {
			if s, err := ParseState(bad); err == nil || s != (State{}) || !strings.Contains(err.Error(), StateKey) {
				t.Errorf("%+v, %v of %q, want an error that names the key", s, err, bad)
			}
			if _, ok := StateOf(podGroup(2, texts{StateKey: bad})); ok {
				t.Errorf("%q counts", bad)
			}
		})
	}
	if _, ok := StateOf(nil); ok {
		t.Error("no group has a state")
	}
}

func samplePlacement() *Placement {
	return &Placement{
		Level: "spine", Domains: map[string][]string{"spine": {"spine-0"}, "rack": {"rack-0", "rack-1"}},
		Fewest: map[string]int{"spine": 1, "rack": 2}, Quality: "acceptable (adjacent racks)",
		Estimate:     Estimate{Ring: 2.9296875, Tree: 5.859375, Other: Millis(math.Inf(1)), Hierarchical: 33.5},
		MessageBytes: 1e9,
		Crossings:    2, Exact: true,
	}
}

// TestPlacementRoundTrip: the placement is written and read.
func TestPlacementRoundTrip(t *testing.T) {
	const golden = `{"level":"spine","domains":{"rack":["rack-0","rack-1"],"spine":["spine-0"]},"fewest":{"rack":2,"spine":1},` +
		`"quality":"acceptable (adjacent racks)","estimateMs":{"ring":2.9296875,"tree":5.859375,"other":null,"hierarchical":33.5},"messageBytes":1000000000,"crossings":2,"exact":true}`
	got, err := samplePlacement().Encode()
	if err != nil || got != golden {
		t.Errorf("%s, %v, want\n%s", got, err, golden)
	}
	again, err := ParsePlacement(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(samplePlacement(), again); diff != "" {
		t.Errorf("(-want,+got)\n%s", diff)
	}
	if p, err := ParsePlacement(strings.Replace(golden, `"level"`, `"later":1,"level"`, 1)); err != nil || p.Level != "spine" {
		t.Errorf("a later release's: %+v, %v", p, err)
	}
	for _, bad := range []string{
		"", "{}", "null", "[]", golden + "x", strings.Replace(golden, `"crossings":2`, `"crossings":-2`, 1),
		strings.Replace(golden, "2.9296875", `"2.9"`, 1), strings.Repeat(" ", maxPlacement) + golden,
	} {
		if p, err := ParsePlacement(bad); err == nil || p != nil || !strings.Contains(err.Error(), PlacementKey) {
			t.Errorf("%+v, %v of %.80q, want an error that names the key", p, err, bad)
		}
	}
}

// TestManyDomainPlacement: a placement in many domains fits the annotation.
func TestManyDomainPlacement(t *testing.T) {
	p := samplePlacement()
	var racks []string
	for i := range 2000 {
		racks = append(racks, fmt.Sprintf("a-rather-long-name-of-a-rack-in-some-data-centre-%d", i))
	}
	p.Domains["rack"] = racks
	v, err := p.Encode()
	if err != nil || len(v) > maxPlacement {
		t.Fatalf("%d bytes, %v", len(v), err)
	}
	got, err := ParsePlacement(v)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Domains["rack"]) != len(racks) {
		t.Error("encoding changed the placement")
	}
	delete(p.Domains, "rack")
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("(-want,+got)\n%s", diff)
	}
	p.Level = strings.Repeat("x", maxPlacement)
	if v, err := p.Encode(); err == nil {
		t.Errorf("%d bytes", len(v))
	}
}

func TestNodesAndRanks(t *testing.T) {
	const golden = "node-1,node-10,node-2"
	want := []string{"node-1", "node-10", "node-2"}
	if got := FormatNodes(want); got != golden {
		t.Errorf("%s, want %s", got, golden)
	}
	if got := FormatNodes([]string{strings.Repeat("x", maxNodes+1)}); got != "" {
		t.Errorf("%d bytes are too many for an annotation", len(got))
	}
	for v, want := range map[string]int{"0": 0, "16383": 16383, "": -1, "-1": -1, "16384": -1, "01": -1, "+1": -1, "x": -1, "9999999999": -1} {
		rank, ok := RankOf(member("p", annotate(RankKey, v)))
		if ok != (want >= 0) || ok && rank != want {
			t.Errorf("%q is rank %d, %t, want %d", v, rank, ok, want)
		}
	}
	if _, ok := RankOf(member("p")); ok {
		t.Error("a pod without the annotation has a rank")
	}
}
