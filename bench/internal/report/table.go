// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Table is a table of text: a header and rows of as many cells.
type Table struct {
	Title  string
	Header []string
	Rows   [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Write prints the table as GitHub Markdown, padded so that it also reads well
// in a terminal: the first column to the left, the others to the right. A row
// with another number of cells than the header is an error.
func (t *Table) Write(w io.Writer) error {
	width := make([]int, len(t.Header))
	for i, row := range append([][]string{t.Header}, t.Rows...) {
		if len(row) != len(t.Header) {
			return fmt.Errorf("table %q: row %d has %d cells, not %d", t.Title, i, len(row), len(t.Header))
		}
		for col, cell := range row {
			// Three is the shortest delimiter cell that Markdown allows to the right.
			width[col] = max(width[col], utf8.RuneCountInString(escape(cell)), 3)
		}
	}
	var b strings.Builder
	if t.Title != "" {
		b.WriteString(t.Title + "\n\n")
	}
	writeRow(&b, t.Header, width)
	for col, n := range width {
		if col == 0 {
			b.WriteString("| " + strings.Repeat("-", n) + " ")
			continue
		}
		b.WriteString("| " + strings.Repeat("-", n-1) + ": ")
	}
	b.WriteString("|\n")
	for _, row := range t.Rows {
		writeRow(&b, row, width)
	}
	b.WriteString("\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing table %q: %w", t.Title, err)
	}
	return nil
}

func writeRow(b *strings.Builder, row []string, width []int) {
	for col, cell := range row {
		cell = escape(cell)
		pad := strings.Repeat(" ", width[col]-utf8.RuneCountInString(cell))
		if col == 0 {
			b.WriteString("| " + cell + pad + " ")
			continue
		}
		b.WriteString("| " + pad + cell + " ")
	}
	b.WriteString("|\n")
}

// escape keeps a cell inside its cell.
func escape(cell string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell)
}

// WriteJSON writes environment and result as one indented JSON object, and the
// directories on the way. The file appears whole or not at all.
func WriteJSON(path string, env Environment, result any) error {
	data, err := json.MarshalIndent(struct {
		Environment Environment `json:"environment"`
		Result      any         `json:"result"`
	}{env, result}, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the directory of %s: %w", path, err)
	}
	part := path + ".part"
	if err := os.WriteFile(part, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
