// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sampleNodes are the requirement's cluster: two racks of four nodes.
func sampleNodes() string {
	var lines strings.Builder
	for rack := range 2 {
		for n := range 4 {
			fmt.Fprintf(&lines, "node-%d-%d rack-%d\n", rack, n, rack)
		}
	}
	return lines.String()
}

// nodesOf takes the first so many nodes of each rack of the sample.
func nodesOf(racks ...int) (nodes []int) {
	for rack, n := range racks {
		for i := range n {
			nodes = append(nodes, 4*rack+i)
		}
	}
	return nodes
}

// layout is the nodes of a gang's ranks in the sample, and the estimates of the requirement's analyser in
// binary units.
type layout struct {
	name  string
	nodes []int
	want  Compat
}

func layouts() []layout {
	return []layout{
		{name: "one node has nobody to talk to", nodes: nodesOf(1)},
		{"2 in a rack", nodesOf(2), Compat{0.9765625, 1.953125, 0.2}},
		{"2 across", nodesOf(1, 1), Compat{1.953125, 3.90625, 1}},
		{"4 in a rack", nodesOf(4), Compat{1.46484375, 3.90625, 0.4}},
		{"2 and 2", nodesOf(2, 2), Compat{2.9296875, 5.859375, 1.466666667}},
		{"3 and 1", nodesOf(3, 1), Compat{2.9296875, 5.208333333, 1.2}},
		{"3 and 3", nodesOf(3, 3), Compat{3.255208333, 8.370535714, 2.04}},
		{"8", nodesOf(4, 4), Compat{3.41796875, 8.203125, 2.628571429}},
		{"20 GPUs on 3 nodes", nodesOf(3), Compat{1.302083333, 3.90625, 0.3}},
		{"two ranks on each node", []int{0, 0, 1, 1, 2, 2, 3, 3}, Compat{1.46484375, 3.90625, 0.4}},
	}
}

// times are the estimates when everything is sent so many times as slowly; latency stays.
func (c Compat) times(factor float64) Compat {
	return Compat{c.Ring * factor, c.Tree * factor, c.Other}
}

// TestCompatEstimate: the compat estimate is the requirement's estimate.
func TestCompatEstimate(t *testing.T) {
	const decimal = BinaryUnits / float64(DecimalUnits)
	cases := map[string]struct {
		slower int64 // the links' bandwidth is divided by it
		units  float64
		factor float64 // the estimates' own
	}{
		"links in GB/s":                {1, BinaryUnits, 1},
		"links in GB/s, decimal units": {1, DecimalUnits, decimal},
		"links in Gb/s":                {8, BinaryUnits, 8},
		"links in Gb/s, decimal units": {8, DecimalUnits, 8 * decimal},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tr := sampleSlower(t, tc.slower)
			for _, row := range layouts() {
				want := row.want.times(tc.factor)
				got, known := tr.Compat(row.nodes, 100, tc.units)
				t.Logf("%-30s ring, tree, other in ms: expected %v, got %v", row.name, want, got)
				if d := cmp.Diff(want, got, near()); d != "" || !known {
					t.Errorf("%s: known %v (-want, +got):\n%s", row.name, known, d)
				}
			}
		})
	}
}

func TestRingUnits(t *testing.T) {
	four := nodesOf(4)
	cases := map[string]struct {
		slower int64
		units  float64
		want   float64 // ms
	}{
		"links in GB/s":                {1, BinaryUnits, 1.46484375},
		"links in GB/s, decimal units": {1, DecimalUnits, 1.5},
		"links in Gb/s":                {8, BinaryUnits, 11.71875},
		"links in Gb/s, decimal units": {8, DecimalUnits, 12},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, _ := sampleSlower(t, tc.slower).Compat(four, 100, tc.units)
			if d := cmp.Diff(tc.want, got.Ring, near()); d != "" {
				t.Errorf("(-want, +got):\n%s", d)
			}
		})
	}
}

// sampleSlower is the sample with a part of the bandwidth.
func sampleSlower(tb testing.TB, by int64) *Tree {
	tb.Helper()
	s := spec("rack", sampleNodes())
	s.Levels[0].Link.Bandwidth /= by
	s.Root.Bandwidth /= by
	tr, _, err := NewTree(s)
	if err != nil {
		tb.Fatal(err)
	}
	return tr
}

