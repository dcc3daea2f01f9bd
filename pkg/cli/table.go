// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// table is rows of cells in columns. Cells may be coloured.
type table struct{ rows [][]string }

// row adds a row of cells, which are printed without the characters that a terminal would act upon.
func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = printed(cell)
	}
	t.rows = append(t.rows, row)
}

// escapes are the sequences that change a terminal's colour.
var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// columns is the width of a text on a terminal.
func columns(s string) int { return utf8.RuneCountInString(escapes.ReplaceAllString(s, "")) }

// write prints the rows, with two blanks between columns and none at the end of a line.
func (t *table) write(w io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], columns(cell))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-columns(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// palette colours text on a terminal. The zero value colours nothing.
type palette struct{ on bool }

// paletteFor returns the palette for output to w: colours for a terminal only, and none if the environment
// has NO_COLOR (https://no-color.org).
func paletteFor(w io.Writer) palette { return palette{isTerminal(w) && os.Getenv("NO_COLOR") == ""} }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (p palette) paint(code, s string) safe {
	s = printable(s)
	if p.on && s != "" {
		s = "\x1b[" + code + "m" + s + "\x1b[0m"
	}
	return safe(s)
}

func (p palette) good(s string) safe    { return p.paint("32", s) } // green
func (p palette) taken(s string) safe   { return p.paint("34", s) } // blue
func (p palette) warning(s string) safe { return p.paint("33", s) } // yellow
func (p palette) bad(s string) safe     { return p.paint("31", s) } // red

// viewOutput is the form of the output of the commands that show a cluster.
type viewOutput string

var viewForms = [...]string{"table", "wide", "json", "yaml"}

func (o *viewOutput) bind(cmd *cobra.Command) {
	bindForm(cmd, (*string)(o), viewForms[:]...)
}

func (o viewOutput) check() error { return checkForm(string(o), viewForms[:]...) }

func (o viewOutput) wide() bool { return o == "wide" }

// write prints the output in the chosen form.
func (o viewOutput) write(w io.Writer, answer any, text func(io.Writer) error) error {
	return writeAnswer(w, string(o), answer, text)
}
