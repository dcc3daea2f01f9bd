// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
)

// fabricCluster is a cluster read from files, or a real one.
type fabricCluster struct {
	tree   *fabric.Tree
	tables []*nvtopo.Tables // by node; nil for one without GPUs
	free   []nvtopo.Mask
	order  []int // nodes with machines, as in the file

	// Of a real cluster:
	notes    map[int]string // node -> why it gets no pods
	problems []string       // the parts of labels, ClusterTopology and graphs that are ignored
}

// load reads the files.
func (o *fabricPlacement) load(cmd *cobra.Command) (*fabricCluster, error) {
	text, err := readLarge(cmd, o.fabric)
	if err != nil {
		return nil, err
	}
	levels, paths, err := fabric.ReadCSV(bytes.NewReader(text))
	if err != nil {
		return nil, inputf("%s: %w", shownName(o.fabric), err)
	}
	machines, err := readColumn(cmd, o.nodes, "machine")
	if err != nil {
		return nil, err
	}
	var free []fabric.Row
	if o.free != "" {
		if free, err = readColumn(cmd, o.free, "free"); err != nil {
			return nil, err
		}
	}
	paths = withMachines(paths, machines)
	tree, err := o.tree(cmd, levels, paths)
	if err != nil {
		return nil, err
	}
	c := &fabricCluster{tree: tree, tables: make([]*nvtopo.Tables, tree.Len()), free: make([]nvtopo.Mask, tree.Len())}
	if err := c.equip(machines); err != nil {
		return nil, inputf("%s: %w", shownName(o.nodes), err)
	}
	if err := c.take(free); err != nil {
		return nil, inputf("%s: %w", shownName(o.free), err)
	}
	return c, nil
}

// withMachines adds the nodes that have a machine, but are not in the fabric: each is alone.
func withMachines(paths []fabric.NodePath, machines []fabric.Row) []fabric.NodePath {
	known := map[string]bool{}
	for _, p := range paths {
		known[p.Node] = true
	}
	for _, m := range machines {
		if !known[m.Node] {
			paths = append(paths, fabric.NodePath{Node: m.Node})
		}
	}
	return paths
}

// tree builds the tree of a fabric in files, with the links of --topology.
func (o *fabricPlacement) tree(cmd *cobra.Command, levels []string, paths []fabric.NodePath) (*fabric.Tree, error) {
	var ct *v1alpha1.ClusterTopology
	if o.topology != "" {
		var err error
		if ct, err = readClusterTopology(cmd, o.topology); err != nil {
			return nil, err
		}
	}
	spec, err := paperSpec(ct, levels, paths)
	if err != nil {
		return nil, inputf("%s: %w", shownName(o.topology), err)
	}
	tree, faults, err := fabric.NewTree(spec)
	if err == nil && len(faults) > 0 {
		err = &faults[0]
	}
	if err != nil {
		return nil, inputf("%s: %w", shownName(o.fabric), err)
	}
	return tree, nil
}

// paperSpec returns the input for a tree in files. Faults are errors, since they would not be corrected
// later. A node in no domain is none.
func paperSpec(ct *v1alpha1.ClusterTopology, levels []string, paths []fabric.NodePath) (*fabric.Spec, error) {
	if ct == nil {
		inside, outside := fabric.SampleLinks()
		s := &fabric.Spec{Root: outside, Nodes: paths}
		for i, name := range levels {
			link := outside
			if i == len(levels)-1 {
				link = inside
			}
			s.Levels = append(s.Levels, fabric.Level{Name: name, Link: link})
		}
		return s, nil
	}
	s, problems := clustertopology.Spec(ct, nil)
	if len(problems) > 0 {
		return nil, errors.New(problems[0].String())
	}
	// Columns and levels are the same, but in different orders.
	at := make([]int, len(s.Levels))
	for i, l := range s.Levels {
		if at[i] = slices.Index(levels, l.Name); at[i] < 0 {
			return nil, fmt.Errorf("the fabric has no level %q, it has %q", l.Name, levels)
		}
	}
	for _, p := range paths {
		path := make([]string, len(at))
		for i, column := range at {
			if column < len(p.Path) {
				path[i] = p.Path[column]
			}
		}
		s.Nodes = append(s.Nodes, fabric.NodePath{Node: p.Node, Path: path})
	}
	return s, nil
}