// TestTwentyGPUs: twenty GPUs take three nodes.
func TestTwentyGPUs(t *testing.T) {
	for name, of := range map[string]struct{ pods, gpus int }{
		"pods of four": {5, 4}, "pods of two": {10, 2}, "pods of one": {20, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := clusterOf(t, "dgx-h100", "rack", twoRacks)
			plan, err := Place(c.tree, c.request(of.pods, of.gpus))
			if err != nil {
				t.Fatal(err)
			}
			used := 0
			for _, set := range plan.Sets {
				used += set.Len()
			}
			got, _ := c.tree.Compat(plan.Nodes, 100, BinaryUnits)
			nodes := len(distinctNodes(plan.Nodes))
			t.Logf("expected 3 nodes of one rack, ring 1.302083333 ms; got %d nodes (%s), ring %v ms, %d of 24 GPUs used",
				nodes, c.names(plan, nil), got.Ring, used)
			if nodes != 3 || plan.Level != "rack" || used != 20 {
				t.Errorf("%d GPUs on %d nodes, level %s", used, nodes, plan.Level)
			}
			if d := cmp.Diff(1.302083333, got.Ring, near()); d != "" {
				t.Errorf("ring (-want, +got):\n%s", d)
			}
		})
	}
}

func TestHierarchicalEstimate(t *testing.T) {
	const ring = 450_000_000
	link := func(gbps, micros int64) Link { return Link{Bandwidth: gbps * 1e6, Latency: micros * 1e3} }
	cases := map[string]struct {
		link    Link
		nodes   []int
		gpus    int
		ring    int64
		want    float64
		unknown bool
	}{
		"1 node":                    {link(100, 0), []int{0}, 8, ring, 3.888888889, false},
		"4 nodes at 100":            {link(100, 0), []int{0, 1, 2, 3}, 8, ring, 18.888888889, false},
		"4 nodes at 50":             {link(50, 0), []int{0, 1, 2, 3}, 8, ring, 33.888888889, false},
		"4 nodes at 100 and 100 µs": {link(100, 100), []int{0, 1, 2, 3}, 8, ring, 19.488888889, false},
		"one GPU has no ring":       {link(100, 0), []int{0, 1}, 1, 0, 10, false},
		"a fabric nobody measured":  {Link{}, []int{0, 1}, 8, ring, 0, true},
		"a node nobody measured":    {link(100, 0), []int{0, 1}, 8, 0, 0, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := spec("rack", "a r\nb r\nc r\nd r")
			s.Levels[0].Link = tc.link
			tr, _, err := NewTree(s)
			if err != nil {
				t.Fatal(err)
			}
			got, known := tr.Estimate(tc.nodes, tc.gpus, tc.ring, 1e9)
			t.Logf("expected %v ms, got %v ms", tc.want, got)
			if d := cmp.Diff(tc.want, got, near()); d != "" || known == tc.unknown {
				t.Errorf("known %v (-want, +got):\n%s", known, d)
			}
			if compat, known := tr.Compat(tc.nodes, 100, BinaryUnits); known != (len(tc.nodes) < 2 || tc.link.Bandwidth > 0) || !known && compat != (Compat{}) {
				t.Errorf("compat %v, known %v", compat, known)
			}
		})
	}
}

// near compares to nine decimals, as the golden values are written.
func near() cmp.Option {
	return cmp.Comparer(func(a, b float64) bool { return a == b || math.Abs(a-b) < 1e-9*10 })
}

// TestQualityWords: the quality is in the requirement's words.
func TestQualityWords(t *testing.T) {
	cases := map[string]struct {
		levels, nodes string
		want          string
	}{
		"no node":                      {"rack", "", QualityOneNode},
		"one node":                     {"rack", "a r0", QualityOneNode},
		"one rack":                     {"rack", "a r0\nb r0", QualitySameRack},
		"two racks":                    {"rack", "a r0\nb r1", QualityAdjacent},
		"three racks":                  {"rack", "a r0\nb r1\nc r2", QualitySuboptimal},
		"two racks behind a switch":    {"switch rack", "a s0 r0\nb s0 r1", QualitySameSwitch},
		"three racks behind a switch":  {"switch rack", "a s0 r0\nb s0 r1\nc s0 r2", QualitySameSwitch},
		"a rack with two switches":     {"rack switch", "a r0 s0\nb r0 s1", QualitySameRack},
		"racks of one spine":           {"spine rack", "a s0 r0\nb s0 r1", QualityAdjacent},
		"other names: innermost":       {"spine leaf", "a s0 l0\nb s0 l0", QualitySameRack},
		"no levels at all":             {"", "a\nb", QualitySuboptimal},
		"two nodes that are alone":     {"rack", "a\nb", QualityAdjacent},
		"three nodes that are alone":   {"rack", "a\nb\nc", QualitySuboptimal},
		"a switch and nothing further": {"switch", "a s0\nb s0", QualitySameSwitch},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tr := tree(t, tc.levels, tc.nodes)
			var nodes []int
			for n := range tr.Len() {
				nodes = append(nodes, n)
			}
			if got := tr.Quality(nodes); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
