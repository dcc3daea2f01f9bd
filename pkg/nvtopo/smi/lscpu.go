// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// MaxThreadsPerCore is the most hyper-threads of a core: POWER has 8.
const MaxThreadsPerCore = 8

// Cores is the hyper-threads of each core. Its zero value means that nothing is known.
type Cores struct {
	// PerCore is how many hyper-threads each core has; 0 if Siblings is set or it is not known.
	PerCore int
	// Siblings has every core that is online.
	Siblings []nvtopo.CPUSet
}

// threadsLine is the only line of plain lscpu that is used.
var threadsLine = regexp.MustCompile(`^ *Thread\(s\) per core: *([0-9]+) *$`)

// ParseCores parses the output of lscpu, lscpu -e or lscpu -p, with text around it.
func ParseCores(r io.Reader) (Cores, error) {
	lines, err := readLines(r)
	if err != nil {
		return Cores{}, err
	}
	for i := range lines {
		l := &lines[i]
		if m := threadsLine.FindStringSubmatch(strings.ReplaceAll(l.text, "\t", " ")); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil || n < 1 || n > MaxThreadsPerCore {
				return Cores{}, l.errorf(l.skipBlanks(0), "%s threads per core: want 1 to %d", m[1], MaxThreadsPerCore)
			}
			return Cores{PerCore: n}, nil
		}
		if t, ok := tableOf(l); ok {
			siblings, err := t.read(l, lines[i+1:])
			return Cores{Siblings: siblings}, err
		}
	}
	last := &lines[len(lines)-1]
	return Cores{}, last.errorf(len(last.text), "no cores found: want the output of lscpu, lscpu -e or lscpu -p")
}

// cpuTable is the columns of a table of lscpu -e or -p; -1 for a missing one.
type cpuTable struct{ cpu, core, socket, online int }

// tableOf returns the table of which a line is the head.
func tableOf(l *line) (t cpuTable, ok bool) {
	columns := cells(strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(l.text)), "#"))
	at := func(name string) int { return slices.Index(columns, name) }
	t = cpuTable{cpu: at("CPU"), core: at("CORE"), socket: at("SOCKET"), online: at("ONLINE")}
	return t, t.cpu >= 0 && t.core >= 0
}

// cells splits a row at commas, or else at blanks. Between commas a cell may be empty.
func cells(row string) []string {
	row = strings.TrimSpace(strings.ReplaceAll(row, "\t", " "))
	if strings.Contains(row, ",") {
		parts := strings.Split(row, ",")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		return parts
	}
	return strings.Fields(row)
}

// coreID identifies a core: with --physical cores are numbered from 0 on each socket.
type coreID struct{ socket, core string }

// row returns the CPU and the core of a row; whole is false if the line is not a row.
func (t *cpuTable) row(row []string) (cpu string, id coreID, whole bool) {
	if len(row) <= max(t.cpu, t.core, t.socket) {
		return "", id, false
	}
	if t.socket >= 0 {
		id.socket = row[t.socket]
	}
	cpu, id.core = row[t.cpu], row[t.core]
	if t.online >= 0 && t.online < len(row) && strings.EqualFold(row[t.online], "no") {
		id.core = offline
	}
	return cpu, id, cpu != "" && strings.Trim(cpu, "0123456789") == ""
}

// offline stands for the core of a CPU that is offline.
const offline = "-"

// read reads the rows, up to the first line that is not a row. head is the line before them.
func (t *cpuTable) read(head *line, lines []line) ([]nvtopo.CPUSet, error) {
	siblings, seen := map[coreID]nvtopo.CPUSet{}, map[int]bool{}
	end := head
	for i := range lines {
		l := &lines[i]
		cpu, id, whole := t.row(cells(l.text))
		if !whole {
			break
		}
		n, err := nvtopo.ParseCPUList(cpu)
		if err != nil || seen[n[0]] {
			return nil, l.errorf(l.skipBlanks(0), "CPU %s is out of range, or appears twice", quote(cpu))
		}
		end, seen[n[0]] = l, true
		if id.core == offline || id.core == "" {
			continue
		}
		siblings[id] = append(siblings[id], n[0])
		if len(siblings[id]) > MaxThreadsPerCore {
			return nil, l.errorf(l.skipBlanks(0), "core %s has more than %d threads", quote(id.core), MaxThreadsPerCore)
		}
	}
	if len(siblings) == 0 {
		return nil, end.errorf(len(end.text), "no CPU is online: want the output of lscpu -e or lscpu -p")
	}
	out := slices.Collect(maps.Values(siblings))
	for i := range out {
		slices.Sort(out[i])
	}
	slices.SortFunc(out, func(a, b nvtopo.CPUSet) int { return cmp.Compare(a[0], b[0]) })
	return out, nil
}

// place sets the hyper-threads of each core of NUMA nodes, which the caller must not share yet.
func (c *Cores) place(nodes []nvtopo.NUMANode) error {
	if c.PerCore == 0 && len(c.Siblings) == 0 {
		return nil
	}
	placed := false
	for i := range nodes {
		n := &nodes[i]
		if len(n.CPUs) == 0 {
			continue
		}
		var err error
		if n.Siblings, err = c.of(n); err != nil {
			return err
		}
		placed = true
	}
	if !placed {
		return errors.New("which CPUs the NUMA nodes have is not known, and so not which cores: numactl --hardware tells it")
	}
	return nil
}

// of returns the cores of a NUMA node.
func (c *Cores) of(n *nvtopo.NUMANode) ([]nvtopo.CPUSet, error) {
	if c.PerCore > 0 {
		return evenCores(n, c.PerCore)
	}
	if missing := n.CPUs.Minus(c.Siblings...); len(missing) > 0 {
		return nil, fmt.Errorf("NUMA node %d has the CPUs %s, which lscpu does not list: want the output of the same machine", n.ID, missing)
	}
	var cores []nvtopo.CPUSet
	for _, all := range c.Siblings {
		if core := all.Minus(all.Minus(n.CPUs)); len(core) > 0 {
			cores = append(cores, core)
		}
	}
	return cores, nil
}

// evenCores divides the CPUs of a node, in ascending order, into perCore runs of equal length and returns
// the n-th CPUs of all runs as a core. Kernels number CPUs like that where the runs lie apart
// (0-31,64-95). A single run (0-63) may be numbered core by core as well, which is refused.
func evenCores(n *nvtopo.NUMANode, perCore int) ([]nvtopo.CPUSet, error) {
	length := len(n.CPUs) / perCore
	told := len(n.CPUs)%perCore == 0
	for run := 1; run < perCore && told; run++ {
		told = n.CPUs[run*length] > n.CPUs[run*length-1]+1
	}
	if !told {
		return nil, fmt.Errorf("NUMA node %d has the CPUs %s: which %d of them are one core is not told by that number; lscpu -e tells it", n.ID, n.CPUs, perCore)
	}
	cores := make([]nvtopo.CPUSet, length)
	for i := range cores {
		for run := range perCore {
			cores[i] = append(cores[i], n.CPUs[run*length+i])
		}
	}
	return cores, nil
}
