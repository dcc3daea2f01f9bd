// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pairValues draws a symmetric table of n x n values, with self on the diagonal.
func pairValues(r *rand.Rand, n int, self string, of []string) [][]string {
	rows := make([][]string, n)
	for i := range rows {
		rows[i] = make([]string, n)
		rows[i][i] = self
		for j := range i {
			rows[i][j] = of[r.IntN(len(of))]
			rows[j][i] = rows[i][j]
		}
	}
	return rows
}

// table prints the rows under a header, in columns as the tools do.
func table(prefix string, rows [][]string) string {
	var b strings.Builder
	b.WriteString("           ")
	for j := range rows {
		fmt.Fprintf(&b, "%-11s", fmt.Sprint(prefix, j))
	}
	for i, row := range rows {
		fmt.Fprintf(&b, "\n%-11s", fmt.Sprint(prefix, i))
		for _, v := range row {
			fmt.Fprintf(&b, "%-11s", v)
		}
	}
	return b.String() + "\n"
}

// TestPrintedMachines: every tool's output is read back. It prints random machines as each tool
// does, and reads them.
func TestPrintedMachines(t *testing.T) {
	r := rand.New(rand.NewPCG(18, 27))
	npuClass := map[string]string{"HCCS": "HCCS1", "HCCS_SW": "HCCS7", "SIO": "HCCS9"}
	for round := range 300 {
		n := 1 + r.IntN(16)
		printed := pairValues(r, n, "X", []string{"HCCS", "HCCS_SW", "SIO", "PIX", "PXB", "PHB", "SYS"})
		g, err := Parse(strings.NewReader(table("NPU", printed)), Options{})
		if err != nil {
			t.Fatalf("round %d: %v\n%s", round, err, table("NPU", printed))
		}
		var want []string
		for i, row := range printed {
			for j, v := range row {
				if c, ok := npuClass[v]; ok {
					row[j] = c
				}
				if g.Link(i, j).Switched != (v == "HCCS_SW") {
					t.Errorf("round %d: %d to %d is %s, and switched: %t", round, i, j, v, g.Link(i, j).Switched)
				}
			}
			want = append(want, strings.Join(row, " "))
		}
		if d := cmp.Diff(want, classes(g)); d != "" {
			t.Fatalf("round %d (-printed +read):\n%s", round, d)
		}
	}
}

// TestROCmOutput: the output of ROCm's tools is read. It computes class and bandwidth from the
// printed values, by the rules as the docs state them.
func TestROCmOutput(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 18))
	for round := range 300 {
		n := 1 + r.IntN(16)
		types := pairValues(r, n, "0", []string{"XGMI", "PCIE"})
		weights := pairValues(r, n, "0", []string{"15", "30", "45"})
		hops := pairValues(r, n, "0", []string{"2", "3", "4"})
		var text strings.Builder
		for _, s := range []struct {
			title string
			rows  [][]string
		}{{rocmWeights, weights}, {rocmHops, hops}, {rocmLinks, types}} {
			fmt.Fprintf(&text, "===== %s =====\n%s\n", s.title, table("GPU", s.rows))
		}
		g, err := Parse(strings.NewReader(text.String()), Options{Model: "MI300X"})
		if err != nil {
			t.Fatalf("round %d: %v\n%s", round, err, text.String())
		}
		for i := range n {
			for j := range n {
				var class string
				var kBps int64
				switch {
				case i == j:
				case types[i][j] == "XGMI":
					class, kBps = "XGMI1", map[string]int64{"15": 64_000_000, "30": 32_000_000, "45": 21_333_333}[weights[i][j]]
				case hops[i][j] == "2":
					class, kBps = "NODE", 20_400_000
				default:
					class, kBps = "SYS", 12_000_000
				}
				if l := g.Link(i, j); l.Class.String() != class || l.Bandwidth != kBps {
					t.Fatalf("round %d: %d to %d is %s of %d kB/s, want %s of %d", round, i, j, l.Class, l.Bandwidth, class, kBps)
				}
			}
		}
	}
}
