// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/node/nodeverify"
)

// mostProcesses is the number of processes that are named unless the output is wide.
const mostProcesses = 4

// longUUID matches a device's whole UUID. Its beginning is a name, too, for CUDA and for NVIDIA's
// container toolkit.
var longUUID = regexp.MustCompile(`\b((?:GPU|MIG)-[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)

// verificationText writes the report for people; if wide, with whole UUIDs and all processes.
func verificationText(r *nodeverify.Report, wide bool, colours palette) func(io.Writer) error {
	return func(w io.Writer) error {
		if r.Pod != "" {
			printf(w, "Pod %s/%s on node %s\n\n", r.Namespace, r.Pod, r.Node)
		}
		short := func(s string) string { return longUUID.ReplaceAllString(s, "$1") }
		if wide {
			short = func(s string) string { return s }
		}
		for i, c := range r.Containers {
			if i > 0 {
				fmt.Fprintln(w)
			}
			if err := verifiedHead(w, c, wide, short); err != nil {
				return err
			}
			if err := verifiedLines(w, c, short, colours); err != nil {
				return err
			}
		}
		return nil
	}
}

func verifiedHead(w io.Writer, c *nodeverify.Result, wide bool, short func(string) string) error {
	var head table
	if c.Container != "" {
		head.row("Container", c.Container)
	}
	processes := c.Processes
	if !wide && len(processes) > mostProcesses {
		processes = append(slices.Clone(processes[:mostProcesses]), fmt.Sprintf("%d more", len(c.Processes)-mostProcesses))
	}
	head.row("Processes", strings.Join(processes, ", "))
	gpus := cmp.Or(strings.Join(c.GPUs, ", "), "none")
	if c.By == "" {
		gpus = "not known"
	} else {
		gpus += ", by " + c.By
	}
	head.row("GPUs", short(gpus))
	if len(c.NUMANodes) > 0 {
		head.row("NUMA nodes", fmt.Sprintf("%s, CPUs %s", join(c.NUMANodes), cmp.Or(c.CPUs, "not known")))
	}
	return head.write(w)
}

func verifiedLines(w io.Writer, c *nodeverify.Result, short func(string) string, colours palette) error {
	fmt.Fprintln(w)
	var lines table
	lines.row("VERDICT", "CHECK", "FOUND", "EXPECTED")
	for _, l := range c.Lines {
		lines.row(verdictColour(colours, l.Verdict), l.Check, short(l.Found), short(l.Want))
	}
	if err := lines.write(w); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nBy hand:")
	for _, command := range c.Commands {
		printf(w, "  %s\n", command)
	}
	return nil
}

func verdictColour(p palette, v nodeverify.Verdict) safe {
	paint := map[nodeverify.Verdict]func(string) safe{
		nodeverify.OK: p.good, nodeverify.Warning: p.warning, nodeverify.Wrong: p.bad,
	}[v]
	if paint == nil {
		return safe(v)
	}
	return paint(string(v))
}
