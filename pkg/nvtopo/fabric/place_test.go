// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// cluster is a fabric with the free GPUs of its nodes.
type cluster struct {
	tree *Tree
	free []nvtopo.Mask // by node
	tb   *nvtopo.Tables
}

// clusterOf reads lines "domain … : masks", outermost domain first, of which each mask is the
// free GPUs of one node as a hexadecimal number. Nodes are called domain-0, domain-1, ….
func clusterOf(tb testing.TB, machine, levels, lines string) *cluster {
	tb.Helper()
	var nodes strings.Builder
	free := map[string]nvtopo.Mask{}
	for line := range strings.Lines(lines) {
		path, masks, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		names := strings.Fields(path)
		for i, m := range strings.Fields(masks) {
			var mask nvtopo.Mask
			if _, err := fmt.Sscanf(m, "%x", &mask); err != nil {
				tb.Fatal(err)
			}
			name := fmt.Sprintf("%s-%d", names[len(names)-1], i)
			if names[len(names)-1] == "-" {
				name = fmt.Sprintf("alone-%d", len(free))
			}
			fmt.Fprintf(&nodes, "%s %s\n", name, path)
			free[name] = mask
		}
	}
	c := &cluster{tree: tree(tb, levels, nodes.String()), tb: tables(tb, machine)}
	for n := range c.tree.Len() {
		c.free = append(c.free, free[c.tree.Name(n)])
	}
	return c
}

// shape returns members of the given number of GPUs, placed on the free GPUs.
func (c *cluster) shape(gpus int, con nvtopo.Constraint) Shape {
	s := NewSlotCounter()
	out := Shape{GPUs: gpus, Nodes: make([]Supply, len(c.free))}
	for n, free := range c.free {
		out.Nodes[n].Slots = s.Slots(&Machine{Tables: c.tb, Healthy: 0xff, Free: free}, gpus, con)
	}
	return out
}

// request is so many members of so many GPUs.
func (c *cluster) request(pods, gpus int) *Request {
	return &Request{Shapes: []Shape{c.shape(gpus, nvtopo.Constraint{})}, Members: make([]Member, pods)}
}

// names returns a plan's nodes, or the reason why there is none.
func (c *cluster) names(p *Plan, err error) string {
	if err != nil {
		return err.Error()
	}
	var out []string
	for i, n := range p.Nodes {
		if i > 0 && n == p.Nodes[i-1] {
			out[len(out)-1] += "+"
			continue
		}
		out = append(out, c.tree.Name(n))
	}
	return strings.Join(out, " ")
}

const (
	threeSpines = "A a0: ff ff ff\nA a1: ff\nA a2: ff\nB b0: ff ff ff\nB b1: ff\nB b2: ff\nC c0: ff ff ff"
	twoRacks    = "r0: ff ff ff ff\nr1: ff ff ff ff"
	threeFull   = "r0: ff ff ff 0\nr1: ff ff ff 0"
)

