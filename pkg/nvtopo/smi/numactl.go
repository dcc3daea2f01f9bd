// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// maxNUMANodes bounds the nodes of one machine: a NodeGPUTopology may list 64; the most seen is 36 (four
// Grace Hopper modules).
const maxNUMANodes = 64

// SLIT values: ACPI reserves those below 10, and 255 means unreachable.
const maxDistance = 255

var (
	availableLine = regexp.MustCompile(`^available: ([0-9]+) nodes? \(([0-9,-]+)\)$`)
	cpusLine      = regexp.MustCompile(`^node ([0-9]+) cpus:(.*)$`)
	sizeLine      = regexp.MustCompile(`^node ([0-9]+) size: ([0-9]+|<not available>)(?: MB)?$`)
	freeLine      = regexp.MustCompile(`^node ([0-9]+) free:`)
	distanceHead  = regexp.MustCompile(`^node((?: +[0-9]+)+)$`)
	distanceRow   = regexp.MustCompile(`^([0-9]+):((?: +[0-9]+)*)$`)
	numbersLine   = regexp.MustCompile(`^[0-9]+(?: +[0-9]+)*$`)
)

// numaText is the part of `numactl --hardware` read so far.
type numaText struct {
	nodes     []nvtopo.NUMANode
	available []int // ids that the first line announces; nil without that line
	sized     map[int]bool
	titled    bool          // the title "node distances:" was found
	columns   []int         // ids of the distance table's columns
	rows      map[int][]int // distances by id
	// open adds further numbers to the list that the last line began; nil when no list is open.
	open func(*line, string) error
}

// ParseNUMA parses the output of `numactl --hardware`, with text around it. Memory sizes are in MB of
// 2^20 bytes there. Either part may be absent as a whole (the list of nodes, or the distances); an
// incomplete one is a *SyntaxError.
func ParseNUMA(r io.Reader) ([]nvtopo.NUMANode, error) {
	lines, err := readLines(r)
	if err != nil {
		return nil, err
	}
	t := &numaText{sized: map[int]bool{}, rows: map[int][]int{}}
	for i := range lines {
		if err := t.read(&lines[i]); err != nil {
			return nil, err
		}
	}
	last := &lines[len(lines)-1]
	return t.finish(last)
}

// read processes one line. A line of numbers alone continues the list before it: captures wrap long CPU
// lists.
func (t *numaText) read(l *line) error {
	s := strings.TrimSpace(strings.ReplaceAll(l.text, "\t", " "))
	if numbersLine.MatchString(s) && t.open != nil {
		return t.open(l, s)
	}
	open := t.open
	t.open = nil
	if e := availableLine.FindStringSubmatch(s); e != nil {
		return t.readAvailable(l, e[1], e[2])
	}
	if e := cpusLine.FindStringSubmatch(s); e != nil {
		return t.readCPUs(l, e[1], e[2])
	}
	if e := sizeLine.FindStringSubmatch(s); e != nil {
		return t.readSize(l, e[1], e[2])
	}
	if freeLine.MatchString(s) {
		return nil
	}
	if e := distanceHead.FindStringSubmatch(s); e != nil {
		return t.readColumns(l, e[1])
	}
	if e := distanceRow.FindStringSubmatch(s); e != nil && t.columns != nil {
		return t.readDistances(l, e[1], e[2])
	}
	if s == "node distances:" {
		t.titled = true
		return nil
	}
	if strings.HasPrefix(s, "node ") {
		return l.errorf(l.skipBlanks(0), "cannot read %s", quote(s))
	}
	if s == "" {
		t.open = open
	}
	return nil
}

func (t *numaText) readAvailable(l *line, count, list string) error {
	if t.available != nil {
		return l.errorf(0, "a second list of nodes starts: give the output of one machine")
	}
	ids, err := nvtopo.ParseCPUList(list)
	if err != nil || strconv.Itoa(len(ids)) != count || len(ids) == 0 {
		return l.errorf(l.skipBlanks(0), "%s nodes announced, but %s listed", count, quote(list))
	}
	if len(ids) > maxNUMANodes || ids[len(ids)-1] > maxNUMAID {
		return l.errorf(l.skipBlanks(0), "more than %d NUMA nodes, or one above %d", maxNUMANodes, maxNUMAID)
	}
	t.available = ids
	return nil
}

// readCPUs starts a node; its list may continue in the next lines.
func (t *numaText) readCPUs(l *line, id, list string) error {
	n, err := t.id(l, id)
	if err != nil {
		return err
	}
	if t.find(n) != nil {
		return l.errorf(l.skipBlanks(0), "node %d appears twice", n)
	}
	if len(t.nodes) == maxNUMANodes {
		return l.errorf(l.skipBlanks(0), "more than %d NUMA nodes", maxNUMANodes)
	}
	t.nodes = append(t.nodes, nvtopo.NUMANode{ID: n})
	k := len(t.nodes) - 1
	t.open = func(l *line, s string) error {
		cpus, err := nvtopo.ParseCPUList(strings.Join(strings.Fields(s), ","))
		if err != nil {
			return l.errorf(l.skipBlanks(0), "CPUs of node %d: %v", n, err)
		}
		t.nodes[k].CPUs = t.nodes[k].CPUs.Union(cpus)
		return nil
	}
	return t.open(l, list)
}

