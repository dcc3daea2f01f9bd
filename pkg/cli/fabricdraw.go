// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Names of the levels in the requirement's summary.
const (
	rackLevel   = "rack"
	switchLevel = "switch"
)

// drawText draws the tree with the free GPUs of each domain.
func (v *fabricView) drawText(w io.Writer, nodes bool) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(out, "DOMAIN\tNODES\tWHOLE\tFREE")
	for _, size := range slotSizes {
		printf(out, "\tx%d", size)
	}
	fmt.Fprintln(out)
	drawDomain(out, v.Cluster, "", "", nodes)
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, l := range v.Links {
		printf(out, "Link\t%s\t%v GB/s, %v µs, %s\n", l.Level, l.BandwidthGBps, l.LatencyMicros, count(l.Hops, "hop"))
	}
	for _, p := range v.Problems {
		printf(out, "Problem\t%s\n", p)
	}
	return out.Flush()
}

// drawDomain draws one domain; first is the prefix of its own line, and rest that of the lines below.
func drawDomain(out io.Writer, d *viewedDomain, first, rest string, nodes bool) {
	note := ""
	if d.Excluded != "" {
		note = "excluded: " + d.Excluded
	}
	drawLine(out, first+d.Name, &d.capacity, note)
	members := d.Members
	if !nodes {
		members = nil
	}
	hidden := 0
	if !nodes && len(d.Domains) > 0 {
		hidden = len(d.Members)
	}
	lines := len(d.Domains) + len(members) + min(hidden, 1)
	branch := func() (string, string) {
		if lines--; lines == 0 {
			return rest + "└─ ", rest + "   "
		}
		return rest + "├─ ", rest + "│  "
	}
	for _, child := range d.Domains {
		own, below := branch()
		drawDomain(out, child, own, below, nodes)
	}
	for i := range members {
		n := &members[i]
		own, _ := branch()
		c := capacity{Nodes: 1, GPUs: n.GPUs, FreeGPUs: len(n.Free), Slots: n.Slots}
		if n.whole {
			c.WholeNodes = 1
		}
		drawLine(out, own+n.Name, &c, n.Note)
	}
	if hidden > 0 {
		own, _ := branch()
		printf(out, "%s%d in none of these\t%d\n", own, hidden, hidden)
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func drawLine(out io.Writer, name string, c *capacity, note string) {
	printf(out, "%s\t%d\t%d\t%d/%d", name, c.Nodes, c.WholeNodes, c.FreeGPUs, c.GPUs)
	for _, size := range slotSizes {
		printf(out, "\t%d", c.Slots[strconv.Itoa(size)])
	}
	if note != "" {
		printf(out, "\t%s", note)
	}
	fmt.Fprintln(out)
}

// drawSummary writes the form of the requirement's visualize_topology: racks, their nodes, and the switch
// of each. Without a level called rack, the innermost is used; without one called switch, the one around
// the racks.
func (c *fabricCluster) drawSummary(w io.Writer) error {
	t := c.tree
	rack, ok := t.DepthOf(rackLevel)
	if !ok {
		rack = t.Depth()
	}
	behind, ok := t.DepthOf(switchLevel)
	if !ok {
		behind = rack - 1
	}
	nameOf := func(depth, node int) string {
		if depth < 1 || t.Domains(depth)[t.DomainOf(depth, node)].Name == "" {
			return "-"
		}
		return t.DomainName(depth, t.DomainOf(depth, node))
	}
	printf(w, "Cluster Topology:\n%s\n", strings.Repeat("=", 50))
	last := ""
	for n := range t.Len() {
		if name := nameOf(rack, n); n == 0 || name != last {
			printf(w, "\nRack: %s\n%s\n", name, strings.Repeat("-", 30))
			last = name
		}
		gpus := 0
		if c.tables[n] != nil {
			gpus = c.tables[n].Graph().Len()
		}
		printf(w, "  %s: %d GPUs, Switch: %s\n", t.Name(n), gpus, nameOf(behind, n))
	}
	return nil
}

// drawDot draws the tree for graphviz.
func (v *fabricView) drawDot(w io.Writer) error {
	fmt.Fprintln(w, "graph fabric {\n  rankdir=LR\n  node [shape=box]")
	speed := map[string]string{}
	for _, l := range v.Links {
		speed[l.Level] = fmt.Sprintf("%v GB/s", l.BandwidthGBps)
	}
	dotDomain(w, v.Cluster, speed)
	_, err := fmt.Fprintln(w, "}")
	return err
}

// dotDomain draws a domain and the edges to its parts, labelled with the speed of its level's link.
func dotDomain(w io.Writer, d *viewedDomain, speed map[string]string) {
	style := ""
	if d.Excluded != "" {
		style = ", style=dashed"
	}
	printf(w, "  %q [label=\"%s %s\\n%d of %d nodes whole, %d of %d GPUs free\"%s]\n",
		d.Level+" "+d.Path, d.Level, d.Name, d.WholeNodes, d.Nodes, d.FreeGPUs, d.GPUs, style)
	for _, child := range d.Domains {
		dotDomain(w, child, speed)
		printf(w, "  %q -- %q [label=%q]\n", d.Level+" "+d.Path, child.Level+" "+child.Path, speed[d.Level])
	}
	for i := range d.Members {
		n := &d.Members[i]
		printf(w, "  %q [label=\"%s\\n%d of %d GPUs free\"]\n  %q -- %q\n", "node "+n.Name, n.Name, len(n.Free), n.GPUs, d.Level+" "+d.Path, "node "+n.Name)
	}
}
