// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// nodeColumn is the first column of every table of nodes.
const nodeColumn = "node"

// Row is a line of a table of nodes with one more column.
type Row struct {
	Line        int
	Node, Value string
}

// ReadCSV reads a fabric from a table: the header is "node" and the names of the levels, outermost first;
// each line is a node and its domains. An empty domain is a missing label. Names are trimmed.
func ReadCSV(r io.Reader) (levels []string, nodes []NodePath, err error) {
	header, rows, err := readTable(r, "node and the names of the levels, outermost first")
	if err != nil {
		return nil, nil, err
	}
	if len(header) > 1 {
		levels = header[1:]
	}
	for _, row := range rows {
		n := NodePath{Node: row.cells[0]}
		if len(row.cells) > 1 {
			n.Path = row.cells[1:]
		}
		nodes = append(nodes, n)
	}
	return levels, nodes, nil
}

// ReadColumn reads a table with the columns "node" and the given one. It refuses a node that is listed
// twice. Names and values are trimmed.
func ReadColumn(r io.Reader, column string) ([]Row, error) {
	header, rows, err := readTable(r, nodeColumn+","+column)
	if err != nil {
		return nil, err
	}
	if len(header) != 2 || header[1] != column {
		return nil, fmt.Errorf("line 1: the header is %s, want %s,%s", strings.Join(header, ","), nodeColumn, column)
	}
	var out []Row
	seen := map[string]bool{}
	for _, row := range rows {
		node := row.cells[0]
		if seen[node] {
			return nil, fmt.Errorf("line %d: node %q is there twice", row.line, node)
		}
		seen[node] = true
		out = append(out, Row{row.line, node, row.cells[1]})
	}
	return out, nil
}

// RowError describes the fault of a row of a CSV file from the error of encoding/csv and the number of
// cells it read. header is the file's header.
func RowError(err error, cells int, header string) error {
	wrong, ok := errors.AsType[*csv.ParseError](err)
	switch {
	case !ok:
		return err
	case errors.Is(err, csv.ErrFieldCount):
		return fmt.Errorf("line %d: %d cells, want %d: %s", wrong.Line, cells, 1+strings.Count(header, ","), header)
	}
	return fmt.Errorf("line %d, column %d: %w", wrong.Line, wrong.Column, wrong.Err)
}

// tableRow is a line of a table, its cells trimmed.
type tableRow struct {
	line  int
	cells []string
}

// readTable reads a table whose first column is the name of a node. All lines have as many
// cells as the header.
func readTable(r io.Reader, want string) (header []string, rows []tableRow, err error) {
	in := csv.NewReader(r)
	in.TrimLeadingSpace = true
	in.ReuseRecord = true
	for {
		record, err := in.Read()
		switch {
		case errors.Is(err, io.EOF) && header == nil:
			return nil, nil, errors.New("no header: want " + want)
		case errors.Is(err, io.EOF):
			return header, rows, nil
		case err != nil:
			return nil, nil, RowError(err, len(record), cmp.Or(strings.Join(header, ","), want))
		}
		line, _ := in.FieldPos(0)
		cells, err := trimmed(record)
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("line %d: %w", line, err)
		case header == nil:
			cells[0] = strings.TrimSpace(strings.TrimPrefix(cells[0], "\ufeff"))
			if cells[0] != nodeColumn {
				return nil, nil, fmt.Errorf("line %d: the first column is %q, want %q", line, cells[0], nodeColumn)
			}
			header = cells
			continue
		case cells[0] == "":
			return nil, nil, fmt.Errorf("line %d: a node has no name", line)
		case len(rows) == MaxNodes:
			return nil, nil, fmt.Errorf("line %d: more than %d nodes", line, MaxNodes)
		}
		rows = append(rows, tableRow{line, cells})
	}
}

// trimmed copies a record with its cells trimmed. It refuses control characters, such as a line break.
func trimmed(record []string) ([]string, error) {
	cells := make([]string, len(record))
	for i, cell := range record {
		cells[i] = strings.TrimSpace(cell)
		if strings.ContainsFunc(cells[i], unicode.IsControl) {
			return nil, fmt.Errorf("column %d: a line break or another control character in %q", i+1, cells[i])
		}
	}
	return cells, nil
}
