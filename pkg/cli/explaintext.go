// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// explanationText writes an explanation for people: the reason first.
func explanationText(e *explain.Explanation) []byte {
	var b bytes.Buffer
	printf(&b, "%s %s/%s: %s\n", e.Kind, e.Namespace, e.Name, e.State)
	if e.Cause != "" {
		printf(&b, "\n%s: %s\n", e.Cause, e.Reason)
	} else if e.Reason != "" {
		printf(&b, "\n%s\n", e.Reason)
	}
	for _, line := range e.Evidence {
		printf(&b, "  %s\n", line)
	}
	if e.Next != "" {
		printf(&b, "Next: %s\n", e.Next)
	}
	if e.Scheduler != "" {
		printf(&b, "The scheduler said: %s\n", e.Scheduler)
	}
	if e.IgnoredKeys != "" {
		printf(&b, "Ignored: %s\n", e.IgnoredKeys)
	}
	podsText(&b, e.Pods)
	gangText(&b, e.Gang)
	choiceText(&b, e.Choice)
	refusalsText(&b, e.Refusals)
	candidatesText(&b, e.Candidates)
	relaxationsText(&b, e.Relaxations)
	return b.Bytes()
}

// explainTable writes aligned columns after an empty line.
func explainTable(b *bytes.Buffer, title string, rows func(io.Writer)) {
	fmt.Fprintln(b)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	printf(t, "%s\n", safe(title))
	rows(t)
	_ = t.Flush() // a buffer never fails
	trimmed := bytes.Split(b.Bytes(), []byte("\n"))
	for i := range trimmed {
		trimmed[i] = bytes.TrimRight(trimmed[i], " ")
	}
	text := bytes.Join(trimmed, []byte("\n"))
	b.Reset()
	b.Write(text)
}

// podsText writes the pods of an object with several pods, by state.
func podsText(b *bytes.Buffer, all []explain.Alike) {
	if len(all) == 0 {
		return
	}
	explainTable(b, "PODS\tSTATE\tCAUSE\tFOR EXAMPLE", func(w io.Writer) {
		for i := range all {
			printf(w, "%d\t%s\t%s\t%s\n", all[i].Pods, all[i].State, cmp.Or(string(all[i].Cause), "-"), strings.Join(all[i].Named, ", "))
		}
	})
}

func gangText(b *bytes.Buffer, g *explain.Gang) {
	if g == nil {
		return
	}
	there := fmt.Sprintf("%d of %d members there", g.Have, g.Minimum)
	if g.Minimum == 0 {
		there = fmt.Sprintf("members there: %d, and nobody says how many start together", g.Have)
	}
	printf(b, "\n%s: %s, %d placed", g.Name, there, g.Placed)
	if g.Required != "" {
		printf(b, "; all in one %s", g.Required)
	}
	fmt.Fprintln(b)
}

func refusalsText(b *bytes.Buffer, all []explain.Refusal) {
	if len(all) == 0 {
		return
	}
	explainTable(b, "NODES\tREFUSE FOR\tFOR EXAMPLE", func(w io.Writer) {
		for _, r := range all {
			printf(w, "%d\t%s\t%s\n", r.Nodes, r.Text, strings.Join(r.Named, ", "))
		}
	})
}

func candidatesText(b *bytes.Buffer, all []explain.Candidate) {
	if len(all) == 0 {
		return
	}
	explainTable(b, "NEAREST\tFREE\tIN THE WAY\tTHEN IT GETS", func(w io.Writer) {
		for i := range all {
			c := &all[i]
			printf(w, "%s\t%d\t%s\t%s\n", c.Node, c.Free, inTheWay(c), setText(c.Gets))
		}
	})
}

