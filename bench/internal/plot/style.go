// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"image/color"

	xfont "golang.org/x/image/font"
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	regular = xfont.WeightNormal
	bold    = xfont.WeightBold
)

// background is opaque, since the page behind a figure may be dark.
var background = color.White

var (
	gridLine  = draw.LineStyle{Color: color.Gray{Y: 224}, Width: 0.5}
	errorLine = draw.LineStyle{Color: color.Gray{Y: 40}, Width: 0.8}
)

// seriesColor returns the colours of Okabe and Ito, which remain distinct for
// colour-blind readers, darkest and most different first.
func seriesColor(i int) color.NRGBA {
	palette := [...]color.NRGBA{
		{0x00, 0x72, 0xb2, 0xff}, // blue
		{0xe6, 0x9f, 0x00, 0xff}, // orange
		{0x00, 0x9e, 0x73, 0xff}, // green
		{0xcc, 0x79, 0xa7, 0xff}, // purple
		{0xd5, 0x5e, 0x00, 0xff}, // vermilion
		{0x56, 0xb4, 0xe9, 0xff}, // sky blue
		{0x70, 0x70, 0x70, 0xff}, // grey
	}
	return palette[i%len(palette)]
}

func seriesBand(i int) color.NRGBA {
	c := seriesColor(i)
	c.A = 0x38
	return c
}

// seriesLine and seriesGlyph differ in more than the colour.
func seriesLine(i int) draw.LineStyle {
	dashes := [...][]vg.Length{nil, {5, 2}, {2, 2}, {7, 2, 2, 2}}
	return draw.LineStyle{Color: seriesColor(i), Width: 1.5, Dashes: dashes[i%len(dashes)]}
}

func seriesGlyph(i int) draw.GlyphStyle {
	shapes := [...]draw.GlyphDrawer{
		draw.CircleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.TriangleGlyph{},
	}
	return draw.GlyphStyle{Color: seriesColor(i), Radius: 3, Shape: shapes[i%len(shapes)]}
}

func sans(size vg.Length, weight xfont.Weight) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Weight: weight, Size: size}
}

func textStyle(size vg.Length, weight xfont.Weight) text.Style {
	return text.Style{Color: color.Gray{Y: 32}, Font: sans(size, weight), Handler: gonum.DefaultTextHandler}
}

// newPlot is gonum's default in the figure's fonts, without frames.
func newPlot() *gonum.Plot {
	p := gonum.New()
	p.BackgroundColor = nil // the figure has drawn it
	p.Title.TextStyle.Font = sans(11, bold)
	p.Title.Padding = 4
	for _, axis := range []*gonum.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = sans(9, regular)
		axis.Tick.Label.Font = sans(8.5, regular)
	}
	return p
}
