// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Titles of the tables of `rocm-smi --showtopo`.
const (
	rocmWeights = "Weight between two GPUs"
	rocmHops    = "Hops between two GPUs"
	rocmLinks   = "Link Type between two GPUs"
	rocmNUMA    = "Numa Nodes"
)

// xgmiHopWeight is the weight of each physical hop of an XGMI path (KFD_CRAT_XGMI_WEIGHT of the amdgpu
// driver). maxXGMIHops bounds a path.
const (
	xgmiHopWeight = 15
	maxXGMIHops   = 16
)

// rocm is the text as printed.
type rocm struct {
	tables map[string]*rocmTable // by title
	numa   map[string]rocmNode   // by name of the GPU; nil without such a list
}

// rocmTable has one value for each pair of GPUs, "0" on the diagonal.
type rocmTable struct {
	head    *line
	names   []string
	numbers []int
	rows    []rocmRow
}

type rocmRow struct {
	line   *line
	values []field
}

// rocmNode is the position of a GPU: its node in sysfs (affinity), and the node of the CPUs that the
// driver finds nearest (node).
type rocmNode struct {
	line           *line
	at             int
	node, affinity int
}

var (
	rocmTitleLine = regexp.MustCompile(`^[ \t]*=+[ \t]*((?:Weight|Hops|Link Type) between two GPUs|Numa Nodes)[ \t]*=+[ \t]*$`)
	rocmRule      = regexp.MustCompile(`^[ \t]*=+`) // the title of any section, and the end
	rocmName      = regexp.MustCompile(`^GPU(0|[1-9][0-9]{0,3})$`)
	rocmNUMALine  = regexp.MustCompile(`^[ \t]*GPU *\[?(0|[1-9][0-9]{0,3})\]?[ \t]*:[ \t]*\(Topology\) Numa (Node|Affinity):[ \t]*(-?[0-9]{1,4})[ \t]*$`)
)

// rocmTitle returns the title of a table that starts with this line, "" for any other.
func rocmTitle(l *line) string {
	if m := rocmTitleLine.FindStringSubmatch(l.text); m != nil {
		return m[1]
	}
	return ""
}

