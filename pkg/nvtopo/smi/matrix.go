// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// dialect is the form of the cells in one tool's matrix.
type dialect struct {
	prefix string                     // of the accelerators' ids
	row    *regexp.Regexp             // start of a row of cells, to find rows out of place
	value  *regexp.Regexp             // one cell, also one glued to the next
	want   string                     // valid cells, for messages
	cell   func(string) (cell, error) // parses a match of value
}

// matrix is the table as printed: GPUs first, then adapters.
type matrix struct {
	dialect *dialect
	names   []string // of the columns, hence of the rows
	numbers []int    // the tool's numbers of the GPUs
	gpus    int      // how many of names are GPUs
	columns columns  // which columns follow the cells
	rows    []row    // one per name, in the same order
	legend  map[string]string
	last    int // number of the text's last line
}

// columns is which affinity columns the header announces.
type columns struct{ cpu, numa, gpuNUMA bool }

// count returns the number of announced columns.
func (c columns) count() int {
	n := 0
	for _, has := range []bool{c.cpu, c.numa, c.gpuNUMA} {
		if has {
			n++
		}
	}
	return n
}

type row struct {
	line  *line
	cells []cell
	tail  int // where the text after the last cell starts
}

// cell is one value of the matrix; the diagonal has the zero class.
type cell struct {
	class    nvtopo.Class
	switched bool // the tool reports a path through a switch
	at       int  // position in its line
}

// deviceName matches the names that may be glued together when tabs are lost.
// Other names (hfi1_0, bnxt_re3, rocep1s0) must stand alone.
var (
	deviceName = regexp.MustCompile(`^(GPU[0-9]+|NIC[0-9]+|mlx[0-9]+_(?:bond_)?[0-9]+)`)
	otherName  = regexp.MustCompile(`^[a-z][A-Za-z_.:-]*[0-9][A-Za-z0-9_.:-]*$`)
	// p2pRow matches a row of the other matrix, that of `topo -p2p`.
	p2pRow = regexp.MustCompile(`^[ \t]*GPU[0-9]+[ \t]+(X[ \t]+)?(OK|CNS|GNS|TNS|NS|DR|U)([ \t]|$)`)
)

// nvidia is the dialect of `nvidia-smi topo`, and of `nvtopo matrix`, which prints the links of other
// vendors in the same way.
var nvidia = dialect{
	prefix: "GPU-",
	row: regexp.MustCompile(`^[ \t]*(GPU|NIC|mlx[0-9]+_)[0-9]+[ \t]+` +
		`(X|(NV|XGMI|HCCS)[0-9]+|PIX|PXB|PHB|NODE|SYS|SOC)([ \t]|$)`),
	value: regexp.MustCompile(`^((NV|XGMI|HCCS)[0-9]+|PIX|PXB|PHB|NODE|SYS|SOC)`),
	want:  "NV#, PIX, PXB, PHB, NODE or SYS",
	cell: func(s string) (cell, error) {
		class, err := nvtopo.ParseClass(s)
		return cell{class: class}, err
	},
}

// readMatrix finds the matrix and reads it. Text before and after is ignored, but a second matrix is an
// error, since it would be ambiguous.
func readMatrix(lines []line) (*matrix, error) {
	for i := range lines {
		l := &lines[i]
		if isMatrixHeader(lines, i) {
			m, err := readHeader(l)
			if err != nil {
				return nil, err
			}
			return m, m.readBelow(lines, i)
		}
		if nvidia.isRow(l) {
			return nil, l.errorf(l.skipBlanks(0), "row before the header line GPU0, GPU1, …")
		}
	}
	last := &lines[len(lines)-1]
	return nil, last.errorf(len(last.text), "no topology matrix found: no header line GPU0, GPU1, …")
}

// readBelow reads the lines after the header, which is lines[head].
func (m *matrix) readBelow(lines []line, head int) error {
	m.last = lines[len(lines)-1].no
	rest, err := m.readRows(lines, head)
	if err != nil {
		return err
	}
	return m.readRest(rest)
}

