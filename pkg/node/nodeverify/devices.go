// SPDX-License-Identifier: Apache-2.0

package nodeverify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/visible"
)

func unknown(check string, err error) Line {
	return Line{Check: check, Verdict: Unknown, Found: err.Error()}
}

// record compares kubelet's record with the scheduler's choice.
func (c *Container) record() Line {
	const check = "kubelet's record"
	switch {
	case c.RecordErr != nil:
		return unknown(check, c.RecordErr)
	case c.ChoiceErr != nil:
		return unknown(check, c.ChoiceErr)
	}
	want, equal := c.Choice.Recorded(c.Name, c.Resource, c.Recorded)
	l := Line{Check: check, Verdict: Wrong, Found: list(c.Recorded), Want: list(want) + " of the annotation"}
	switch {
	case equal:
		l.Verdict = OK
	case want == nil && len(c.Recorded) == 0:
		l.Verdict, l.Want = OK, ""
	}
	return l
}

// visible compares the GPUs that the container sees with those that it was given.
func (c *Container) visible(given []string, by string) Line {
	const check = "visible GPUs"
	seen, how, err := c.seen()
	switch {
	case err != nil:
		return unknown(check, err)
	case by == bySight:
		return unknown(check, fmt.Errorf("it sees %s by %s; what it was given is not known", list(seen), how))
	}
	l := Line{Check: check, Verdict: OK, Found: list(seen) + " by " + how, Want: list(given) + " of " + by}
	if !slices.Equal(seen, given) {
		l.Verdict = Wrong
	}
	return l
}

// cuda reports which of the container's GPUs CUDA uses. CUDA ignores the first name that it cannot
// resolve and all that follow.
func (c *Container) cuda(given []string) Line {
	const check = visible.CUDADevices
	if len(c.Processes) == 0 || c.Processes[0].EnvironmentErr != nil {
		return Line{Check: check, Verdict: Unknown, Found: "the environment is not known"}
	}
	value, set := lookup(c.Processes[0].Environment, visible.CUDADevices)
	have := len(given)
	switch {
	case !set:
		return Line{Check: check, Verdict: OK, Found: "not set: CUDA uses all"}
	case have == 0:
		return Line{Check: check, Verdict: Unknown, Found: value + "; the container's GPUs are not known"}
	}
	l := Line{Check: check, Verdict: OK, Found: value, Want: fmt.Sprintf("indices 0 to %d, whichever GPUs they are, or UUIDs of these", have-1)}
	used := 0
	for name := range strings.SplitSeq(value, ",") {
		if !usable(strings.TrimSpace(name), given) {
			l.Verdict, l.Found = Wrong, fmt.Sprintf("%s: CUDA uses %d of %d GPUs, it has no %q", value, used, have, name)
			return l
		}
		used++
	}
	if used < have {
		l.Verdict, l.Found = Warning, fmt.Sprintf("%s: CUDA uses %d of %d GPUs", value, used, have)
	}
	return l
}

// usable reports whether a name of CUDA_VISIBLE_DEVICES means one of the container's GPUs.
func usable(name string, given []string) bool {
	if index, err := strconv.Atoi(name); err == nil {
		return index >= 0 && index < len(given)
	}
	ids, certain := visible.Resolve(name, nil, given)
	return certain && len(ids) == 1 && slices.Contains(given, ids[0])
}

// lookup returns the last value of a variable, which is the effective one.
func lookup(environment []string, name string) (value string, set bool) {
	for _, e := range environment {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value, set = v, true
		}
	}
	return value, set
}

func list(ids []string) string {
	if len(ids) == 0 {
		return "none"
	}
	return strings.Join(ids, ", ")
}
