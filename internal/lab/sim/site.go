// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// site is the cluster as a fabric: the room of each node and each domain for the gangs of the trace. Its
// nodes have the tree's numbers.
type site struct {
	tree   *fabric.Tree
	state  *state
	number []int // node of the configuration -> its number in the tree
	node   []int // and back

	// models are those of the cluster, by name, if a gang's pods get GPUs of one and there are
	// several; nil otherwise.
	models [][]string

	slotter *fabric.SlotCounter
	rooms   []room // by position in sizes
	free    []int  // GPUs, by number
	byFree  []int  // nodes, by free GPUs
	closed  []bool // by number: nodes that are closed to the job that is looked at; nil if none is
}

// room is the cluster's room for pods of one size.
type room struct {
	supply []fabric.Supply
	all    *tally
	one    []*tally // of each model alone
}

// tally is the number of pods that nodes and domains can hold.
type tally struct {
	models []string // only these count; nil: all
	slots  [][]int  // by depth, then domain
	nodes  []int    // how many nodes have so many slots
	empty  []int    // by depth: the most that a domain holds when nothing runs; nodes come last
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
	if c.GangPolicy == Ours && !c.MixGangs {
		x.models = modelsOf(c.Nodes)
	}
	x.free, x.byFree = make([]int, t.Len()), make([]int, nvtopo.MaxGPUs+1)
	x.byFree[0] = t.Len()
	x.rooms = make([]room, len(s.sizes.gpus))
	for i := range x.rooms {
		r := &x.rooms[i]
		r.supply, r.all = make([]fabric.Supply, t.Len()), newTally(t, nil)
		for _, m := range x.models {
			r.one = append(r.one, newTally(t, m))
		}
	}
	for i := range s.nodes {
		x.changed(i)
	}
	for i := range x.rooms {
		for y := range x.rooms[i].tallies() {
			for d := range t.Depth() + 2 {
				y.empty = append(y.empty, y.most(t, d))
			}
		}
	}
	return x, nil
}

// modelsOf lists the models of GPUs, each alone; nil if there is only one.
func modelsOf(nodes []Node) (out [][]string) {
	var names []string
	for i := range nodes {
		for _, gpu := range nodes[i].Graph.GPUs {
			if len(names) == 0 || names[len(names)-1] != gpu.Model {
				names = append(names, gpu.Model)
			}
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) < 2 {
		return nil
	}
	for _, m := range names {
		out = append(out, []string{m})
	}
	return out
}

func newTally(t *fabric.Tree, models []string) *tally {
	return &tally{models: models, slots: byDomain(t), nodes: []int{t.Len()}}
}

// tallies returns the tallies of all models and of each.
func (r *room) tallies() iter.Seq[*tally] {
	return func(yield func(*tally) bool) {
		if !yield(r.all) {
			return
		}
		for _, y := range r.one {
			if !yield(y) {
				return
			}
		}
	}
}

// ofOne returns the tallies of one of which a gang of so many pods must have its place: each model's,
// if the empty cluster has room for it on one. It is nil if a gang may have several models; a gang
// that no model has room for does, as its user would say.
func (x *site) ofOne(size, pods int) []*tally {
	r := &x.rooms[size]
	if pods < 2 || !slices.ContainsFunc(r.one, func(y *tally) bool { return y.empty[0] >= pods }) {
		return nil
	}
	return r.one
}

// some reports whether something is true of a tally in which a job of so many pods may have its
// place.
func (x *site) some(size, pods int, is func(y *tally) bool) bool {
	if one := x.ofOne(size, pods); one != nil {
		return slices.ContainsFunc(one, is)
	}
	return is(x.rooms[size].all)
}

func byDomain(t *fabric.Tree) [][]int {
	out := make([][]int, t.Depth()+1)
	for d := range out {
		out[d] = make([]int, len(t.Domains(d)))
	}
	return out
}

// changed updates the counts of a node of the configuration.
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
		old := r.supply[i]
		if old.Slots == slots {
			continue
		}
		r.supply[i].Slots = slots
		for y := range r.tallies() {
			y.change(x.tree, i, y.of(old), y.of(r.supply[i]))
		}
	}
}

