// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/nvtopo/nvtopo/bench/internal/plot"
)

// figure returns a figure with a panel for each mix on the Lingjun fabric, and a line over
// the loads for each policy; nil if there is only one load.
func figure(cells []CellSummary) *plot.Figure {
	f := &plot.Figure{Title: "Gangs in one rack, of those that could be in one", Columns: 3}
	for _, m := range mixes() {
		panel := plot.Panel{Title: m.name, XLabel: "load, GPU time asked for by GPU time there is", YLabel: "%", Max: 100}
		for i := range cells {
			c := &cells[i]
			if c.Cluster != lingjunName || c.Mix != m.name || c.PodPolicy != "" {
				continue
			}
			panel.X = append(panel.X, c.Load)
			for k, p := range c.Policies {
				if k == len(panel.Series) {
					panel.Series = append(panel.Series, plot.Series{Name: p.String()})
				}
				s := &panel.Series[k]
				s.Values = append(s.Values, plot.Estimate{Mean: 100 * p.OneRack})
			}
		}
		if len(panel.X) < 2 {
			continue
		}
		f.Panels = append(f.Panels, panel)
		last := len(panel.X) - 1
		f.Description += fmt.Sprintf("%s at load %g:", m.name, panel.X[last])
		for _, s := range panel.Series {
			f.Description += fmt.Sprintf(" %s %.1f %%;", s.Name, s.Values[last].Mean)
		}
		f.Description += " "
	}
	if len(f.Panels) == 0 {
		return nil
	}
	return f
}
