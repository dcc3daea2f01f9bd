// SPDX-License-Identifier: Apache-2.0

package pooldemo

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// show writes a picture: the number of GPUs of each tenant, and a letter for each GPU of each node.
func show(b *strings.Builder, title string, pods []held, by map[string]int64, waiting map[string]int) {
	fmt.Fprintf(b, "%s\n", title)
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "     tenant\tguaranteed\tweight\tlimit\tholds\twaiting jobs")
	for _, t := range tenants() {
		fmt.Fprintf(table, "  %c  %s\t%d\t%d\t%d\t%d\t%d\n", t.letter, t.name, t.guaranteed, t.weight, t.limit, by[t.name], waiting[t.name])
	}
	_ = table.Flush() // a Builder takes all
	fmt.Fprintf(b, "    %s\n\n", strings.Join(draw(pods), " "))
}

// draw returns a word for each node with a letter for each GPU: its tenant's, or a dot.
func draw(pods []held) []string {
	by := map[string][]rune{}
	for _, t := range tenants() {
		for _, p := range pods {
			if p.tenant == t.name {
				by[p.node] = append(by[p.node], slices.Repeat([]rune{t.letter}, int(p.gpus))...)
			}
		}
	}
	var out []string
	for _, n := range Nodes() {
		word := by[n.Name]
		for len(word) < gpusPerNode {
			word = append(word, '.')
		}
		out = append(out, string(word))
	}
	return out
}
