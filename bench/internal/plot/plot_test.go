// SPDX-License-Identifier: Apache-2.0

package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func bars() *Figure {
	nan := math.NaN()
	return &Figure{
		Title: "Best class & more", Description: "ours < all", Columns: 2,
		Panels: []Panel{
			{
				Title: "PCIe", XLabel: "share, %", Max: 100, Categories: []string{"ours", "binpack+exact", "spread+random"},
				Series: []Series{
					{"load 0.85", []Estimate{{99.5, 0.2}, {76, 1.5}, {33, nan}}},
					{"load 0.95", []Estimate{{96, 1}, {nan, nan}, {31, 0}}},
				},
			},
			{
				Title: "DGX-1V", XLabel: "share, %", Max: 100, Categories: []string{"ours", "binpack+exact"},
				Series: []Series{{"load 0.85", []Estimate{{99, 1}, {83, 2}}}, {"load 0.95", []Estimate{{97, 1}, {78, 2}}}},
			},
		},
	}
}

func lines() *Figure {
	return &Figure{
		Title: "Waiting time", Description: "by load", Columns: 1,
		Panels: []Panel{{
			Title: "mixed", XLabel: "offered load", YLabel: "mean wait, s", X: []float64{0.75, 0.85, 0.95},
			Series: []Series{
				{"ours", []Estimate{{20, 3}, {130, 30}, {420, 90}}},
				{"binpack+exact", []Estimate{{25, 3}, {math.NaN(), 0}, {500, 110}}},
			},
		}},
	}
}

// texts returns the character data of the elements of a name, and fails on
// malformed XML.
func texts(t *testing.T, svg []byte, name string) []string {
	t.Helper()
	var out []string
	d := xml.NewDecoder(bytes.NewReader(svg))
	inside := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("not XML: %v", err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			inside = e.Name.Local == name
		case xml.EndElement:
			inside = false
		case xml.CharData:
			if inside {
				out = append(out, string(e))
			}
		}
	}
}

// TestFigureLabels: a figure has its labels.
func TestFigureLabels(t *testing.T) {
	var b bytes.Buffer
	if err := bars().WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Best class & more"}, texts(t, b.Bytes(), "title")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"ours < all"}, texts(t, b.Bytes(), "desc")); diff != "" {
		t.Error(diff)
	}
	all := strings.Join(texts(t, b.Bytes(), "text"), "\n") + "\n"
	for _, want := range []string{"Best class & more", "PCIe", "DGX-1V", "share, %", "ours", "spread+random", "load 0.85", "load 0.95", "100"} {
		if !strings.Contains(all, want+"\n") {
			t.Errorf("no text %q in the figure", want)
		}
	}
}

// TestMissingValues: missing values are left out.
func TestMissingValues(t *testing.T) {
	count := func(f *Figure) int {
		var b bytes.Buffer
		if err := f.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		return strings.Count(b.String(), "fill:"+"#E69F00")
	}
	full := bars()
	full.Panels[0].Series[1].Values[1] = Estimate{70, math.NaN()}
	if got, want := count(bars()), count(full)-1; got != want {
		t.Errorf("%d shapes in the second colour with one bar missing, want %d", got, want)
	}
}

// TestFigureDeterminism: the same figure has the same bytes.
func TestFigureDeterminism(t *testing.T) {
	for name, f := range map[string]func() *Figure{"bars": bars, "lines": lines} {
		t.Run(name, func(t *testing.T) {
			var a, b bytes.Buffer
			if err := errors.Join(f().WriteSVG(&a), f().WriteSVG(&b)); err != nil {
				t.Fatal(err)
			}
			if a.Len() < 1000 || !bytes.Equal(a.Bytes(), b.Bytes()) {
				t.Errorf("two drawings of %d and %d bytes differ", a.Len(), b.Len())
			}
		})
	}
}

// TestFigureErrors: a figure that cannot be drawn is refused.
func TestFigureErrors(t *testing.T) {
	tests := map[string]func(*Figure){
		"no panels": func(f *Figure) { f.Panels = nil },
		"a negative logarithm": func(f *Figure) {
			f.Panels[0].Log, f.Panels[0].Series[0].Values[0].Mean = true, -1
		},
		"a value too few":            func(f *Figure) { f.Panels[0].Series[0].Values = f.Panels[0].Series[0].Values[:2] },
		"another legend in a panel":  func(f *Figure) { f.Panels[1].Series[0].Name = "other" },
		"a panel without categories": func(f *Figure) { f.Panels[1].Categories = nil },
		"an infinite bar":            func(f *Figure) { f.Panels[0].Series[0].Values[0].Mean = math.Inf(1) },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			f := bars()
			spoil(f)
			if err := f.WriteSVG(io.Discard); err == nil {
				t.Error("was drawn")
			}
		})
	}
}

// TestSaveDirectory: Save makes the directory.
func TestSaveDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plots", "wait.svg")
	if err := lines().Save(path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := texts(t, data, "title"); len(got) != 1 || got[0] != "Waiting time" {
		t.Errorf("title %q", got)
	}
}

// TestLogarithmicAxisZero: a logarithmic axis has a place for zero.
func TestLogarithmicAxisZero(t *testing.T) {
	var s logScale
	if low, high := s.Normalize(0, 9999, 0), s.Normalize(0, 9999, 9999); low != 0 || high != 1 {
		t.Errorf("limits lie at %v and %v, want 0 and 1", low, high)
	}
	if got := s.Normalize(0, 9999, 99); math.Abs(got-0.5) > 1e-12 {
		t.Errorf("99 of 9999 lies at %v, want 0.5", got)
	}
	f := lines()
	f.Panels[0].Log = true
	f.Panels[0].Series[0].Values[0] = Estimate{0, 5} // its band would reach below 0
	var b bytes.Buffer
	if err := f.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(texts(t, b.Bytes(), "text"), "\n") + "\n"
	for _, want := range []string{"0", "1", "10", "100"} {
		if !strings.Contains(all, "\n"+want+"\n") {
			t.Errorf("no tick %s", want)
		}
	}
	if strings.Contains(b.String(), "NaN") {
		t.Error("a point is nowhere")
	}
}

// TestTickRounding: ticks are round.
func TestTickRounding(t *testing.T) {
	tests := map[string]struct {
		low, high float64
		want      string
	}{
		"percent":                   {0, 100, "0 20 40 60 80 100"},
		"a little more":             {0, 97.4, "0 20 40 60 80"},
		"seconds":                   {0, 31_400, "0 10000 20000 30000"},
		"parts of one":              {0, 0.9, "0 0.2 0.4 0.6 0.8"},
		"not from zero":             {0.75, 1.05, "0.8 0.9 1"},
		"from a little below zero":  {-1, 41, "0 10 20 30 40"},
		"a range without an extent": {3, 3, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, tick := range (evenTicks{}).Ticks(tc.low, tc.high) {
				got = append(got, tick.Label)
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