// inTheWay describes the pods in the way, or another obstacle.
func inTheWay(c *explain.Candidate) string {
	var out []string
	for _, p := range c.Blockers {
		text := p.Pod
		if len(p.GPUs) > 0 {
			text += " (GPUs " + join(p.GPUs) + ")"
		}
		if p.Lost != "" {
			text += ", " + p.Lost
		}
		if p.MovesTo != "" {
			text += ", which " + p.MovesTo + " would take"
		}
		if p.Stays != "" {
			text += ", not to be moved: " + p.Stays
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		for _, o := range c.Obstacles {
			out = append(out, cmp.Or(o.Detail, o.Text))
		}
	}
	return strings.Join(out, "; ")
}

func setText(s *explain.Set) string {
	if s == nil {
		return ""
	}
	return s.String()
}

func relaxationsText(b *bytes.Buffer, all []explain.Relaxation) {
	if len(all) == 0 {
		return
	}
	explainTable(b, "WITHOUT\tNODES\tON\tIT GETS", func(w io.Writer) {
		for _, r := range all {
			printf(w, "%s\t%d\t%s\t%s\n", r.Wish, r.Nodes, where(&r), setText(r.Gets))
		}
	})
}

// where returns a node, or the level of a gang's domain.
func where(r *explain.Relaxation) string {
	if r.Level == "" {
		return r.Node
	}
	return "in one " + r.Level
}

func choiceText(b *bytes.Buffer, c *explain.Choice) {
	if c == nil || c.Set == nil {
		return
	}
	printf(b, "\nHas   %s on %s\n", c.Set, c.Node)
	if c.Best != nil {
		printf(b, "Best  %s on %s, were it placed now (%s), the best of %s\n", c.Best, c.BestNode, profileOf(c), count(c.Compared, "node"))
		if len(c.NotCompared) > 0 {
			printf(b, "      %s\n", noPart(c.NotCompared))
		}
	}
	decisionText(b, c.Decision, nodesOf(c))
}

// maxReasons is the number of reasons in a line.
const maxReasons = 4

// noPart describes the number of nodes that take no part, and their reasons.
func noPart(all []explain.Refusal) string {
	total, others := 0, 0
	var reasons []string
	for i := range all {
		if total += all[i].Nodes; i < maxReasons {
			reasons = append(reasons, fmt.Sprintf("%d for %s", all[i].Nodes, all[i].Cause))
		} else {
			others += all[i].Nodes
		}
	}
	if others > 0 {
		reasons = append(reasons, fmt.Sprintf("%d for other reasons", others))
	}
	verb := " take no part: "
	if total == 1 {
		verb = " takes no part: "
	}
	return count(total, "node") + verb + strings.Join(reasons, ", ")
}

// profileOf names the profile according to which the best node was determined.
func profileOf(c *explain.Choice) string {
	if c.Assumed {
		return "the shipped profile: no scheduler has published " + c.Profile
	}
	return "profile " + c.Profile
}

// nodesOf is the present number of nodes; 0 if not known.
func nodesOf(c *explain.Choice) int {
	n := c.Compared
	for i := range c.NotCompared {
		n += c.NotCompared[i].Nodes
	}
	return n
}

// decisionText writes the record of the decision for the node. nodes is the present number of nodes.
func decisionText(b *bytes.Buffer, d *allocation.Decision, nodes int) {
	if d == nil {
		return
	}
	printf(b, "\nChosen %s", d.At.Format(time.RFC3339))
	switch {
	case d.Gang:
		fmt.Fprint(b, " by the plan of its gang")
	case d.Scored > 0:
		printf(b, " of %d nodes that were compared", d.Scored)
	}
	if d.BestRing > 0 {
		printf(b, ", best of as many there %s GB/s", nvtopo.FormatGBps(d.BestRing))
	}
	fmt.Fprintln(b)
	looked := d.Scored
	for _, reason := range slices.Sorted(maps.Keys(d.Refused)) {
		looked += d.Refused[reason]
		printf(b, "  nodes refused for %s: %d\n", reason, d.Refused[reason])
	}
	if !d.Gang && d.Scored > 0 && nodes > looked {
		printf(b, "  not compared were nodes that come after these in the scheduler's order for the pod, and nodes that could not take it\n")
	}
	scoresText(b, "THEN", d)
}

// scoresText writes the compared nodes, the chosen one first. title is the heading of their column.
func scoresText(b *bytes.Buffer, title string, d *allocation.Decision) {
	if len(d.Candidates) == 0 {
		return
	}
	explainTable(b, title+"\tSCORE\tRING GB/S\tBANDWIDTH\tLATENCY\tKEPT FOR OTHERS", func(w io.Writer) {
		for i := range d.Candidates {
			k := &d.Candidates[i]
			if k.Terms == nil {
				printf(w, "%s\t-\t%s\t-\t-\t-\n", k.Node, ringGBps(k.Ring))
				continue
			}
			printf(w, "%s\t%.2f\t%s\t%.3f\t%.3f\t%.3f\n", k.Node, float64(k.Score)/100, ringGBps(k.Ring),
				float64(k.Terms[0])/1000, float64(k.Terms[1])/1000, float64(k.Terms[2])/1000)
		}
	})
}

// ringGBps is the bandwidth of a ring, or - for one GPU, which has none.
func ringGBps(kBps int64) string {
	if kBps == 0 {
		return "-"
	}
	return nvtopo.FormatGBps(kBps)
}
