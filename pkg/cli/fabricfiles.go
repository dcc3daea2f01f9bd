// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// fabricCluster is a cluster on paper.
type fabricCluster struct {
	tree   *fabric.Tree
	tables []*nvtopo.Tables // by node; nil for one without GPUs
	free   []nvtopo.Mask
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
	machines, err := readPairs(cmd, o.nodes, "machine")
	if err != nil {
		return nil, err
	}
	var free []pairLine
	if o.free != "" {
		if free, err = readPairs(cmd, o.free, "free"); err != nil {
			return nil, err
		}
	}
	tree, err := paperTree(levels, paths, machines)
	if err != nil {
		return nil, inputf("%s: %w", shownName(o.fabric), err)
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

// paperTree builds the tree of a fabric and of the nodes that are not in it. On paper a fault
// is an error: nobody waits for it to be mended.
func paperTree(levels []string, paths []fabric.NodePath, machines []pairLine) (*fabric.Tree, error) {
	inside, outside := fabric.SampleLinks()
	s := &fabric.Spec{Root: outside, Nodes: paths}
	for i, name := range levels {
		link := outside
		if i == len(levels)-1 {
			link = inside
		}
		s.Levels = append(s.Levels, fabric.Level{Name: name, Link: link})
	}
	known := map[string]bool{}
	for _, p := range paths {
		known[p.Node] = true
	}
	for _, m := range machines {
		if !known[m.node] {
			s.Nodes = append(s.Nodes, fabric.NodePath{Node: m.node})
		}
	}
	tree, faults, err := fabric.NewTree(s)
	if err == nil && len(faults) > 0 {
		err = &faults[0]
	}
	return tree, err
}

// equip gives the nodes their machines, all GPUs free.
func (c *fabricCluster) equip(machines []pairLine) error {
	tables := map[string]*nvtopo.Tables{}
	for _, m := range machines {
		t := tables[m.value]
		if t == nil {
			known, err := machine.Lookup(m.value)
			if err != nil {
				return fmt.Errorf("line %d: %w", m.line, err)
			}
			g, err := known.Graph()
			if err != nil {
				return fmt.Errorf("line %d: %w", m.line, err)
			}
			t = nvtopo.NewTables(g, nvtopo.DefaultWeights())
			tables[m.value] = t
		}
		n, _ := c.tree.Node(m.node)
		c.tables[n], c.free[n] = t, t.Graph().Healthy()
	}
	return nil
}

// take leaves the nodes only what is free.
func (c *fabricCluster) take(free []pairLine) error {
	for _, f := range free {
		n, ok := c.tree.Node(f.node)
		if !ok || c.tables[n] == nil {
			return fmt.Errorf("line %d: node %q has no machine", f.line, f.node)
		}
		var mask nvtopo.Mask
		for text := range strings.FieldsSeq(f.value) {
			i, err := strconv.ParseUint(text, 10, 8)
			if err != nil || int(i) >= c.tables[n].Graph().Len() {
				return fmt.Errorf("line %d: node %q has no GPU %q", f.line, f.node, text)
			}
			mask |= nvtopo.MaskOf(int(i))
		}
		c.free[n] = mask
	}
	return nil
}

// shape is pods of so many GPUs on what is free.
func (c *fabricCluster) shape(gpus int, con nvtopo.Constraint) fabric.Shape {
	slotter := fabric.NewSlotter()
	s := fabric.Shape{GPUs: gpus, Nodes: make([]fabric.Supply, c.tree.Len())}
	for n, t := range c.tables {
		if t != nil {
			s.Nodes[n].Slots = slotter.Slots(&fabric.Machine{Tables: t, Healthy: t.Graph().Healthy(), Free: c.free[n]}, gpus, con)
		}
	}
	return s
}

// pairLine is a line of a table of two columns.
type pairLine struct {
	line        int
	node, value string
}

// readPairs reads a table with the columns node and the given one. No node may be there twice.
func readPairs(cmd *cobra.Command, file, column string) ([]pairLine, error) {
	text, err := readLarge(cmd, file)
	if err != nil {
		return nil, err
	}
	out, err := parsePairs(bytes.NewReader(text), column)
	if err != nil {
		return nil, inputf("%s: %w", shownName(file), err)
	}
	return out, nil
}

func parsePairs(r io.Reader, column string) (out []pairLine, err error) {
	rows := csv.NewReader(r)
	rows.FieldsPerRecord = 2
	seen := map[string]bool{}
	for first := true; ; first = false {
		row, err := rows.Read()
		switch {
		case errors.Is(err, io.EOF) && first:
			return nil, fmt.Errorf("no header: want node,%s", column)
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
		node, value := strings.TrimSpace(row[0]), strings.TrimSpace(row[1])
		line, _ := rows.FieldPos(0)
		switch {
		case first:
			if strings.TrimPrefix(node, "\ufeff") != "node" || value != column {
				return nil, fmt.Errorf("line 1: the header is %s,%s, want node,%s", node, value, column)
			}
			continue
		case node == "":
			return nil, fmt.Errorf("line %d: a node has no name", line)
		case seen[node]:
			return nil, fmt.Errorf("line %d: node %q is there twice", line, node)
		}
		seen[node] = true
		out = append(out, pairLine{line, node, value})
	}
}
