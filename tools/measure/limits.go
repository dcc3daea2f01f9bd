// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"

	"go.yaml.in/yaml/v3"
)

// Defaults for a type or a package without a limit in limits.yaml.
const (
	mostFunctions = 40
	mostFields    = 12
	mostUpward    = 2
)

// Figures are all measured figures.
type Figures struct {
	Modules  int
	Packages int // folders with hand-written Go files that are not tests, of all modules
	Mutexes  int // of the main module, as are types, arrows and walks
	Types    []Type
	Upward   []Upward
	Rooms    []Room
	Comments Words // of hand-written Go files without tests
	Docs     Words
	Walks    []Walk
}

// Limits are the greatest values that figures may have.
type Limits struct {
	Types  map[string]TypeLimit          `yaml:"types"`  // by name
	Upward map[string]int                `yaml:"upward"` // package -> arrows upward
	Rooms  map[string]int                `yaml:"rooms"`  // room -> lines
	Words  map[string]map[string]float64 `yaml:"words"`  // comments, docs -> word -> times in 1,000
	Walks  map[string]WalkLimit          `yaml:"walks"`  // by start
}

// TypeLimit is the limit of a type that may be larger than the default; zero stands for the default.
type TypeLimit struct {
	Functions int `yaml:"functions,omitempty"`
	Fields    int `yaml:"fields,omitempty"`
}

// WalkLimit is the limit of one walk.
type WalkLimit struct {
	Stays  int `yaml:"stays"`
	Climbs int `yaml:"climbs"`
}

// limitsHeader begins limits.yaml.
const limitsHeader = `# SPDX-License-Identifier: Apache-2.0
#
# The most that the figures of tools/measure may be; make lint fails above it. Lower them after a
# change that makes less of something. To raise one is a decision: say why in the commit.
# "go run -C tools ./measure -write", in the repository, writes today's figures.
#
# A type that is not named here may have %d functions and %d fields, a package %d arrows upward, and
# a room is named. Lines are today's and 2 %%; stays of walks today's and 5 %%.
`

// above returns a line for each figure that is above its limit.
func (l *Limits) above(f *Figures) []string {
	var lines []string
	compare := func(what string, figure, limit float64, unit string) {
		if figure > limit {
			lines = append(lines, fmt.Sprintf("%s: %g %s, the limit is %g", what, figure, unit, limit))
		}
	}
	for _, t := range f.Types {
		limit := l.Types[t.Name]
		compare("type "+t.Name, float64(t.Functions), float64(max(limit.Functions, mostFunctions)), "functions with it as receiver or parameter")
		compare("type "+t.Name, float64(t.Fields), float64(max(limit.Fields, mostFields)), "fields")
	}
	for _, u := range f.Upward {
		compare("package "+u.Package, float64(len(u.Up)), float64(max(l.Upward[u.Package], mostUpward)),
			"arrows between files upward (`go run -C tools ./measure -upward "+u.Package+"` names them)")
	}
	for _, r := range f.Rooms {
		compare("room "+r.Name, float64(r.Lines), float64(l.Rooms[r.Name]), "lines")
	}
	for _, text := range f.texts() {
		for _, one := range watched {
			compare(text.name, rounded(text.rate(one)), l.Words[text.name][one], fmt.Sprintf("times %q in 1,000 words", one))
		}
	}
	for _, w := range f.Walks {
		compare("walk "+w.Start, float64(w.Stays), float64(l.Walks[w.Start].Stays), "functions")
		compare("walk "+w.Start, float64(w.Climbs), float64(l.Walks[w.Start].Climbs), "calls upward")
	}
	return lines
}

type text struct {
	name string
	*Words
}

func (f *Figures) texts() []text { return []text{{"comments", &f.Comments}, {"docs", &f.Docs}} }

// rounded rounds up to a tenth.
func rounded(rate float64) float64 { return math.Ceil(10*rate) / 10 }

// limitsOf returns limits that figures just meet, with the slack that limitsHeader describes.
func limitsOf(f *Figures) *Limits {
	l := &Limits{
		Types: map[string]TypeLimit{}, Upward: map[string]int{}, Rooms: map[string]int{}, Words: map[string]map[string]float64{}, Walks: map[string]WalkLimit{},
	}
	for _, t := range f.Types {
		var limit TypeLimit
		if t.Functions > mostFunctions {
			limit.Functions = t.Functions
		}
		if t.Fields > mostFields {
			limit.Fields = t.Fields
		}
		if limit != (TypeLimit{}) {
			l.Types[t.Name] = limit
		}
	}
	for _, u := range f.Upward {
		if len(u.Up) > mostUpward {
			l.Upward[u.Package] = len(u.Up)
		}
	}
	for _, r := range f.Rooms {
		l.Rooms[r.Name] = (r.Lines*102/100 + 10) / 10 * 10
	}
	for _, text := range f.texts() {
		l.Words[text.name] = map[string]float64{}
		for _, one := range watched {
			l.Words[text.name][one] = rounded(text.rate(one))
		}
	}
	for _, w := range f.Walks {
		l.Walks[w.Start] = WalkLimit{Stays: (w.Stays*105 + 99) / 100, Climbs: w.Climbs}
	}
	return l
}

// walks returns the starts of the limited walks, sorted.
func (l *Limits) walks() []string { return slices.Sorted(maps.Keys(l.Walks)) }

func readLimits(file string) (*Limits, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the limits: %w", err)
	}
	limits := &Limits{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(limits); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return limits, nil
}

func writeLimits(file string, limits *Limits) error {
	var text bytes.Buffer
	if err := encode(&text, limits); err != nil {
		return err
	}
	if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil { //nolint:gosec // for everybody to read
		return fmt.Errorf("write the limits: %w", err)
	}
	return nil
}

func encode(w io.Writer, limits *Limits) error {
	fmt.Fprintf(w, limitsHeader, mostFunctions, mostFields, mostUpward)
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(limits); err != nil {
		return fmt.Errorf("encode the limits: %w", err)
	}
	return nil
}
