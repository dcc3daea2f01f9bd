// SPDX-License-Identifier: Apache-2.0

package nodeverify

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/node/openmp"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Shares of a process's pages that are near its GPUs. It is never all: pages of shared libraries are on
// the node of the process that read them first.
const (
	mostPages = 0.9
	halfPages = 0.5
)

// placeOf returns the NUMA nodes and CPUs near the GPUs.
func (c *Container) placeOf(ids []string, by string) (nvtopo.Affinity, error) {
	if by == "" {
		return nvtopo.Affinity{}, errors.New("which GPUs the container has is not known")
	}
	at, err := c.positions(ids)
	if err != nil {
		return nvtopo.Affinity{}, err
	}
	where := c.Graph.Affinity(at)
	if where.Unknown != 0 {
		return nvtopo.Affinity{}, errors.New("the NUMA node of a GPU is not known")
	}
	return where, nil
}

// pinned compares the CPUs with those that the scheduler chose, if it chose any.
func (c *Container) pinned() []Line {
	if c.ChoiceErr != nil || len(c.Choice.CPUs()) == 0 {
		return nil
	}
	l := compare("chosen CPUs", c.cpus(), c.Choice.CPUs(), "")
	if l.Verdict == Warning { // these alone were not promised
		l.Found += "; the node agent pins CPUs only where it is told to"
	}
	return []Line{l}
}

// bound compares the CPUs to which the environment binds threads of OpenMP with those that the container
// may use. A variable has one line: of the process in which most of its CPUs are elsewhere.
func (c *Container) bound() []Line {
	allowed := c.cpus()
	worst := map[string]openmp.Binding{}
	for _, p := range c.Processes {
		for _, b := range openmp.Bindings(p.Environment) {
			if last, seen := worst[b.Variable]; !seen || len(b.CPUs.Minus(allowed)) > len(last.CPUs.Minus(allowed)) {
				worst[b.Variable] = b
			}
		}
	}
	var lines []Line
	for _, variable := range slices.Sorted(maps.Keys(worst)) {
		if b := worst[variable]; b.Err != nil {
			lines = append(lines, unknown(variable, b.Err))
		} else if len(allowed) == 0 {
			lines = append(lines, unknown(variable, errors.New("the CPUs that the container may use are not known")))
		} else {
			lines = append(lines, compare(variable, b.CPUs, allowed, " of the container"))
		}
	}
	return lines
}

// beside compares CPUs, memory, pages and threads with the NUMA nodes of the GPUs.
func (c *Container) beside(where *nvtopo.Affinity, err error) []Line {
	const cpus, nodes, pages, threads = "allowed CPUs", "memory nodes", "pages", "threads"
	if err != nil {
		var lines []Line
		for _, check := range []string{cpus, nodes, pages, threads} {
			lines = append(lines, unknown(check, err))
		}
		return lines
	}
	on := "NUMA node " + numbers(where.NUMANodes)
	lines := []Line{unknown(cpus, errors.New("the CPUs of "+on+" are not known"))}
	if len(where.CPUs) > 0 {
		lines[0] = compare(cpus, c.cpus(), where.CPUs, " of "+on)
	}
	near := nvtopo.NewCPUSet(where.NUMANodes...)
	lines = append(lines, compare(nodes, c.nodes(), near, " of the GPUs"), c.pages(pages, near, on))
	if len(where.CPUs) == 0 {
		return append(lines, unknown(threads, errors.New("the CPUs of "+on+" are not known")))
	}
	return append(lines, c.threads(threads, where.CPUs, on))
}

// compare reports how much of allowed is among near.
func compare(check string, allowed, near nvtopo.CPUSet, of string) Line {
	l := Line{Check: check, Verdict: OK, Found: allowed.String(), Want: near.String() + of}
	far := allowed.Minus(near)
	switch {
	case len(allowed) == 0:
		l.Verdict, l.Found = Unknown, "no process"
	case len(far) == len(allowed):
		l.Verdict = Wrong
	case len(far) > 0:
		l.Verdict, l.Found = Warning, fmt.Sprintf("%s: %d of %d are elsewhere", allowed, len(far), len(allowed))
	}
	return l
}

// cpus returns the CPUs on which any process may run. Without a cpuset the kernel lists CPUs that do not
// exist.
func (c *Container) cpus() nvtopo.CPUSet {
	var all nvtopo.CPUSet
	for _, p := range c.Processes {
		all = all.Union(p.CPUs)
	}
	return existing(all, c.Machine.CPUs)
}

// nodes returns the NUMA nodes from which any process may take memory.
func (c *Container) nodes() nvtopo.CPUSet {
	var all nvtopo.CPUSet
	for _, p := range c.Processes {
		all = all.Union(p.Nodes)
	}
	return existing(all, c.Machine.Nodes)
}

func existing(all, there nvtopo.CPUSet) nvtopo.CPUSet {
	if there == nil {
		return all
	}
	return all.Minus(all.Minus(there))
}

// pages reports how much of the processes' memory is on the GPUs' NUMA nodes.
func (c *Container) pages(check string, near nvtopo.CPUSet, on string) Line {
	total, local := int64(0), int64(0)
	byNode := map[int]int64{}
	for _, p := range c.Processes {
		if p.PagesErr != nil {
			return unknown(check, p.PagesErr)
		}
		for node, bytes := range p.Pages {
			byNode[node] += bytes
			total += bytes
			if near.Has(node) {
				local += bytes
			}
		}
	}
	if total == 0 {
		return unknown(check, errors.New("the processes have no pages"))
	}
	l := Line{Check: check, Verdict: Wrong, Want: fmt.Sprintf("%.0f %% or more on %s", 100*mostPages, on)}
	switch share := float64(local) / float64(total); {
	case share >= mostPages:
		l.Verdict = OK
	case share >= halfPages:
		l.Verdict = Warning
	}
	var parts []string
	for _, node := range slices.Sorted(maps.Keys(byNode)) {
		parts = append(parts, fmt.Sprintf("node %d: %.1f MiB", node, float64(byNode[node])/(1<<20)))
	}
	l.Found = fmt.Sprintf("%.1f %% there (%s)", 100*float64(local)/float64(total), strings.Join(parts, ", "))
	return l
}

// threads reports how many threads ran last on CPUs near the GPUs.
func (c *Container) threads(check string, near nvtopo.CPUSet, on string) Line {
	total, local := 0, 0
	for _, p := range c.Processes {
		for _, t := range p.Threads {
			total++
			if near.Has(t.CPU) {
				local++
			}
		}
	}
	l := Line{Check: check, Verdict: Warning, Found: fmt.Sprintf("%d of %d ran last there", local, total), Want: "all on CPUs of " + on}
	switch {
	case total == 0:
		return unknown(check, errors.New("no thread"))
	case local == total:
		l.Verdict = OK
	case local == 0:
		l.Verdict = Wrong
	}
	return l
}

func numbers(all []int) string {
	parts := make([]string, len(all))
	for i, n := range all {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ", ")
}
