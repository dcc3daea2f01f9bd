// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// maxWhys bounds the reasons that are written for people, and the pods named with each.
const maxWhys = 4

// why is a reason for the places of some pods, and these pods.
type why struct {
	pods []string
	text string
}

// whyText writes for the placed pods why each is on its node: members of one gang together.
func whyText(b *bytes.Buffer, pods []whatif.Pod) {
	var all []why
	untold := 0
	for i := range pods {
		p := &pods[i]
		if p.Why == nil || p.Why.Choice == nil || p.Why.Gang == nil && p.Why.Choice.Best == nil {
			if p.Outcome == whatif.Placed && len(p.Devices) > 0 {
				untold++
			}
			continue
		}
		text := reasonText(p.Why)
		at := slices.IndexFunc(all, func(w why) bool { return w.text == text })
		if at < 0 {
			at, all = len(all), append(all, why{text: text})
		}
		all[at].pods = append(all[at].pods, p.Pod)
	}
	for i, w := range all {
		if i >= maxWhys {
			untold += len(w.pods)
			continue
		}
		printf(b, "\n%s%s", named(w.pods), safe(printableLines(w.text)))
	}
	if untold > 0 && len(all) > 0 {
		printf(b, "\nFor %s more it is not written here: ask about fewer at once\n", count(untold, "pod"))
	}
}

// named lists the first of some pods.
func named(pods []string) string {
	text := strings.Join(pods[:min(len(pods), maxWhys)], ", ")
	if more := len(pods) - maxWhys; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// reasonText returns why a pod is on its node, in the words of explain.
func reasonText(w *explain.Placed) string {
	var b bytes.Buffer
	c := w.Choice
	switch {
	case w.Gang != nil:
		printf(&b, " by the plan of %s\n", w.Gang.Name)
	case c.BestNode != c.Node:
		printf(&b, " on %s: by its GPUs alone %s would come first, with %s; other plugins of the scheduler decided\n", c.Node, c.BestNode, c.Best)
	case c.Compared == 1:
		printf(&b, " on %s: no other node would take it\n", c.Node)
	default:
		printf(&b, " on %s: the best of %s that would take it\n", c.Node, count(c.Compared, "node"))
	}
	for _, line := range w.Evidence {
		printf(&b, "  %s\n", line)
	}
	for i := range w.Behind {
		printf(&b, "  next %s: %s; %s\n", w.Behind[i].Node, setText(w.Behind[i].Set), w.Behind[i].Why)
	}
	if len(c.NotCompared) > 0 {
		printf(&b, "  %s\n", noPart(c.NotCompared))
	}
	if d := c.Decision; d != nil && slices.ContainsFunc(d.Candidates, func(k allocation.Candidate) bool { return k.Terms != nil }) {
		scoresText(&b, "NODE", d)
	}
	return b.String()
}