func (d *dialect) isRow(l *line) bool {
	return d.row.MatchString(l.text) && !p2pRow.MatchString(l.text)
}

// isMatrixHeader reports whether lines[i] is a header, and not that of `topo -p2p`.
func isMatrixHeader(lines []line, i int) bool {
	return isHeader(&lines[i]) && (i+1 == len(lines) || !p2pRow.MatchString(lines[i+1].text))
}

// isHeader reports whether the line is a matrix's header: it starts with a GPU, followed by another
// device, an affinity column or the end of the line.
func isHeader(l *line) bool {
	rest := l.text[l.skipBlanks(0):]
	name := deviceName.FindString(rest)
	if !strings.HasPrefix(name, "GPU") {
		return false
	}
	rest = strings.TrimLeft(rest[len(name):], " \t")
	return rest == "" || deviceName.MatchString(rest) || strings.Contains(rest, "CPU Affinity")
}

// readHeader reads the names of the columns from the header.
func readHeader(l *line) (*matrix, error) {
	m := &matrix{dialect: &nvidia, legend: map[string]string{}}
	at := l.skipBlanks(0)
	for at < len(l.text) {
		if done, err := m.readTitles(l, at); done || err != nil {
			return m, err
		}
		name := deviceName.FindString(l.text[at:])
		if name == "" {
			_, name = l.word(at)
			if !otherName.MatchString(name) {
				return nil, l.errorf(at, "column title %s is neither a device nor an affinity", quote(name))
			}
		}
		if err := m.addColumn(l, at, name); err != nil {
			return nil, err
		}
		at = l.skipBlanks(at + len(name))
	}
	return m, nil
}

// addColumn appends a device. nvidia-smi numbers GPUs from 0 without gaps, even in a container that sees
// only some of them, and prints adapters after them.
func (m *matrix) addColumn(l *line, at int, name string) error {
	switch {
	case slices.Contains(m.names, name):
		return l.errorf(at, "column %s appears twice", name)
	case len(m.names) == maxDevices:
		return l.errorf(at, "more than %d devices", maxDevices)
	case strings.HasPrefix(name, "GPU"):
		if want := "GPU" + strconv.Itoa(len(m.names)); name != want {
			return l.errorf(at, "column %s is missing: found %s", want, quote(name))
		}
		if m.gpus == nvtopo.MaxGPUs {
			return l.errorf(at, "more than %d GPUs", nvtopo.MaxGPUs)
		}
		m.numbers = append(m.numbers, m.gpus)
		m.gpus++
	}
	m.names = append(m.names, name)
	return nil
}

// readTitles reads the affinity titles if they start at byte at; they end the header.
func (m *matrix) readTitles(l *line, at int) (done bool, err error) {
	if _, w := l.word(at); w != "GPU" && !strings.HasPrefix(w, "CPU") && !strings.HasPrefix(w, "NUMA") {
		return false, nil
	}
	titles := strings.Join(strings.Fields(l.text[at:]), " ")
	for _, t := range []struct {
		title string
		seen  *bool
	}{
		{"CPU Affinity", &m.columns.cpu},
		{"NUMA Affinity", &m.columns.numa},
		{"GPU NUMA ID", &m.columns.gpuNUMA},
	} {
		if rest, ok := strings.CutPrefix(titles, t.title); ok {
			*t.seen = true
			titles = strings.TrimSpace(rest)
		}
	}
	if m.columns == (columns{}) {
		return false, nil
	}
	if titles != "" {
		return true, l.errorf(strings.LastIndex(l.text, titles), "unknown column %s", quote(titles))
	}
	return true, nil
}

