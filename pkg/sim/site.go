// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// site is the cluster as a fabric: what each node and each domain can hold of the gangs of
// the trace. Its nodes have the tree's numbers.
type site struct {
	tree   *fabric.Tree
	state  *state
	number []int // node of the configuration -> its number in the tree
	node   []int // and back

	slotter *fabric.SlotCounter
	rooms   []room // by position in sizes
	free    []int  // GPUs, by number
	byFree  []int  // nodes, by free GPUs
	closed  []bool // by number: nodes that are closed to the job that is looked at; nil if none is
}

// room is what pods of one size find.
type room struct {
	supply []fabric.Supply
	slots  [][]int // by depth, then domain
	nodes  []int   // how many nodes have so many slots
	empty  []int   // by depth: the most that a domain holds when nothing runs; nodes come last
}

func newSite(c *Config, s *state) (*site, error) {
	t := c.Fabric
	x := &site{tree: t, state: s, slotter: fabric.NewSlotCounter(), number: make([]int, len(c.Nodes)), node: make([]int, len(c.Nodes))}
	if t.Len() != len(c.Nodes) {
		return nil, fmt.Errorf("a fabric of %d nodes for %d nodes", t.Len(), len(c.Nodes))
	}
	seen := make([]bool, t.Len())
	for i := range c.Nodes {
		n, ok := t.Node(c.Nodes[i].Name)
		if !ok {
			return nil, fmt.Errorf("node %q is not in the fabric", c.Nodes[i].Name)
		}
		if seen[n] {
			return nil, fmt.Errorf("node %q is there twice", c.Nodes[i].Name)
		}
		seen[n] = true
		x.number[i], x.node[n] = n, i
	}
	x.free, x.byFree = make([]int, t.Len()), make([]int, nvtopo.MaxGPUs+1)
	x.byFree[0] = t.Len()
	x.rooms = make([]room, len(s.sizes.gpus))
	for i := range x.rooms {
		x.rooms[i] = room{supply: make([]fabric.Supply, t.Len()), slots: byDomain(t), nodes: []int{t.Len()}}
	}
	for i := range s.nodes {
		x.changed(i)
	}
	for i := range x.rooms {
		for d := range t.Depth() + 2 {
			x.rooms[i].empty = append(x.rooms[i].empty, x.most(i, d))
		}
	}
	return x, nil
}

func byDomain(t *fabric.Tree) [][]int {
	out := make([][]int, t.Depth()+1)
	for d := range out {
		out[d] = make([]int, len(t.Domains(d)))
	}
	return out
}

// add adds a number to all domains of a node.
func (x *site) add(sums [][]int, node, by int) {
	if by == 0 {
		return
	}
	for d := range sums {
		sums[d][x.tree.DomainOf(d, node)] += by
	}
}

// changed counts a node of the configuration anew.
func (x *site) changed(at int) {
	n, i := &x.state.nodes[at], x.number[at]
	was, is := x.free[i], n.free().Len()
	x.byFree[was]--
	x.byFree[is]++
	x.free[i] = is
	m := fabric.Machine{Tables: n.kind.tables, Healthy: n.healthy &^ n.kind.degraded, Free: n.free() &^ n.kind.degraded}
	for size := range x.rooms {
		r := &x.rooms[size]
		slots := x.slotter.Slots(&m, x.state.sizes.gpus[size], x.state.sizes.constraints[size])
		old := &r.supply[i]
		if old.Slots == slots {
			continue
		}
		a, b := slotsOf(old.Slots), slotsOf(slots)
		old.Slots = slots
		x.add(r.slots, i, b-a)
		for b >= len(r.nodes) {
			r.nodes = append(r.nodes, 0)
		}
		r.nodes[a]--
		r.nodes[b]++
	}
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// slotsOf is how many pods fit, whatever their links.
func slotsOf(s *fabric.Slots) int { return s.Count(nodeBands - 1) }

// most is the most pods that a domain of the depth can hold; a node at the depth below the
// innermost level. A domain without a name is a node that is alone.
func (x *site) most(size, depth int) int {
	r := &x.rooms[size]
	if depth > x.tree.Depth() {
		for n := len(r.nodes) - 1; n > 0; n-- {
			if r.nodes[n] > 0 {
				return n
			}
		}
		return 0
	}
	most := 0
	for i, n := range r.slots[depth] {
		if n > most && (depth == 0 || x.tree.Domains(depth)[i].Name != "") {
			most = n
		}
	}
	return most
}

// level is the depth of the innermost domain that can hold so many pods now; -1 if the cluster
// cannot.
func (x *site) level(size, pods int) int {
	for d := x.tree.Depth() + 1; d >= 0; d-- {
		if x.most(size, d) >= pods {
			return d
		}
	}
	return -1
}

// ideal is level of the empty cluster.
func (x *site) ideal(size, pods int) int {
	empty := x.rooms[size].empty
	for d := len(empty) - 1; d >= 0; d-- {
		if empty[d] >= pods {
			return d
		}
	}
	return -1
}

// has reports whether the cluster can hold so many pods now, on nodes that are open to them.
func (x *site) has(size, pods int) bool {
	r := &x.rooms[size]
	slots := r.slots[0][0]
	for i, closed := range x.closed {
		if closed {
			slots -= slotsOf(r.supply[i].Slots)
		}
	}
	return slots >= pods
}

// open is what the nodes have that are open to the job that is looked at.
func (x *site) open(size int) []fabric.Supply {
	supply := x.rooms[size].supply
	if x.closed == nil {
		return supply
	}
	supply = slices.Clone(supply)
	for i, closed := range x.closed {
		if closed {
			supply[i] = fabric.Supply{}
		}
	}
	return supply
}

// counted is how many pods fit by the number of free GPUs alone.
func (x *site) counted(gpus int) (pods int) {
	for free, nodes := range x.byFree {
		pods += nodes * (free / gpus)
	}
	return pods
}

// fewest is how few domains of a depth can hold so many pods now, wherever they are.
func (x *site) fewest(size, depth, pods int) int {
	var sums []int
	for _, n := range x.rooms[size].slots[depth] {
		if n >= pods {
			return 1
		}
		if n > 0 {
			sums = append(sums, n)
		}
	}
	slices.SortFunc(sums, func(a, b int) int { return cmp.Compare(b, a) })
	for i, n := range sums {
		if pods -= n; pods <= 0 {
			return i + 1
		}
	}
	return len(sums)
}

// domains is how many domains of a depth nodes are in.
func (x *site) domains(depth int, parts []part) int {
	seen := make([]int, len(parts))
	for i, p := range parts {
		seen[i] = x.tree.DomainOf(depth, x.number[p.node])
	}
	slices.Sort(seen)
	return len(slices.Compact(seen))
}

// common is the depth of the smallest domain that has all parts.
func (x *site) common(parts []part) int {
	depth := x.tree.Depth() + 1
	for _, p := range parts {
		depth = min(depth, x.tree.Common(x.number[parts[0].node], x.number[p.node]))
	}
	return depth
}