// TestPlace covers the cases of the design note's section 6 that belong to the planner alone, by number,
// and those that its callers need.
func TestPlace(t *testing.T) {
	cases := map[string]struct {
		machine, levels, nodes string // dgx-h100, "rack"
		pods, gpus             int
		change                 func(c *cluster, r *Request)

		want, wantLevel string
		wantCuts        int
		wantCrossings   int
		wantBand        int
	}{
		"1: an empty cluster, one rack": {
			nodes: twoRacks, pods: 4, gpus: 8, want: "r0-0 r0-1 r0-2 r0-3", wantLevel: "rack",
		},
		"2: the rack that fits best": {
			nodes: "r0: ff ff ff ff\nr1: ff ff 0 0", pods: 2, gpus: 8, want: "r1-0 r1-1", wantLevel: "rack",
		},
		"3: no rack has room, three and one": {
			nodes: threeFull, pods: 4, gpus: 8, want: "r0-0 r0-1 r0-2 r1-0", wantLevel: "cluster", wantCrossings: 2,
		},
		"3: and nothing if a rack is required": {
			nodes: threeFull, pods: 4, gpus: 8, change: func(_ *cluster, r *Request) { r.Required = "rack" }, want: "rack: 3 of 4",
		},
		"4: compute-heavy, two and two": {
			nodes: twoRacks, pods: 4, gpus: 8, change: func(_ *cluster, r *Request) { r.Strategy = StrategyComputeHeavy },
			want: "r0-0 r0-1 r1-0 r1-1", wantLevel: "cluster", wantCrossings: 2,
		},
		"5: as many slots, but fewer nodes": {
			nodes: "r0: f f f f\nr1: ff ff 0 0", pods: 4, gpus: 4, want: "r1-0+ r1-1+", wantLevel: "rack",
		},
		"6: two switches instead of three": {
			levels: "spine switch", nodes: "A a0: ff ff ff ff\nA a1: ff\nA a2: ff\nB b0: ff ff ff\nB b1: ff ff ff\nB b2: 0",
			pods: 6, gpus: 8, want: "b0-0 b0-1 b0-2 b1-0 b1-1 b1-2", wantLevel: "spine", wantCrossings: 2,
		},
		"7: the spine that has least left": {
			levels: "spine switch", nodes: "A a0: ff ff ff ff\nA a1: ff ff ff\nA a2: ff ff\nB b0: ff ff ff ff\nB b1: ff\nB b2: ff",
			pods: 5, gpus: 8, want: "b0-0 b0-1 b0-2 b0-3 b1-0", wantLevel: "spine", wantCrossings: 2,
		},
		"a spine more that saves two racks": {
			levels: "spine rack", nodes: threeSpines, pods: 9, gpus: 8,
			want: "a0-0 a0-1 a0-2 b0-0 b0-1 b0-2 c0-0 c0-1 c0-2", wantLevel: "cluster", wantCrossings: 3,
		},
		"a spine more that saves one rack is none less": {
			levels: "spine rack", nodes: threeSpines, pods: 8, gpus: 8,
			want: "a0-0 a0-1 a0-2 a1-0 a2-0 c0-0 c0-1 c0-2", wantLevel: "cluster", wantCrossings: 4,
		},
		"8: the rack whose pairs are linked": {
			machine: "dgx1-v100", nodes: "r0: 21 21\nr1: 9 9", pods: 2, gpus: 2, want: "r1-0 r1-1", wantLevel: "rack",
		},
		"9: one segment cut instead of two": {
			levels: "spine switch", nodes: "A a0: ff ff ff\nA a1: ff ff ff\nA a2: ff ff\nB b0: ff ff ff ff\nB b1: ff ff\nB b2: ff ff",
			pods: 8, gpus: 8, change: func(_ *cluster, r *Request) { r.SegmentSize = 4 },
			want: "b0-0 b0-1 b0-2 b0-3 b1-0 b1-1 b2-0 b2-1", wantLevel: "spine", wantCuts: 1, wantCrossings: 3,
		},
		"9: and nothing if segments must be whole": {
			levels: "spine switch", nodes: "A a0: ff ff ff\nA a1: ff ff ff\nA a2: ff ff\nB b0: ff ff ff ff\nB b1: ff ff\nB b2: ff ff",
			pods: 8, gpus: 8, change: func(_ *cluster, r *Request) { r.SegmentSize, r.SegmentRequired = 4, true },
			want: "cluster: 4 of 8",
		},
		"10: the smaller rack is filled": {
			nodes: "r0: ff ff ff ff ff ff ff ff\nr1: ff ff ff ff", pods: 11, gpus: 8,
			want: "r0-0 r0-1 r0-2 r0-3 r0-4 r0-5 r0-6 r1-0 r1-1 r1-2 r1-3", wantLevel: "cluster", wantCrossings: 2,
		},
		"11: more than there is": {
			nodes: "r0: ff ff\nr1: ff ff", pods: 5, gpus: 8, want: "cluster: 4 of 5",
		},
		"15: a port that is taken on one node": {
			nodes: twoRacks, pods: 4, gpus: 8, change: func(c *cluster, r *Request) {
				n, _ := c.tree.Node("r0-2")
				r.Shapes[0].Nodes[n] = Supply{}
			},
			want: "r1-0 r1-1 r1-2 r1-3", wantLevel: "rack",
		},
		"one node holds the gang": {
			nodes: "r0: ff\nr1: f f", pods: 2, gpus: 4, want: "r0-0+", wantLevel: "node",
		},
		"at most one member a node": {
			nodes: "r0: ff\nr1: ff ff", pods: 2, gpus: 4, change: func(_ *cluster, r *Request) {
				for n := range r.Shapes[0].Nodes {
					r.Shapes[0].Nodes[n].Limit = AtMost(1)
				}
			},
			want: "r1-0 r1-1", wantLevel: "rack",
		},
		"a node without CPU for any member": {
			nodes: "r0: ff ff\nr1: ff ff 0", pods: 2, gpus: 8, change: func(_ *cluster, r *Request) {
				r.Shapes[0].Nodes[0].Limit = AtMost(0)
			},
			want: "r1-0 r1-1", wantLevel: "rack",
		},
		"2 free GPUs of each socket are no slot of a single NUMA node": {
			nodes: "r0: 33 33 33\nr1: f f f0", pods: 3, gpus: 4, change: func(c *cluster, r *Request) {
				r.Shapes[0] = c.shape(4, nvtopo.Constraint{Policy: nvtopo.PolicySingleNUMANode})
			},
			want: "r1-0 r1-1 r1-2", wantLevel: "rack",
		},
		"preferred nodes come before the best fit": {
			nodes: "r0: ff ff ff\nr1: ff ff", pods: 2, gpus: 8, change: func(c *cluster, r *Request) {
				n, _ := c.tree.Node("r0-2")
				r.Shapes[0].Nodes[n].Preference = 10
			},
			want: "r0-0 r0-2", wantLevel: "rack",
		},
		"a domain is closed": {
			nodes: twoRacks, pods: 4, gpus: 8, change: func(c *cluster, _ *Request) { c.rebuild(Exclusion{Level: "rack", Domain: "r0"}) },
			want: "r1-0 r1-1 r1-2 r1-3", wantLevel: "rack",
		},
		"a dead member's place is as near as can be": {
			levels: "spine rack", nodes: "A a0: 0 0\nA a1: ff\nB b0: ff ff", pods: 3, gpus: 8, change: func(_ *cluster, r *Request) {
				r.Members[0], r.Members[2] = Member{Bound: true, Node: 0}, Member{Bound: true, Node: 1}
			},
			want: "a0-0 a1-0 a0-1", wantLevel: "spine", wantCrossings: 2,
		},
		"and in the required domain or nowhere": {
			levels: "spine rack", nodes: "A a0: 0 0\nA a1: ff\nB b0: ff ff", pods: 3, gpus: 8, change: func(_ *cluster, r *Request) {
				r.Members[0], r.Members[2] = Member{Bound: true, Node: 0}, Member{Bound: true, Node: 1}
				r.Required = "rack"
			},
			want: "rack: 2 of 3",
		},
		"and in its segment's domain": {
			nodes: "r0: 0 ff\nr1: 0 0 ff", pods: 4, gpus: 8, change: func(_ *cluster, r *Request) {
				r.Members[0], r.Members[2], r.Members[3] = Member{Bound: true, Node: 0}, Member{Bound: true, Node: 2}, Member{Bound: true, Node: 3}
				r.SegmentSize, r.SegmentRequired = 2, true
			},
			want: "r0-0 r0-1 r1-0 r1-1", wantLevel: "cluster", wantCrossings: 2,
		},
		"an extra goes near the gang": {
			nodes: "r0: ff ff\nr1: 0 ff", pods: 1, gpus: 8, change: func(_ *cluster, r *Request) { r.Near = []int{2} },
			want: "r1-1", wantLevel: "node",
		},
		"near the gang is a wish, the required level is not": {
			levels: "spine rack", nodes: "A a0: ff ff\nB b0: ff\nB b1: ff ff", pods: 2, gpus: 8, change: func(_ *cluster, r *Request) {
				r.Near, r.Required = []int{2}, "rack"
			},
			want: "b1-0 b1-1", wantLevel: "rack", wantCrossings: 0,
		},
		"a member's rack was renamed": {
			nodes: "r0: ff ff\nr1: ff ff", pods: 3, gpus: 8, change: func(_ *cluster, r *Request) {
				r.Members[0], r.Members[1] = Member{Bound: true, Node: 0}, Member{Bound: true, Node: 2}
				r.Required = "rack"
			},
			want: "rack: 2 of 3, members have their nodes in r0 and r1 already",
		},
		"a member's rack lost its label": {
			nodes: "r0: ff ff\n-: ff", pods: 2, gpus: 8, change: func(_ *cluster, r *Request) {
				r.Members[0] = Member{Bound: true, Node: 2}
				r.Required = "rack"
			},
			want: "rack: 0 of 2, a member is on node alone-2, which is in no rack",
		},
		"members of one segment are apart": {
			nodes: "r0: ff ff\nr1: ff ff", pods: 3, gpus: 8, change: func(_ *cluster, r *Request) {
				r.Members[0], r.Members[1] = Member{Bound: true, Node: 0}, Member{Bound: true, Node: 2}
				r.SegmentSize, r.SegmentRequired = 3, true
			},
			want: "cluster: 2 of 3, members of one segment have their nodes in r0 and r1 already",
		},
		"a segment's domain is full": {
			nodes: "r0: 0 0\nr1: ff ff", pods: 2, gpus: 8, change: func(_ *cluster, r *Request) {
				r.Members[0] = Member{Bound: true, Node: 0}
				r.SegmentSize, r.SegmentRequired = 2, true
			},
			want: "cluster: 1 of 2, no room beside the members of a segment in r0",
		},
		"lost members of two segments go home": {
			nodes: "r0: 0 ff ff\nr1: 0 ff", pods: 4, gpus: 8, change: func(_ *cluster, r *Request) {
				r.Members[0], r.Members[3] = Member{Bound: true, Node: 3}, Member{Bound: true, Node: 0}
				r.SegmentSize, r.SegmentRequired = 2, true
			},
			want: "r1-0 r1-1 r0-1 r0-0", wantLevel: "cluster", wantCrossings: 2,
		},
		"nodes without labels are used last": {
			nodes: "-: ff\n-: ff\nr1: ff ff", pods: 2, gpus: 8, want: "r1-0 r1-1", wantLevel: "rack",
		},
		"and never meet a required level": {
			levels: "rack", nodes: "-: ff\nr1: f f", pods: 1, gpus: 8, change: func(_ *cluster, r *Request) { r.Required = "rack" },
			want: "rack: 0 of 1",
		},
		"spread over racks, at most one in each": {
			nodes: twoRacks, pods: 3, gpus: 8, change: func(_ *cluster, r *Request) { r.SpreadOver, r.MaxPerDomain = "rack", 1 },
			want: "cluster: 2 of 3, at most 1 member in one rack",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.machine == "" {
				tc.machine = "dgx-h100"
			}
			if tc.levels == "" {
				tc.levels = "rack"
			}
			c := clusterOf(t, tc.machine, tc.levels, tc.nodes)
			r := c.request(tc.pods, tc.gpus)
			if tc.change != nil {
				tc.change(c, r)
			}
			p, err := Place(c.tree, r)
			if got := c.names(p, err); got != tc.want {
				t.Fatalf("got %s, want %s", got, tc.want)
			}
			if err != nil {
				return
			}
			got := []any{p.Level, p.SegmentsCut, p.Crossings, p.Band, !p.Exact}
			want := []any{tc.wantLevel, tc.wantCuts, tc.wantCrossings, tc.wantBand, false}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("level, cuts, crossings, band, inexact (-want, +got):\n%s", d)
			}
			c.checkSets(t, r, p, tc.gpus)
		})
	}
}

