// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// maxNUMAID is the greatest NUMA node number accepted (Linux's MAX_NUMNODES is
// 1024 in the largest configuration).
const maxNUMAID = 1023

// affinity is the text after the cells of a GPU's row.
type affinity struct {
	line   *line
	cpus   nvtopo.CPUSet
	numa   []int // nodes; none when empty or N/A
	numaAt int
}

// field is a piece of the text after the cells, and its position.
type field struct {
	text string
	at   int
}

func (f field) empty() bool { return f.text == "" }

// readAffinity reads the text after the cells of GPU i.
func (m *matrix) readAffinity(i int) (affinity, error) {
	r := &m.rows[i]
	a := affinity{line: r.line}
	fields := r.tailFields()
	if m.isCut(i, len(fields)) {
		return a, r.line.errorf(len(r.line.text), "row %s is cut within its affinity columns", m.names[i])
	}
	filled := slices.DeleteFunc(slices.Clone(fields), field.empty)
	if want := m.columns.count(); len(filled) > want {
		return a, r.line.errorf(filled[want].at, "want nothing behind the last column of the header, found %s", quote(filled[want].text))
	}
	// Values that cannot be assigned to a column must be readable too.
	for _, f := range filled {
		if _, err := parseAffinity(f.text); err != nil {
			return a, r.line.errorf(f.at, "affinity %s: %v", quote(f.text), err)
		}
	}
	cpu, numa := m.assign(fields, filled, r.tabbed())
	list, err := parseAffinity(cpu.text)
	if err != nil {
		return a, fmt.Errorf("CPU affinity: %w", err)
	}
	a.cpus = list
	if list, err = parseAffinity(numa.text); err != nil {
		return a, fmt.Errorf("NUMA affinity: %w", err)
	}
	if len(list) > 0 && list[len(list)-1] > maxNUMAID {
		return a, r.line.errorf(numa.at, "NUMA node %d is greater than %d", list[len(list)-1], maxNUMAID)
	}
	a.numa, a.numaAt = list, numa.at
	return a, nil
}

// assign finds the CPU and the NUMA affinity among the fields. nvidia-smi puts two tabs after a NUMA
// affinity, and one before it that it doubles for N/A, so with tabs the empty fields do not number the
// columns exactly; without tabs an empty column leaves no trace at all. Ambiguous fields stay unknown.
func (m *matrix) assign(fields, filled []field, tabbed bool) (cpu, numa field) {
	c := m.columns
	if len(filled) == c.count() {
		if c.cpu && len(filled) > 0 {
			cpu, filled = filled[0], filled[1:]
		}
		if c.numa && len(filled) > 0 {
			numa = filled[0]
		}
		return cpu, numa
	}
	if !tabbed || !c.cpu || len(fields) == 0 {
		return cpu, numa
	}
	cpu, fields = fields[0], fields[1:]
	others := slices.DeleteFunc(slices.Clone(fields), field.empty)
	switch {
	case !c.numa:
	case len(others) == c.count()-1:
		numa = others[0]
	case len(fields) > 0:
		numa = fields[0]
	}
	return cpu, numa
}

// parseAffinity parses a list in the kernel's format, or N/A.
func parseAffinity(s string) ([]int, error) {
	if s == "N/A" {
		return nil, nil
	}
	list, err := nvtopo.ParseCPUList(s)
	if err != nil {
		return nil, fmt.Errorf("want a list such as 0-3,8 or N/A: %w", err)
	}
	return list, nil
}

// isCut reports whether the text ends inside the affinity of GPU i: its row is the last line and has
// fewer fields than another.
func (m *matrix) isCut(i, fields int) bool {
	if m.rows[i].line.no != m.last {
		return false
	}
	for j := range i {
		if len(m.rows[j].tailFields()) > fields {
			return true
		}
	}
	return false
}

// tabbed reports whether tabs separate the text after the cells.
func (r *row) tabbed() bool { return strings.Contains(r.line.text[r.tail:], "\t") }

// tailFields splits the text after the cells, at tabs where there are any, else at blanks. Fields between
// tabs may be empty.
func (r *row) tailFields() []field {
	l := r.line
	at := r.tail
	if !r.tabbed() {
		var out []field
		for {
			start, w := l.word(at)
			if w == "" {
				return out
			}
			out = append(out, field{text: w, at: start})
			at = start + len(w)
		}
	}
	// The first tab ends the last cell; it is lost where cells are glued.
	for at < len(l.text) && l.text[at] == ' ' {
		at++
	}
	if l.text[at] == '\t' {
		at++
	}
	var out []field
	for part := range strings.SplitSeq(l.text[at:], "\t") {
		text := strings.TrimSpace(part)
		out = append(out, field{text: text, at: at + strings.Index(part, text)})
		at += len(part) + 1
	}
	return out
}