// readRows reads one row per column after the header, which is lines[head], and
// returns the lines after the last row. Blank lines between rows are skipped.
func (m *matrix) readRows(lines []line, head int) ([]line, error) {
	at := head + 1
	for _, name := range m.names {
		for at < len(lines) && lines[at].blank() {
			at++
		}
		if at == len(lines) {
			last := &lines[at-1]
			return nil, last.errorf(len(last.text), "row %s is missing: the text ends", name)
		}
		l := &lines[at]
		start := l.skipBlanks(0)
		if !startsWithName(l.text[start:], name) {
			_, found := l.word(0)
			return nil, l.errorf(start, "row %s is missing: found %s", name, quote(found))
		}
		r, err := m.readRow(l, start+len(name))
		if err != nil {
			return nil, err
		}
		m.rows = append(m.rows, r)
		at++
	}
	return lines[at:], nil
}

// startsWithName reports whether a row is that of the device name: "NIC10" is
// not a row of NIC1, "NIC1PIX" is.
func startsWithName(s, name string) bool {
	rest, ok := strings.CutPrefix(s, name)
	return ok && (rest == "" || !strings.ContainsAny(rest[:1], "0123456789_"))
}

// readRow reads the cells of the next row from byte at on. Blanks between cells are ignored, because
// captures lose them; the diagonal fixes every position.
func (m *matrix) readRow(l *line, at int) (row, error) {
	r := row{line: l, cells: make([]cell, len(m.names))}
	self := len(m.rows)
	for j, column := range m.names {
		at = l.skipBlanks(at)
		rest := l.text[at:]
		if rest == "" {
			return row{}, l.errorf(at, "row %s ends before column %s", m.names[self], column)
		}
		v := m.dialect.value.FindString(rest)
		switch {
		case j == self && rest[0] == 'X':
			v = "X"
		case j == self:
			return row{}, l.errorf(at, "row %s, column %s: want X, found %s", m.names[self], column, quote(firstWord(rest)))
		case v == "":
			return row{}, l.errorf(at, "row %s, column %s: want %s, found %s",
				m.names[self], column, m.dialect.want, quote(firstWord(rest)))
		default:
			c, err := m.dialect.cell(v)
			if err != nil {
				return row{}, l.errorf(at, "row %s, column %s: %v", m.names[self], column, err)
			}
			if c.class.IsFabric() && max(j, self) >= m.gpus {
				return row{}, l.errorf(at, "row %s, column %s: an adapter has no %s", m.names[self], column, quote(v))
			}
			c.at = at
			r.cells[j] = c
		}
		at += len(v)
	}
	r.tail = at
	if self >= m.gpus {
		// nvidia-smi leaves an adapter's affinity columns empty.
		if end := l.skipBlanks(at); end < len(l.text) {
			return row{}, l.errorf(end, "want nothing behind the last column of the header, found %s", quote(l.text[end:]))
		}
	}
	return r, nil
}

func firstWord(s string) string {
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i]
	}
	return s
}

// legendEntry matches "NIC0: mlx5_0" below the matrix.
var legendEntry = regexp.MustCompile(`^[ \t]*(NIC[0-9]+):[ \t]*([A-Za-z][A-Za-z0-9_.-]{0,62})[ \t]*$`)

// readRest reads adapter names from the legend and refuses lines that continue the matrix: a row without
// a column, or another matrix.
func (m *matrix) readRest(rest []line) error {
	used := map[string]bool{}
	for i := range rest {
		l := &rest[i]
		if m.dialect.isRow(l) {
			at, name := l.word(0)
			return l.errorf(at, "row %s has no column in the header, or a second matrix starts: give one matrix", name)
		}
		if e := legendEntry.FindStringSubmatch(l.text); e != nil {
			if !slices.Contains(m.names, e[1]) || m.legend[e[1]] != "" || used[e[2]] {
				return l.errorf(l.skipBlanks(0), "legend entry %s does not fit the matrix", quote(fmt.Sprintf("%s: %s", e[1], e[2])))
			}
			m.legend[e[1]] = e[2]
			used[e[2]] = true
		}
	}
	return nil
}
