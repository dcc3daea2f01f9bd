// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sample is the requirement's cluster: two racks of four nodes.
func sample(tb testing.TB) *Tree {
	tb.Helper()
	var lines strings.Builder
	for rack := range 2 {
		for n := range 4 {
			fmt.Fprintf(&lines, "node-%d-%d rack-%d\n", rack, n, rack)
		}
	}
	return tree(tb, "rack", lines.String())
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

func TestCompatIsTheRequirementsEstimate(t *testing.T) {
	cases := map[string]struct {
		nodes []int
		units float64
		want  Compat
	}{
		"one node has nobody to talk to": {nodes: nodesOf(1), units: BinaryUnits},
		"2 in a rack":                    {nodesOf(2), BinaryUnits, Compat{0.9765625, 1.953125, 0.2}},
		"2 across":                       {nodesOf(1, 1), BinaryUnits, Compat{1.953125, 3.90625, 1}},
		"4 in a rack":                    {nodesOf(4), BinaryUnits, Compat{1.46484375, 3.90625, 0.4}},
		"2 and 2":                        {nodesOf(2, 2), BinaryUnits, Compat{2.9296875, 5.859375, 1.466666667}},
		"3 and 1":                        {nodesOf(3, 1), BinaryUnits, Compat{2.9296875, 5.208333333, 1.2}},
		"3 and 3":                        {nodesOf(3, 3), BinaryUnits, Compat{3.255208333, 8.370535714, 2.04}},
		"8":                              {nodesOf(4, 4), BinaryUnits, Compat{3.41796875, 8.203125, 2.628571429}},
		"20 GPUs on 3 nodes":             {nodesOf(3), BinaryUnits, Compat{1.302083333, 3.90625, 0.3}},
		"4 in a rack, decimal units":     {nodesOf(4), DecimalUnits, Compat{1.5, 4, 0.4}},
		"two ranks on each node":         {[]int{0, 0, 1, 1, 2, 2, 3, 3}, BinaryUnits, Compat{1.46484375, 3.90625, 0.4}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, known := sample(t).Compat(tc.nodes, 100, tc.units)
			if d := cmp.Diff(tc.want, got, near()); d != "" || !known {
				t.Errorf("known %v (-want, +got):\n%s", known, d)
			}
		})
	}
}

func TestLinksOfGigabitsTakeEightTimesAsLong(t *testing.T) {
	s := spec("rack", "a r\nb r\nc r\nd r")
	s.Levels[0].Link.Bandwidth = 100_000_000 / 8 // 100 Gb/s
	tr, _, err := NewTree(s)
	if err != nil {
		t.Fatal(err)
	}
	nodes := []int{0, 1, 2, 3}
	binary, _ := tr.Compat(nodes, 100, BinaryUnits)
	decimal, _ := tr.Compat(nodes, 100, DecimalUnits)
	if d := cmp.Diff([]float64{11.71875, 12}, []float64{binary.Ring, decimal.Ring}, near()); d != "" {
		t.Errorf("(-want, +got):\n%s", d)
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

func TestQualityIsInTheRequirementsWords(t *testing.T) {
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