// rebuild builds the tree again with an exclusion.
func (c *cluster) rebuild(e Exclusion) {
	s := &Spec{Levels: c.tree.Levels(), Excluded: []Exclusion{e}}
	for n := range c.tree.Len() {
		s.Nodes = append(s.Nodes, NodePath{Node: c.tree.Name(n), Path: strings.Split(c.tree.Domains(c.tree.Depth())[c.tree.DomainOf(c.tree.Depth(), n)].Path, "/")})
	}
	c.tree, _, _ = NewTree(s)
}

// checkSets checks that members have free GPUs, and no two members the same one.
func (c *cluster) checkSets(t *testing.T, r *Request, p *Plan, gpus int) {
	t.Helper()
	free := append([]nvtopo.Mask(nil), c.free...)
	for rank, set := range p.Sets {
		n := p.Nodes[rank]
		if r.Members[rank].Bound {
			continue
		}
		if set.Len() != gpus || set&^free[n] != 0 {
			t.Errorf("rank %d has %b of %b on %s", rank, set, free[n], c.tree.Name(n))
		}
		free[n] &^= set
	}
}

// TestContradictoryRequests: requests that contradict themselves are refused.
func TestContradictoryRequests(t *testing.T) {
	c := clusterOf(t, "dgx-h100", "spine rack", "A r0: ff ff")
	cases := map[string]struct {
		change func(r *Request)
		want   string
	}{
		"no members":           {func(r *Request) { r.Members = nil }, "a gang without members"},
		"an unknown level":     {func(r *Request) { r.Required = "row" }, `required level: the fabric has no level "row"`},
		"an unknown shape":     {func(r *Request) { r.Members[1].Shape = 1 }, "rank 1: there is no shape 1"},
		"an unknown node":      {func(r *Request) { r.Members[1] = Member{Bound: true, Node: 2} }, "rank 1: there is no node 2"},
		"near an unknown node": {func(r *Request) { r.Near = []int{-1} }, "there is no node -1 to be near to"},
		"a supply of other nodes": {
			func(r *Request) { r.Shapes[0].Nodes = nil }, "shape 0: the supply of 0 nodes for a fabric of 2",
		},
		"segments that do not divide": {func(r *Request) { r.SegmentSize = 3 }, "segments of 3 do not divide 4 members"},
		"segments of two shapes": {
			func(r *Request) {
				r.Shapes, r.SegmentSize = append(r.Shapes, r.Shapes[0]), 2
				r.Members[1].Shape, r.Members[2].Shape = 1, 1
				r.Remaining = func(int, int, nvtopo.Mask, []int) Supply { return Supply{} }
			}, "segments of 2 are of one shape, but another has 2 members",
		},
		"segments of less than one": {func(r *Request) { r.SegmentSize = -1 }, "segments of -1 members: want 1 or more"},
		"segments on a node": {
			func(r *Request) { r.SegmentSize, r.SegmentLevel = 2, "node" }, "segments on one node: ask for larger members instead",
		},
		"segments and spread": {
			func(r *Request) { r.SegmentSize, r.SpreadOver = 2, "rack" }, "members cannot be spread and kept in segments",
		},
		"a bound without a level": {
			func(r *Request) { r.MaxPerDomain = 2 }, "a bound on the members of a domain needs a level to spread over",
		},
		"a negative bound": {
			func(r *Request) { r.SpreadOver, r.MaxPerDomain = "rack", -1 }, "at most -1 members in a domain: want 0 or more",
		},
		"spread inside what must be one": {
			func(r *Request) { r.SpreadOver, r.Required = "spine", "rack" },
			`members cannot be spread over several of level "spine" and be in one of level "rack"`,
		},
		"spread over the cluster inside one rack": {
			func(r *Request) { r.Required, r.SpreadOver = "rack", "cluster" },
			`members cannot be spread over several of level "cluster" and be in one of level "rack"`,
		},
		"spread over nodes": {
			func(r *Request) { r.SpreadOver = "node" }, "members cannot be spread over nodes: bound them by the supply's limit",
		},
		"several shapes and nobody to ask": {
			func(r *Request) { r.Shapes, r.Members[1].Shape = append(r.Shapes, r.Shapes[0]), 1 },
			"members of several shapes, and nothing says what they leave each other",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := c.request(4, 1)
			tc.change(r)
			if _, err := Place(c.tree, r); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestParseStrategy(t *testing.T) {
	for _, s := range []Strategy{StrategyMixed, StrategyCommunicationHeavy, StrategyComputeHeavy} {
		for _, name := range []string{s.String(), strings.ReplaceAll(s.String(), "-", "_")} {
			if got, err := ParseStrategy(name); err != nil || got != s {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	}
	if _, err := ParseStrategy("fast"); err == nil {
		t.Error("no error for an unknown strategy")
	}
}

// TestRefusalText: a refusal names the nearest domain.
func TestRefusalText(t *testing.T) {
	c := clusterOf(t, "dgx-h100", "spine rack", "A r0: ff 0\nA r1: ff ff\nB r2: ff ff ff 0")
	cases := map[string]struct {
		change     func(r *Request)
		wantDomain string
		wantHave   int
	}{
		"the rack with most room": {func(r *Request) { r.Required = "rack" }, "r2", 3},
		"the rack of the members that have their nodes": {func(r *Request) {
			r.Required, r.Members[0] = "rack", Member{Bound: true, Node: 0}
		}, "r0", 2},
		"a node":             {func(r *Request) { r.Required = "node" }, "r0-0", 1},
		"the cluster itself": {func(r *Request) { r.Members = append(r.Members, make([]Member, 3)...) }, "cluster", 6},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := c.request(4, 8)
			tc.change(r)
			_, err := Place(c.tree, r)
			var none *UnplaceableError
			if !errors.As(err, &none) || none.Domain != tc.wantDomain || none.Have != tc.wantHave {
				t.Errorf("got %#v, want %d in %s", none, tc.wantHave, tc.wantDomain)
			}
		})
	}
}
