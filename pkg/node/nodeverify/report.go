// SPDX-License-Identifier: Apache-2.0

package nodeverify

import (
	"strconv"
)

// Verdict is the outcome of a comparison.
type Verdict string

// Verdicts. For a comparison of sets, such as all CPUs, OK means all of it, Warning a part, and Wrong
// none.
const (
	OK      Verdict = "ok"
	Warning Verdict = "warning"
	Wrong   Verdict = "wrong"
	Unknown Verdict = "unknown"
)

// Line is the result of one comparison.
type Line struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"` // for Unknown: the reason
	Want    string  `json:"want,omitempty"`
}

// Result is the report on one container.
type Result struct {
	Container string   `json:"container,omitempty"`
	Processes []string `json:"processes"`    // PID and name
	GPUs      []string `json:"gpus"`         // UUIDs
	By        string   `json:"by,omitempty"` // source of GPUs
	NUMANodes []int    `json:"numaNodes"`    // of the GPUs
	CPUs      string   `json:"cpus"`         // nearest to the GPUs, in the kernel's list format
	Lines     []Line   `json:"lines"`
	// Commands show the same by hand.
	Commands []string `json:"commands"`
}

// Report holds the results of all containers.
type Report struct {
	Namespace  string    `json:"namespace,omitempty"`
	Pod        string    `json:"pod,omitempty"`
	Node       string    `json:"node,omitempty"`
	Containers []*Result `json:"containers"`
}

// Count returns the number of lines with the verdict.
func (r *Report) Count(v Verdict) int {
	n := 0
	for _, c := range r.Containers {
		for _, l := range c.Lines {
			if l.Verdict == v {
				n++
			}
		}
	}
	return n
}

// Examine runs all comparisons on a container. inside is put before commands that must be run inside it,
// for example "kubectl exec POD -- "; it is empty if the caller is inside.
func Examine(c *Container, inside string) *Result {
	ids, by := c.given()
	r := &Result{Container: c.Name, Processes: []string{}, GPUs: append([]string{}, ids...), By: by, NUMANodes: []int{}, Commands: c.commands(inside)}
	for _, p := range c.Processes {
		r.Processes = append(r.Processes, strconv.Itoa(p.PID)+" "+p.Name)
	}
	where, err := c.placeOf(ids, by)
	if err == nil {
		r.NUMANodes, r.CPUs = where.NUMANodes, where.CPUs.String()
	}
	r.Lines = []Line{c.record(), c.visible(ids, by)}
	if by != "" && len(ids) == 0 {
		return r // without GPUs it may be anywhere
	}
	r.Lines = append(r.Lines, c.cuda(ids))
	r.Lines = append(r.Lines, c.pinned()...)
	r.Lines = append(r.Lines, c.bound()...)
	r.Lines = append(r.Lines, c.beside(&where, err)...)
	return r
}

// commands returns the commands whose output the lines compare.
func (c *Container) commands(inside string) []string {
	if len(c.Processes) == 0 {
		return []string{}
	}
	pid := strconv.Itoa(c.Processes[0].PID)
	return []string{
		inside + "nvidia-smi -L",
		inside + "nvidia-smi topo -m",
		"taskset -cp " + pid,
		inside + "numactl --show",
		"numastat -p " + pid,
		"ps -eLo pid,tid,psr,comm",
	}
}
