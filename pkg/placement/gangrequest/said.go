// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"fmt"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Short is the scheduler's message for a gang with too few members.
func Short(have, want int) string { return fmt.Sprintf("gang: %d of %d members", have, want) }

// MayBeScheduled is its suffix if there are enough members, but some may not be scheduled.
const MayBeScheduled = " may be scheduled"

var short = regexp.MustCompile(`gang: \d+ of \d+ members(` + MayBeScheduled + `)?`)

// Said updates the scheduler's message on a waiting member: the number of members is computed again, and
// the message is empty if none is missing any more.
func (g *Gang) Said(of *v1.Pod, text string) string {
	found := short.FindStringSubmatch(text)
	switch {
	case found == nil || g.Err != nil: // how many start together is not known
		return text
	case found[1] != "" && !g.mayStart(of):
		return text
	case found[1] == "" && !g.Complete():
		return strings.Replace(text, found[0], Short(g.Members.Count(), g.Minimum), 1)
	}
	return ""
}

// mayStart reports whether enough members to start have no scheduling gate and the same scheduler as of.
func (g *Gang) mayStart(of *v1.Pod) bool {
	have := len(g.Members.Ended)
	for _, p := range g.Members.Live {
		if p.Spec.NodeName != "" || len(p.Spec.SchedulingGates) == 0 && p.Spec.SchedulerName == of.Spec.SchedulerName {
			have++
		}
	}
	return have >= g.Minimum
}
