// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Estimate is a mean and half the width of its confidence interval. A mean that is
// NaN is missing; a half width that is NaN or 0 is not drawn.
type Estimate struct{ Mean, Half float64 }

// Series is one colour of a figure: a value per category (bars) or per X (lines).
type Series struct {
	Name   string
	Values []Estimate
}

// Panel is one set of axes.
type Panel struct {
	Title string
	// Categories are the groups of bars from top to bottom. A panel without
	// categories has lines.
	Categories []string
	// X are the abscissae of a panel of lines.
	X []float64
	// XLabel and YLabel name the axes with their units. Bars are horizontal: their
	// values are on the X axis.
	XLabel, YLabel string
	// Min and Max are the limits of the axis of values; equal means automatic.
	Min, Max float64
	// Log draws a value v of lines at log(1+v): nearly logarithmic, with a place for
	// 0. Values must not be negative; bands are cut off at 0.
	Log bool
	// Series are in the order of the legend, which all panels share.
	Series []Series
}

// Figure is a grid of panels with a title and one legend.
type Figure struct {
	Title string
	// Description states in words the content of the picture.
	Description string
	Columns     int
	Panels      []Panel
}

// Sizes are in points of 1/72 inch.
const (
	panelWidth    = vg.Length(430)
	linesHeight   = vg.Length(270)
	barWidth      = vg.Length(6)
	barGroupGap   = vg.Length(5)
	barsFrame     = vg.Length(70) // title, ticks and label of a panel of bars
	figureMargin  = vg.Length(8)
	panelGap      = vg.Length(14)
	titleHeight   = vg.Length(26)
	legendRow     = vg.Length(16)
	legendEntries = 5 // a row
)

// Save writes the figure to a file, and the directories on the way.
func (f *Figure) Save(path string) error {
	var b bytes.Buffer
	if err := f.WriteSVG(&b); err != nil {
		return fmt.Errorf("drawing %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the directory of %s: %w", path, err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// WriteSVG draws the figure.
func (f *Figure) WriteSVG(w io.Writer) error {
	if err := f.validate(); err != nil {
		return err
	}
	columns := min(max(f.Columns, 1), len(f.Panels))
	rows := (len(f.Panels) + columns - 1) / columns
	// All panels are as high as the highest, so that the grid is even.
	var high vg.Length
	for i := range f.Panels {
		high = max(high, f.Panels[i].height())
	}
	names := f.Panels[0].Series
	legendRows := (len(names) + legendEntries - 1) / legendEntries
	head := titleHeight + vg.Length(legendRows)*legendRow + panelGap
	width := vg.Length(columns)*panelWidth + vg.Length(columns-1)*panelGap + 2*figureMargin
	height := head + vg.Length(rows)*high + vg.Length(rows-1)*panelGap + 2*figureMargin

	svg := vgsvg.New(width, height)
	all := draw.New(svg)
	all.SetColor(background)
	all.Fill(all.Path())
	c := draw.Crop(all, figureMargin, -figureMargin, figureMargin, -figureMargin)
	c.FillText(textStyle(13, bold), vg.Point{X: c.Min.X, Y: c.Max.Y - 14}, f.Title)
	f.drawLegend(draw.Crop(c, 0, 0, 0, -titleHeight))

	for i := range f.Panels {
		p, err := f.Panels[i].plot()
		if err != nil {
			return fmt.Errorf("panel %q: %w", f.Panels[i].Title, err)
		}
		left := c.Min.X + vg.Length(i%columns)*(panelWidth+panelGap)
		top := c.Max.Y - head - vg.Length(i/columns)*(high+panelGap)
		p.Draw(draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: left, Y: top - high}, Max: vg.Point{X: left + panelWidth, Y: top},
		}})
	}
	return f.write(w, svg)
}

func (f *Figure) validate() error {
	if len(f.Panels) == 0 {
		return errors.New("a figure without panels")
	}
	for i := range f.Panels {
		p := &f.Panels[i]
		n := len(p.Categories)
		if n == 0 {
			n = len(p.X)
		}
		if n == 0 || len(p.Series) == 0 {
			return fmt.Errorf("panel %q has nothing to draw", p.Title)
		}
		for k, s := range p.Series {
			if len(s.Values) != n {
				return fmt.Errorf("panel %q: series %q has %d values, not %d", p.Title, s.Name, len(s.Values), n)
			}
			if p.Log && slices.ContainsFunc(s.Values, func(v Estimate) bool { return v.Mean < 0 }) {
				return fmt.Errorf("panel %q: series %q has a negative value on a logarithmic axis", p.Title, s.Name)
			}
			if k >= len(f.Panels[0].Series) || f.Panels[0].Series[k].Name != s.Name {
				return fmt.Errorf("panel %q: series %q is not that of the first panel, and the legend is shared", p.Title, s.Name)
			}
		}
	}
	return nil
}

// drawLegend spreads the entries over rows below the title.
func (f *Figure) drawLegend(c draw.Canvas) {
	series := f.Panels[0].Series
	if len(series) < 2 {
		return
	}
	cell := (c.Max.X - c.Min.X) / legendEntries
	for i, s := range series {
		l := gonum.NewLegend()
		l.Left, l.Top, l.TextStyle, l.ThumbnailWidth = true, true, textStyle(9, regular), 18
		l.Add(s.Name, f.Panels[0].thumbnail(i))
		at := vg.Point{X: c.Min.X + vg.Length(i%legendEntries)*cell, Y: c.Max.Y - vg.Length(i/legendEntries)*legendRow}
		l.Draw(draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: at.X, Y: at.Y - legendRow}, Max: vg.Point{X: at.X + cell, Y: at.Y},
		}})
	}
}

// write adds the parts that gonum's SVG lacks: a title and a description for readers
// who do not see the picture, and fallbacks for gonum's fonts.
func (f *Figure) write(w io.Writer, svg io.WriterTo) error {
	var b bytes.Buffer
	if _, err := svg.WriteTo(&b); err != nil {
		return fmt.Errorf("writing the SVG: %w", err)
	}
	text := strings.ReplaceAll(b.String(), "font-family:Liberation Sans;", "font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")
	at := strings.Index(text, "<svg ")
	end := -1
	if at >= 0 {
		end = strings.Index(text[at:], ">")
	}
	if end < 0 {
		return errors.New("gonum wrote no svg element")
	}
	var named bytes.Buffer
	named.WriteString(text[:at] + `<svg role="img" aria-labelledby="title desc" ` + text[at+len("<svg "):at+end+1] + "\n")
	for _, e := range []struct{ name, text string }{{"title", f.Title}, {"desc", f.Description}} {
		fmt.Fprintf(&named, `<%s id="%s">`, e.name, e.name)
		if err := xml.EscapeText(&named, []byte(e.text)); err != nil {
			return fmt.Errorf("writing the %s: %w", e.name, err)
		}
		fmt.Fprintf(&named, "</%s>\n", e.name)
	}
	named.WriteString(text[at+end+1:])
	if _, err := named.WriteTo(w); err != nil {
		return fmt.Errorf("writing the SVG: %w", err)
	}
	return nil
}
