// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// nodeColumn is the first column of a fabric in CSV.
const nodeColumn = "node"

// ReadCSV reads a fabric as a table: the header is "node" and the names of the levels,
// outermost first; each line is a node and its domains. A domain that is left empty is a
// missing label. Names are trimmed.
func ReadCSV(r io.Reader) (levels []string, nodes []NodePath, err error) {
	rows := csv.NewReader(r)
	rows.TrimLeadingSpace = true
	rows.ReuseRecord = true
	header, err := rows.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, nil, errors.New("no header: want node and the names of the levels, outermost first")
	case err != nil:
		return nil, nil, err
	}
	if first := strings.TrimSpace(strings.TrimPrefix(header[0], "\ufeff")); first != nodeColumn {
		return nil, nil, fmt.Errorf("line 1: the first column is %q, want %q", first, nodeColumn)
	}
	for _, name := range header[1:] {
		levels = append(levels, strings.TrimSpace(name))
	}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return levels, nodes, nil
		}
		if err != nil {
			return nil, nil, err
		}
		line, _ := rows.FieldPos(0)
		n := NodePath{Node: strings.TrimSpace(row[0])}
		if n.Node == "" {
			return nil, nil, fmt.Errorf("line %d: a node has no name", line)
		}
		if len(nodes) == MaxNodes {
			return nil, nil, fmt.Errorf("line %d: more than %d nodes", line, MaxNodes)
		}
		for _, domain := range row[1:] {
			n.Path = append(n.Path, strings.TrimSpace(domain))
		}
		nodes = append(nodes, n)
	}
}