// parseROCm parses the tables of `rocm-smi --showtopo`. Only the link types are required;
// `--showtopotype` alone prints no more.
func parseROCm(lines []line, opts Options) (*nvtopo.Graph, error) {
	r := &rocm{tables: map[string]*rocmTable{}}
	for i := 0; i < len(lines); {
		title := rocmTitle(&lines[i])
		if title == "" {
			i++
			continue
		}
		next, err := r.readSection(title, lines, i)
		if err != nil {
			return nil, err
		}
		i = next
	}
	if r.tables[rocmLinks] == nil {
		last := &lines[len(lines)-1]
		return nil, last.errorf(len(last.text), "the table %q is missing", rocmLinks)
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return r.graph(opts)
}

// readSection reads the lines after the title in lines[at] and returns the number of the line after the
// section.
func (r *rocm) readSection(title string, lines []line, at int) (next int, err error) {
	if r.tables[title] != nil || title == rocmNUMA && r.numa != nil {
		return 0, lines[at].errorf(lines[at].skipBlanks(0), "a second %q: give one output", title)
	}
	if title == rocmNUMA {
		return r.readNUMA(lines, at+1)
	}
	t, next, err := readROCmTable(title, lines, at+1)
	r.tables[title] = t
	return next, err
}

// readROCmTable reads a header and one row for each of its GPUs from lines[at] on.
func readROCmTable(title string, lines []line, at int) (*rocmTable, int, error) {
	t := &rocmTable{}
	at = nextFilled(lines, at)
	if at == len(lines) {
		last := &lines[at-1]
		return nil, 0, last.errorf(len(last.text), "%s: the header is missing: the text ends", title)
	}
	t.head = &lines[at]
	if err := t.readHeader(); err != nil {
		return nil, 0, err
	}
	at++
	for i, name := range t.names {
		at = nextFilled(lines, at)
		if at == len(lines) {
			last := &lines[at-1]
			return nil, 0, last.errorf(len(last.text), "%s: row %s is missing: the text ends", title, name)
		}
		row, err := readROCmRow(&lines[at], t.names, i)
		if err != nil {
			return nil, 0, err
		}
		t.rows = append(t.rows, row)
		at++
	}
	if end := nextFilled(lines, at); end < len(lines) {
		if start, w := lines[end].word(0); rocmName.MatchString(w) {
			return nil, 0, lines[end].errorf(start, "row %s has no column in the header", w)
		}
	}
	return t, at, nil
}

func nextFilled(lines []line, at int) int {
	for at < len(lines) && lines[at].blank() {
		at++
	}
	return at
}

func (t *rocmTable) readHeader() error {
	l := t.head
	for at := l.skipBlanks(0); at < len(l.text); {
		_, w := l.word(at)
		m := rocmName.FindStringSubmatch(w)
		if m == nil {
			return l.errorf(at, "column title %s is not a GPU", quote(w))
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return l.errorf(at, "column title %s: %v", quote(w), err)
		}
		if k := len(t.numbers); k > 0 && n <= t.numbers[k-1] {
			return l.errorf(at, "column %s after %s: want ascending numbers", w, t.names[k-1])
		}
		if len(t.names) == nvtopo.MaxGPUs {
			return l.errorf(at, "more than %d GPUs", nvtopo.MaxGPUs)
		}
		t.names, t.numbers = append(t.names, w), append(t.numbers, n)
		at = l.skipBlanks(at + len(w))
	}
	return nil
}

// readROCmRow reads the values of GPU names[self].
func readROCmRow(l *line, names []string, self int) (rocmRow, error) {
	start, w := l.word(0)
	if w != names[self] {
		return rocmRow{}, l.errorf(start, "row %s is missing: found %s", names[self], quote(w))
	}
	r := rocmRow{line: l}
	at := start + len(w)
	for j, column := range names {
		at, w = l.word(at)
		switch {
		case w == "":
			return rocmRow{}, l.errorf(at, "row %s ends before column %s", names[self], column)
		case j == self && w != "0":
			return rocmRow{}, l.errorf(at, "row %s, column %s: want 0, found %s", names[self], column, quote(w))
		}
		r.values = append(r.values, field{text: w, at: at})
		at += len(w)
	}
	if end, w := l.word(at); w != "" {
		return rocmRow{}, l.errorf(end, "want nothing behind the last column of the header, found %s", quote(w))
	}
	return r, nil
}

// readNUMA reads the list of NUMA nodes, which ends with the next title.
func (r *rocm) readNUMA(lines []line, at int) (next int, err error) {
	r.numa = map[string]rocmNode{}
	for ; at < len(lines) && !rocmRule.MatchString(lines[at].text); at++ {
		l := &lines[at]
		m := rocmNUMALine.FindStringSubmatchIndex(l.text)
		if m == nil {
			if start, w := l.word(0); len(w) >= 3 && w[:3] == "GPU" {
				return 0, l.errorf(start, "want a line such as %q", "GPU[0] : (Topology) Numa Node: 0")
			}
			continue
		}
		name := "GPU" + l.text[m[2]:m[3]]
		n, err := strconv.Atoi(l.text[m[6]:m[7]])
		if err != nil || n > maxNUMAID {
			return 0, l.errorf(m[6], "NUMA node %s is greater than %d", l.text[m[6]:m[7]], maxNUMAID)
		}
		node, known := r.numa[name]
		if !known {
			node = rocmNode{node: nvtopo.UnknownNUMA, affinity: nvtopo.UnknownNUMA}
		}
		if n >= 0 {
			node.line, node.at = l, m[6]
			if l.text[m[4]:m[5]] == "Node" {
				node.node = n
			} else {
				node.affinity = n
			}
		}
		r.numa[name] = node
	}
	return at, nil
}

// check refuses tables or a NUMA list of other GPUs than the link types, and asymmetric tables.
func (r *rocm) check() error {
	links := r.tables[rocmLinks]
	for _, title := range []string{rocmWeights, rocmHops, rocmLinks} {
		t := r.tables[title]
		if t == nil {
			continue
		}
		if !slices.Equal(t.names, links.names) {
			return t.head.errorf(t.head.skipBlanks(0), "%s: other GPUs than in %q", title, rocmLinks)
		}
		for j := range t.rows {
			for i := range j {
				if a, b := t.rows[i].values[j].text, t.rows[j].values[i]; a != b.text {
					return t.rows[j].line.errorf(b.at, "%s: %s to %s is %s, but %s to %s is %s: the table is not symmetric",
						title, t.names[j], t.names[i], quote(b.text), t.names[i], t.names[j], quote(a))
				}
			}
		}
	}
	if r.numa == nil {
		return nil
	}
	for i, name := range links.names {
		if _, ok := r.numa[name]; !ok {
			row := links.rows[i]
			return row.line.errorf(row.line.skipBlanks(0), "%s is not in the list %q", name, rocmNUMA)
		}
	}
	if len(r.numa) > len(links.names) {
		return links.head.errorf(links.head.skipBlanks(0), "the list %q has %d GPUs, the tables %d", rocmNUMA, len(r.numa), len(links.names))
	}
	return nil
}

// number parses the value of a pair in a table; 0 without that table.
func (r *rocm) number(title string, i, j, most int) (int, error) {
	t := r.tables[title]
	if t == nil {
		return 0, nil
	}
	row := t.rows[i]
	n, err := strconv.Atoi(row.values[j].text)
	if err != nil || n < 1 || n > most {
		return 0, row.line.errorf(row.values[j].at, "row %s, column %s: want a number between 1 and %d, found %s",
			t.names[i], t.names[j], most, quote(row.values[j].text))
	}
	return n, nil
}

// errorAt returns an error about the link type of a pair.
func (r *rocm) errorAt(i, j int, format string, args ...any) error {
	t := r.tables[rocmLinks]
	return t.rows[i].line.errorf(t.rows[i].values[j].at, "row %s, column %s: %s", t.names[i], t.names[j], fmt.Sprintf(format, args...))
}