func (t *numaText) readSize(l *line, id, size string) error {
	n, err := t.id(l, id)
	if err != nil {
		return err
	}
	node := t.find(n)
	if node == nil || t.sized[n] {
		return l.errorf(l.skipBlanks(0), "size of node %d without its CPUs before it, or twice", n)
	}
	t.sized[n] = true
	if strings.HasPrefix(size, "<") {
		return nil
	}
	const maxMB = 1 << 40 // an exbibyte; keeps the product within int64
	mb, err := strconv.ParseInt(size, 10, 64)
	if err != nil || mb > maxMB {
		return l.errorf(l.skipBlanks(0), "size %s of node %d is out of range", quote(size), n)
	}
	node.Memory = mb << 20
	return nil
}

func (t *numaText) readColumns(l *line, list string) error {
	if t.columns != nil {
		return l.errorf(l.skipBlanks(0), "a second distance table starts: give the output of one machine")
	}
	add := func(l *line, s string) error {
		for f := range strings.FieldsSeq(s) {
			id, err := t.id(l, f)
			if err != nil {
				return err
			}
			if slices.Contains(t.columns, id) || len(t.columns) == maxNUMANodes {
				return l.errorf(l.skipBlanks(0), "distance table: node %d twice, or more than %d nodes", id, maxNUMANodes)
			}
			t.columns = append(t.columns, id)
		}
		return nil
	}
	t.open = add
	return add(l, list)
}

func (t *numaText) readDistances(l *line, id, list string) error {
	n, err := t.id(l, id)
	if err != nil {
		return err
	}
	if _, twice := t.rows[n]; twice || !slices.Contains(t.columns, n) {
		return l.errorf(l.skipBlanks(0), "distances of node %d have no column, or appear twice", n)
	}
	t.rows[n] = nil
	t.open = func(l *line, s string) error {
		for f := range strings.FieldsSeq(s) {
			d, err := strconv.Atoi(f)
			if err != nil || d < nvtopo.LocalDistance || d > maxDistance {
				return l.errorf(l.skipBlanks(0), "distance %s of node %d is not between %d and %d", quote(f), n, nvtopo.LocalDistance, maxDistance)
			}
			if len(t.rows[n]) == len(t.columns) {
				return l.errorf(l.skipBlanks(0), "node %d has more than %d distances", n, len(t.columns))
			}
			t.rows[n] = append(t.rows[n], d)
		}
		return nil
	}
	return t.open(l, list)
}

// finish checks that nothing is missing, at the end of the text.
func (t *numaText) finish(last *line) ([]nvtopo.NUMANode, error) {
	end := len(last.text)
	if t.nodes == nil && t.available == nil {
		for _, id := range t.columns {
			t.nodes = append(t.nodes, nvtopo.NUMANode{ID: id})
			t.sized[id] = true
		}
	}
	if len(t.nodes) == 0 && t.available == nil {
		return nil, last.errorf(end, "no NUMA nodes found: want the output of numactl --hardware")
	}
	want := t.available
	if want == nil {
		want = t.columns
	}
	for _, id := range want {
		if t.find(id) == nil {
			return nil, last.errorf(end, "node %d is missing: the text ends", id)
		}
	}
	slices.SortFunc(t.nodes, func(a, b nvtopo.NUMANode) int { return a.ID - b.ID })
	var seen nvtopo.CPUSet
	total := 0
	for i := range t.nodes {
		n := &t.nodes[i]
		if t.available != nil && !slices.Contains(t.available, n.ID) {
			return nil, last.errorf(end, "node %d is not among the available nodes", n.ID)
		}
		if !t.sized[n.ID] {
			return nil, last.errorf(end, "size of node %d is missing: the text ends", n.ID)
		}
		if seen, total = seen.Union(n.CPUs), total+len(n.CPUs); total != len(seen) {
			return nil, last.errorf(end, "a CPU of node %d belongs to another node too", n.ID)
		}
	}
	return t.nodes, t.setDistances(last)
}

// setDistances puts the distance rows into the order of the nodes.
func (t *numaText) setDistances(last *line) error {
	end := len(last.text)
	if t.columns == nil {
		if t.titled {
			return last.errorf(end, "the distances are missing: the text ends")
		}
		return nil
	}
	if len(t.columns) != len(t.nodes) {
		return last.errorf(end, "distances of %d nodes for %d nodes", len(t.columns), len(t.nodes))
	}
	for i := range t.nodes {
		n := &t.nodes[i]
		row := t.rows[n.ID]
		if len(row) != len(t.columns) {
			return last.errorf(end, "node %d has %d of %d distances: the text ends", n.ID, len(row), len(t.columns))
		}
		n.Distances = make([]int, len(row))
		for k := range t.nodes {
			c := slices.Index(t.columns, t.nodes[k].ID)
			if c < 0 {
				return last.errorf(end, "node %d has no column of distances", t.nodes[k].ID)
			}
			n.Distances[k] = row[c]
		}
	}
	return nil
}

func (t *numaText) find(id int) *nvtopo.NUMANode {
	i := slices.IndexFunc(t.nodes, func(n nvtopo.NUMANode) bool { return n.ID == id })
	if i < 0 {
		return nil
	}
	return &t.nodes[i]
}

func (t *numaText) id(l *line, s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n > maxNUMAID {
		return 0, l.errorf(l.skipBlanks(0), "NUMA node %s is greater than %d", quote(s), maxNUMAID)
	}
	return n, nil
}
