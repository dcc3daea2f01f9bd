// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	pprofile "github.com/google/pprof/profile"
)

const (
	// ours begins the names of functions of the project's packages; the benchmark's
	// own are main's.
	ours = "github.com/nvtopo/nvtopo/pkg/"
	// cycleLabel marks the samples of scheduling cycles; its value names the series.
	cycleLabel = "cycle"
)

// extensionPoints are the methods by which the framework enters our plugins, in
// the order they are reported.
var extensionPoints = []string{"PreFilter", "Filter", "PostFilter", "PreScore", "Score", "NormalizeScore", "Reserve", "SignPod"}

// otherPoint is what is entered by none of them: handlers, background work.
const otherPoint = "other"

// function is one line of what our time is spent in.
type function struct {
	Name string  `json:"name"`
	Flat float64 `json:"flatPercent"` // of our own time
	Cum  float64 `json:"cumulativePercent"`
}

// usage is where the CPU time of the cycles went.
type usage struct {
	Cycle   int64            `json:"cycleNanoseconds"`
	Outside int64            `json:"outsideNanoseconds"` // garbage collection and the benchmark itself
	Ours    int64            `json:"oursNanoseconds"`    // with all that our packages call
	Points  map[string]int64 `json:"pointsNanoseconds"`  // extension point -> part of Ours; "other" is the rest
	Samples int64            `json:"samples"`
	Top     []function       `json:"top,omitempty"`
}

// analyse adds up CPU profiles of the same profile and workload.
func analyse(profiles [][]byte) (*usage, *pprofile.Profile, error) {
	var parsed []*pprofile.Profile
	for _, data := range profiles {
		p, err := pprofile.ParseData(data)
		if err != nil {
			return nil, nil, fmt.Errorf("parse a CPU profile: %w", err)
		}
		parsed = append(parsed, p)
	}
	merged, err := pprofile.Merge(parsed)
	if err != nil {
		return nil, nil, fmt.Errorf("merge the CPU profiles: %w", err)
	}
	u := &usage{Points: map[string]int64{}}
	flat, cum := map[string]int64{}, map[string]int64{}
	for _, s := range merged.Sample {
		samples, nanoseconds := s.Value[0], s.Value[1]
		if _, ok := s.Label[cycleLabel]; !ok {
			u.Outside += nanoseconds
			continue
		}
		u.Samples += samples
		u.Cycle += nanoseconds
		stack := names(s)
		entry := lastOurs(stack)
		if entry < 0 {
			continue
		}
		u.Ours += nanoseconds
		u.Points[pointOf(stack[entry])] += nanoseconds
		flat[stack[0]] += nanoseconds
		inner := slices.Clone(stack[:entry+1])
		slices.Sort(inner)
		for _, f := range slices.Compact(inner) { // a recursive function counts once
			cum[f] += nanoseconds
		}
	}
	u.Top = top(flat, cum, u.Ours)
	return u, merged, nil
}

// names returns a sample's functions, innermost first, inlined ones included.
func names(s *pprofile.Sample) []string {
	var out []string
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function != nil {
				out = append(out, line.Function.Name)
			}
		}
	}
	return out
}

// lastOurs is the position of the outermost function of ours, or -1.
func lastOurs(stack []string) int {
	for i := len(stack) - 1; i >= 0; i-- {
		if strings.HasPrefix(stack[i], ours) {
			return i
		}
	}
	return -1
}

// pointOf is the extension point that a function of ours is.
func pointOf(name string) string {
	method := name[strings.LastIndexByte(name, '.')+1:]
	if slices.Contains(extensionPoints, method) {
		return method
	}
	return otherPoint
}

// top lists the functions that take most, by the greater of own and cumulative time.
func top(flat, cum map[string]int64, all int64) []function {
	const most = 40
	var out []function
	for _, name := range slices.Sorted(maps.Keys(cum)) {
		f := function{Name: name, Flat: percent(flat[name], all), Cum: percent(cum[name], all)}
		if f.Cum >= 1 {
			out = append(out, f)
		}
	}
	slices.SortStableFunc(out, func(a, b function) int { return cmp.Compare(b.Cum, a.Cum) })
	return out[:min(most, len(out))]
}

func percent(part, all int64) float64 {
	if all == 0 {
		return 0
	}
	return 100 * float64(part) / float64(all)
}
