// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

const (
	// mostRatio is the greatest ratio of the time with the bindings to that without.
	mostRatio = 3
	// mostGrowth is the greatest growth of the time with twice the size, beyond a factor of two.
	mostGrowth = 1.5
	// leastMillis is the least time of a request whose figures are judged: a short one is
	// dominated by other costs than the policies'.
	leastMillis = 20
)

// judge returns the missed bars: for long requests, the time with the bindings compared with that
// without, and with that of half the size.
func judge(cells []cell) []string {
	var missed []string
	for i := range cells {
		c := &cells[i]
		if c.With.Median() < leastMillis {
			continue
		}
		name := fmt.Sprintf("%s, %d, %s", c.Kind, c.Size, namespace(c.Tenant, true))
		if r := c.ratio(); r > mostRatio {
			missed = append(missed, fmt.Sprintf("%s: %.1f times as long with the bindings, want at most %d", name, r, mostRatio))
		}
		for j := range cells {
			half := &cells[j]
			if half.Kind != c.Kind || half.Tenant != c.Tenant || 2*half.Size != c.Size || c.Size == 0 {
				continue
			}
			if g := c.With.Median() / half.With.Median() / 2; g > mostGrowth {
				missed = append(missed, fmt.Sprintf("%s: %.1f times as long as half of it, want at most %.0f", name, 2*g, 2*mostGrowth))
			}
		}
	}
	return missed
}

func table(o *options, cells []cell) *report.Table {
	t := &report.Table{
		Title:  fmt.Sprintf("A dry run of a create by a tenant, in ms (median of %d), with all admission policies bound and without:", o.Rounds),
		Header: []string{"what there is much of", "how many", "KiB", "namespace", "with", "without", "ratio", "answer"},
	}
	for i := range cells {
		c := &cells[i]
		answer := "taken"
		if c.Refused != "" {
			answer = "refused"
		}
		size := strconv.Itoa(c.Size)
		if c.Size == 0 {
			size = "–"
		}
		t.Add(c.Kind, size, strconv.Itoa(c.Bytes>>10), namespace(c.Tenant, true), fmt.Sprintf("%.1f", c.With.Median()),
			fmt.Sprintf("%.1f", c.Without.Median()), fmt.Sprintf("%.2f", c.ratio()), answer)
	}
	return t
}