// of returns how many pods fit, regardless of their links.
func (y *tally) of(s fabric.Supply) int {
	if y.models != nil {
		s = s.On(y.models)
	}
	return slotsOf(s.Slots)
}

// change has a node have b slots in place of a.
func (y *tally) change(t *fabric.Tree, node, a, b int) {
	if a == b {
		return
	}
	for d := range y.slots {
		y.slots[d][t.DomainOf(d, node)] += b - a
	}
	for b >= len(y.nodes) {
		y.nodes = append(y.nodes, 0)
	}
	y.nodes[a]--
	y.nodes[b]++
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// slotsOf returns how many pods fit, regardless of their links.
func slotsOf(s *fabric.Slots) int { return s.Count(nodeBands - 1) }

// most is the most pods that a domain of the depth can hold; a node at the depth below the
// innermost level. A domain without a name is a node that is alone.
func (y *tally) most(t *fabric.Tree, depth int) int {
	if depth > t.Depth() {
		for n := len(y.nodes) - 1; n > 0; n-- {
			if y.nodes[n] > 0 {
				return n
			}
		}
		return 0
	}
	most := 0
	for i, n := range y.slots[depth] {
		if n > most && (depth == 0 || t.Domains(depth)[i].Name != "") {
			most = n
		}
	}
	return most
}

// holds reports whether some domain of a depth can hold so many pods now.
func (x *site) holds(size, depth, pods int) bool {
	return x.some(size, pods, func(y *tally) bool { return y.most(x.tree, depth) >= pods })
}

// level is the depth of the innermost domain that can hold so many pods now; -1 if the cluster
// cannot.
func (x *site) level(size, pods int) int {
	for d := x.tree.Depth() + 1; d >= 0; d-- {
		if x.holds(size, d, pods) {
			return d
		}
	}
	return -1
}

// ideal is level of the empty cluster.
func (x *site) ideal(size, pods int) int {
	for d := x.tree.Depth() + 1; d >= 0; d-- {
		if x.some(size, pods, func(y *tally) bool { return y.empty[d] >= pods }) {
			return d
		}
	}
	return -1
}

// has reports whether the cluster can hold so many pods now, on nodes that are open to them.
func (x *site) has(size, pods int) bool {
	return x.some(size, pods, func(y *tally) bool { return x.opened(size, y) >= pods })
}

// hasMixed is has where pods of a gang may have GPUs of several models.
func (x *site) hasMixed(size, pods int) bool {
	return x.opened(size, x.rooms[size].all) >= pods
}

// opened returns how many pods the open nodes can hold.
func (x *site) opened(size int, y *tally) int {
	slots := y.slots[0][0]
	for i, closed := range x.closed {
		if closed {
			slots -= y.of(x.rooms[size].supply[i])
		}
	}
	return slots
}

// open returns the supply of the nodes that are open to the current job.
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

// shape returns the requirements of a job of so many pods on nodes.
func (x *site) shape(size, gpus, pods int, nodes []fabric.Supply) fabric.Shape {
	s := fabric.Shape{GPUs: gpus, Nodes: nodes}
	if x.ofOne(size, pods) != nil {
		s.Kind = 1
	}
	return s
}

// counted returns how many pods fit by the number of free GPUs alone.
func (x *site) counted(gpus int) (pods int) {
	for free, nodes := range x.byFree {
		pods += nodes * (free / gpus)
	}
	return pods
}

// fewest returns the smallest number of domains of a depth that can hold so many pods now.
func (x *site) fewest(size, depth, pods int) (fewest int) {
	one := x.ofOne(size, pods)
	if one == nil {
		return x.rooms[size].all.fewest(depth, pods)
	}
	for _, y := range one {
		if n := y.fewest(depth, pods); n > 0 && (fewest == 0 || n < fewest) {
			fewest = n
		}
	}
	return fewest
}

// fewest returns the smallest number of domains of a depth that can hold so many pods; 0 if all of them
// cannot.
func (y *tally) fewest(depth, pods int) int {
	var sums []int
	for _, n := range y.slots[depth] {
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
	return 0
}

// domains returns the number of domains of a depth that the parts' nodes are in.
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