// equip gives the nodes their machines, all GPUs free.
func (c *fabricCluster) equip(machines []fabric.Row) error {
	tables := map[string]*nvtopo.Tables{}
	for _, m := range machines {
		t := tables[m.Value]
		if t == nil {
			known, err := machine.Lookup(m.Value)
			if err != nil {
				return fmt.Errorf("line %d: %w", m.Line, err)
			}
			g, err := known.Graph()
			if err != nil {
				return fmt.Errorf("line %d: %w", m.Line, err)
			}
			t = nvtopo.NewTables(g, nvtopo.DefaultWeights())
			tables[m.Value] = t
		}
		n, _ := c.tree.Node(m.Node)
		c.tables[n], c.free[n] = t, t.Graph().Healthy()
		c.order = append(c.order, n)
	}
	return nil
}

// equipped returns the part of the fabric with machines, and its nodes in the order of their file.
func (c *fabricCluster) equipped() (*fabric.Tree, []sim.Node, error) {
	s := &fabric.Spec{Levels: c.tree.Levels()}
	var nodes []sim.Node
	for _, n := range c.order {
		var path []string
		for d := 1; d <= c.tree.Depth(); d++ {
			path = append(path, c.tree.Domains(d)[c.tree.DomainOf(d, n)].Name)
		}
		s.Nodes = append(s.Nodes, fabric.NodePath{Node: c.tree.Name(n), Path: path})
		nodes = append(nodes, sim.Node{Name: c.tree.Name(n), Graph: c.tables[n].Graph()})
	}
	tree, _, err := fabric.NewTree(s)
	return tree, nodes, err
}

// take reduces the nodes' free GPUs to those of the file.
func (c *fabricCluster) take(free []fabric.Row) error {
	for _, f := range free {
		n, ok := c.tree.Node(f.Node)
		if !ok || c.tables[n] == nil {
			return fmt.Errorf("line %d: node %q has no machine", f.Line, f.Node)
		}
		var mask nvtopo.Mask
		for text := range strings.FieldsSeq(f.Value) {
			i, err := strconv.ParseUint(text, 10, 8)
			if err != nil || int(i) >= c.tables[n].Graph().Len() {
				return fmt.Errorf("line %d: node %q has no GPU %q", f.Line, f.Node, text)
			}
			mask |= nvtopo.MaskOf(int(i))
		}
		c.free[n] = mask
	}
	return nil
}

// shape returns the shape of pods of this number of GPUs on the free ones.
func (c *fabricCluster) shape(gpus int, con nvtopo.Constraint) fabric.Shape {
	slotter := fabric.NewSlotCounter()
	s := fabric.Shape{GPUs: gpus, Nodes: make([]fabric.Supply, c.tree.Len())}
	for n, t := range c.tables {
		if t != nil {
			s.Nodes[n].Slots = slotter.Slots(&fabric.Machine{Tables: t, Healthy: t.Graph().Healthy() &^ t.Graph().Degraded(), Free: c.free[n]}, gpus, con)
		}
	}
	return s
}

// readColumn reads a table with the columns node and the given one. A node may occur only once.
func readColumn(cmd *cobra.Command, file, column string) ([]fabric.Row, error) {
	text, err := readLarge(cmd, file)
	if err != nil {
		return nil, err
	}
	out, err := fabric.ReadColumn(bytes.NewReader(text), column)
	if err != nil {
		return nil, inputf("%s: %w", shownName(file), err)
	}
	return out, nil
}
