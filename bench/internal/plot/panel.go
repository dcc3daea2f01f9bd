// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"fmt"
	"math"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

func (p *Panel) height() vg.Length {
	if len(p.Categories) == 0 {
		return linesHeight
	}
	group := vg.Length(len(p.Series))*barWidth + barGroupGap
	return vg.Length(len(p.Categories))*group + barsFrame
}

func (p *Panel) plot() (*gonum.Plot, error) {
	out := newPlot()
	out.Title.Text, out.X.Label.Text, out.Y.Label.Text = p.Title, p.XLabel, p.YLabel
	if len(p.Categories) > 0 {
		return out, p.addBars(out)
	}
	return out, p.addLines(out)
}

func (p *Panel) thumbnail(series int) gonum.Thumbnailer {
	if len(p.Categories) > 0 {
		return &plotter.BarChart{Color: seriesColor(series)}
	}
	return &lineThumbnail{line: &plotter.Line{LineStyle: seriesLine(series)}, points: &plotter.Scatter{GlyphStyle: seriesGlyph(series)}}
}

// lineThumbnail is a piece of the line with its marker.
type lineThumbnail struct {
	line   *plotter.Line
	points *plotter.Scatter
}

// Thumbnail draws the entry's sign into the legend.
func (t *lineThumbnail) Thumbnail(c *draw.Canvas) {
	t.line.Thumbnail(c)
	t.points.Thumbnail(c)
}

// addBars draws every bar as a chart of its own, because a chart of gonum's
// cannot leave a value out.
func (p *Panel) addBars(out *gonum.Plot) error {
	n := len(p.Categories)
	group := float64(vg.Length(len(p.Series))*barWidth + barGroupGap)
	grid := plotter.NewGrid()
	grid.Horizontal.Width, grid.Vertical = 0, gridLine
	out.Add(grid)
	for k, s := range p.Series {
		// In units of the category axis, where a group is 1 high.
		shift := (float64(len(p.Series)-1)/2 - float64(k)) * float64(barWidth) / group
		ends := &plotter.XErrorBars{LineStyle: errorLine, CapWidth: barWidth - 2}
		for i, v := range s.Values {
			if math.IsNaN(v.Mean) {
				continue
			}
			y := float64(n-1-i) + shift
			bar, err := plotter.NewBarChart(plotter.Values{v.Mean}, barWidth)
			if err != nil {
				return fmt.Errorf("bar of %q: %w", p.Categories[i], err)
			}
			bar.Horizontal, bar.XMin, bar.Color, bar.LineStyle.Width = true, y, seriesColor(k), 0
			out.Add(bar)
			if v.Half > 0 {
				ends.XYs = append(ends.XYs, plotter.XY{X: v.Mean, Y: y})
				ends.XErrors = append(ends.XErrors, struct{ Low, High float64 }{-v.Half, v.Half})
			}
		}
		if len(ends.XYs) > 0 {
			out.Add(ends)
		}
	}
	names := make([]string, n)
	for i, name := range p.Categories {
		names[n-1-i] = name
	}
	out.NominalY(names...)
	out.Y.Min, out.Y.Max = -0.5, float64(n)-0.5
	out.X.Min = min(out.X.Min, 0)
	p.limit(&out.X)
	out.X.Tick.Marker = evenTicks{}
	// Room for fonts wider than those used for the layout.
	out.Y.Padding = 10
	return nil
}

func (p *Panel) addLines(out *gonum.Plot) error {
	grid := plotter.NewGrid()
	grid.Horizontal, grid.Vertical = gridLine, gridLine
	out.Add(grid)
	for k, s := range p.Series {
		var mean, low, high plotter.XYs
		for i, v := range s.Values {
			if math.IsNaN(v.Mean) {
				continue
			}
			half := 0.0
			if v.Half > 0 {
				half = v.Half
			}
			under := v.Mean - half
			if p.Log {
				under = max(under, 0)
			}
			mean = append(mean, plotter.XY{X: p.X[i], Y: v.Mean})
			low = append(low, plotter.XY{X: p.X[i], Y: under})
			high = append(high, plotter.XY{X: p.X[i], Y: v.Mean + half})
		}
		if len(mean) == 0 {
			continue
		}
		band, err := plotter.NewPolygon(ring(low, high))
		if err != nil {
			return fmt.Errorf("band of %q: %w", s.Name, err)
		}
		band.Color, band.Width = seriesBand(k), 0
		line, points, err := plotter.NewLinePoints(mean)
		if err != nil {
			return fmt.Errorf("line of %q: %w", s.Name, err)
		}
		line.LineStyle, points.GlyphStyle = seriesLine(k), seriesGlyph(k)
		out.Add(band, line, points)
	}
	out.Y.Min = min(out.Y.Min, 0)
	p.limit(&out.Y)
	out.Y.Tick.Marker = evenTicks{}
	if p.Log {
		out.Y.Scale, out.Y.Tick.Marker = logScale{}, powerTicks{}
	}
	out.X.Tick.Marker = valueTicks(p.X)
	return nil
}

// ring walks along the lower line and back along the upper one.
func ring(low, high plotter.XYs) plotter.XYs {
	out := append(plotter.XYs{}, low...)
	for i := len(high) - 1; i >= 0; i-- {
		out = append(out, high[i])
	}
	return out
}

func (p *Panel) limit(axis *gonum.Axis) {
	if p.Min != p.Max {
		axis.Min, axis.Max = p.Min, p.Max
	}
}
