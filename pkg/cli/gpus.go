// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// parseGPUs reads a flag's list of GPU indices ("0,2-4").
func (in *input) parseGPUs(flag, list string) (nvtopo.Mask, error) {
	var set nvtopo.Mask
	for part := range strings.SplitSeq(list, ",") {
		lo, hi, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			hi = lo
		}
		first, errLo := strconv.ParseUint(lo, 10, 8)
		last, errHi := strconv.ParseUint(hi, 10, 8)
		if errLo != nil || errHi != nil || first > last {
			return 0, usagef("%s %q: %q is not a GPU index or a range of them", flag, list, part)
		}
		for index := first; index <= last; index++ {
			p := slices.IndexFunc(in.graph.GPUs, func(d nvtopo.GPU) bool { return d.Index == int(index) })
			if p < 0 {
				return 0, usagef("%s %q: there is no GPU %d, only %s", flag, list, index, in.list(nvtopo.FullMask(in.graph.Len())))
			}
			set |= nvtopo.MaskOf(p)
		}
	}
	return set, nil
}

// usable is parseGPUs for GPUs that will be used, `together` of them at once. An unusable GPU is an error.
// An empty list means all usable GPUs that no pod holds.
func (in *input) usable(flag, list string, given bool, together int) (nvtopo.Mask, error) {
	healthy := in.graph.Healthy()
	if together > 1 {
		healthy &^= in.graph.Degraded()
	}
	if !given {
		return healthy &^ in.used, nil
	}
	set, err := in.parseGPUs(flag, list)
	if err != nil {
		return 0, err
	}
	if bad := set &^ healthy; bad != 0 {
		d := &in.graph.GPUs[bad.First()]
		why := d.Unhealthy
		switch {
		case why != "":
		case d.MIG:
			why = "it is partitioned (MIG)"
		default:
			why = "it is degraded and usable alone only: " + d.Degraded
		}
		return 0, usagef("%s %q: GPU %d cannot be used: %s", flag, list, d.Index, why)
	}
	return set, nil
}

// indices returns the GPU indices of positions, in their order.
func (in *input) indices(positions []int) []int {
	out := make([]int, 0, len(positions))
	for _, p := range positions {
		out = append(out, in.graph.GPUs[p].Index)
	}
	return out
}

// members returns the GPU indices of a set, ascending.
func (in *input) members(set nvtopo.Mask) []int {
	out := in.indices(set.Positions())
	slices.Sort(out)
	return out
}

// list writes a set of GPUs for people.
func (in *input) list(set nvtopo.Mask) string { return join(in.members(set)) }

// join writes numbers in the form of the flags.
func join(numbers []int) string {
	if len(numbers) == 0 {
		return "none"
	}
	parts := make([]string, len(numbers))
	for i, n := range numbers {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ",")
}

// joinNUMA writes NUMA nodes, with a word for an unknown node.
func joinNUMA(nodes []int) string {
	return strings.ReplaceAll(join(nodes), strconv.Itoa(nvtopo.UnknownNUMA), "unknown")
}
