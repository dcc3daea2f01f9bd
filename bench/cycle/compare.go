// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"

	pprofile "github.com/google/pprof/profile"

	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// result is the whole outcome, as the JSON file has it.
type result struct {
	Seed    uint64    `json:"seed"`
	Pods    int       `json:"pods"`
	Repeats int       `json:"repeats"`
	Cycles  []*series `json:"cycles"`

	LatencyNodes int        `json:"latencyNodes"`
	Latency      []*latency `json:"latency,omitempty"`

	PlanNodes int      `json:"planNodes"`
	Plans     []*plans `json:"plans,omitempty"`

	WaitingNodes int        `json:"waitingNodes"`
	Waiting      []*waiting `json:"waiting,omitempty"`
}

// series is all repeats of one profile on one cluster and workload.
type series struct {
	Nodes    int    `json:"nodes"`
	Workload string `json:"workload"`
	Profile  string `json:"profile"`
	Pods     int    `json:"pods"`

	Wall      report.Sample `json:"wallMicrosPerPod"`      // one value a repeat
	CPU       report.Sample `json:"cpuMicrosPerPod"`       // of the whole process, garbage collection included
	Ratio     report.Sample `json:"wallRatioToBaseline"`   // repeat by repeat
	P50       report.Sample `json:"p50Micros"`             // of the cycles of a repeat
	P99       report.Sample `json:"p99Micros"`             //
	Mallocs   report.Sample `json:"allocationsPerPod"`     //
	Bytes     report.Sample `json:"bytesPerPod"`           //
	Evaluated float64       `json:"nodesFilteredPerPod"`   // mean over all repeats
	Feasible  float64       `json:"nodesFeasiblePerPod"`   //
	Hints     int           `json:"hintsUsed"`             // over all repeats
	Retries   int           `json:"cyclesAfterPostFilter"` //

	// Usage is read from the CPU profiles of all repeats together.
	Usage *usage `json:"usage"`
	// OursMicros is our packages' CPU time per pod, and OfBaseline the same in per
	// cent of the baseline's CPU time per pod in its own cycles.
	OursMicros float64 `json:"oursMicrosPerPod"`
	OfOwn      float64 `json:"oursPercentOfOwnCycle"`
	OfBaseline float64 `json:"oursPercentOfBaselineCycle"`

	profiles [][]byte
}

// compare measures every profile on every workload and cluster, the profiles in
// turn in each repeat.
func compare(ctx context.Context, o *options) (*result, error) {
	all, err := profiles()
	if err != nil {
		return nil, err
	}
	var chosen []profile
	for _, p := range all {
		if selected(o.profiles, p.name) {
			chosen = append(chosen, p)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no profile is called %q", o.profiles)
	}
	var machines []*machine.Machine
	for _, name := range []string{"dgx1-v100", "v100-pcie-8"} {
		m, err := machine.Lookup(name)
		if err != nil {
			return nil, err
		}
		machines = append(machines, m)
	}
	res := &result{Seed: o.seed, Pods: o.pods, Repeats: o.repeats, LatencyNodes: o.latencyNodes, PlanNodes: o.planNodes}
	var keep []*pprofile.Profile
	for _, n := range o.nodes {
		c, err := newCluster(n, machines...)
		if err != nil {
			return nil, err
		}
		for _, w := range workloads() {
			if !selected(o.workloads, w.name) {
				continue
			}
			group, merged, err := compareOn(ctx, o, chosen, c, w)
			if err != nil {
				return nil, fmt.Errorf("%d nodes, %s: %w", n, w.name, err)
			}
			res.Cycles = append(res.Cycles, group...)
			keep = append(keep, merged...)
		}
	}
	return res, writeProfile(o.cpuProfile, keep)
}

// compareOn returns a series per profile, and the CPU profiles of all but the baseline.
func compareOn(ctx context.Context, o *options, all []profile, c *cluster, w workload) ([]*series, []*pprofile.Profile, error) {
	group := make([]*series, len(all))
	for i, p := range all {
		group[i] = &series{Nodes: len(c.nodes), Workload: w.name, Profile: p.name}
	}
	// In proportion to the nodes, so that clusters of all sizes end equally full.
	count := max(1, o.pods*len(c.nodes)/slices.Max(o.nodes))
	for repeat := range o.repeats {
		for turn := range all {
			// Another begins each time, so that no profile always follows the same one.
			i := (turn + repeat) % len(all)
			p := all[i]
			pods := w.pods(count, c.gpus, p.config.Profiles[0].SchedulerName, o.seed)
			m, err := measure(ctx, p, c, pods, pprof.Labels(cycleLabel, group[i].label()))
			if err != nil {
				return nil, nil, fmt.Errorf("profile %q, repeat %d: %w", p.name, repeat+1, err)
			}
			group[i].add(m)
		}
		fmt.Fprintf(o.log, "%d nodes, %s: repeat %d of %d\n", len(c.nodes), w.name, repeat+1, o.repeats)
	}
	var merged []*pprofile.Profile
	for i, s := range group {
		p, err := s.finish(group[0])
		if err != nil {
			return nil, nil, err
		}
		if i > 0 {
			merged = append(merged, p)
		}
	}
	return group, merged, nil
}

// add takes one repeat into the series.
func (s *series) add(m *measurement) {
	pods := m.pods()
	s.Pods = len(m.Latencies)
	s.Wall = append(s.Wall, m.wall())
	s.CPU = append(s.CPU, micros(m.CPU)/pods)
	s.Mallocs = append(s.Mallocs, float64(m.Mallocs)/pods)
	s.Bytes = append(s.Bytes, float64(m.Bytes)/pods)
	each := make(report.Sample, len(m.Latencies))
	for i, d := range m.Latencies {
		each[i] = micros(d)
	}
	s.P50, s.P99 = append(s.P50, each.Quantile(0.5)), append(s.P99, each.Quantile(0.99))
	n := float64(len(s.Wall))
	s.Evaluated += (float64(m.Evaluated)/pods - s.Evaluated) / n
	s.Feasible += (float64(m.Feasible)/pods - s.Feasible) / n
	s.Hints += m.Hints
	s.Retries += m.Retries
	s.profiles = append(s.profiles, m.profile)
}

// finish compares with the baseline and reads the CPU profiles; the baseline has
// to be finished first.
func (s *series) finish(baseline *series) (*pprofile.Profile, error) {
	for i, wall := range s.Wall {
		s.Ratio = append(s.Ratio, wall/baseline.Wall[i])
	}
	u, merged, err := analyse(s.profiles)
	if err != nil {
		return nil, err
	}
	s.Usage, s.profiles = u, nil
	s.OursMicros = s.perPod(u.Ours)
	s.OfOwn = percent(u.Ours, u.Cycle)
	// Both ran the same pods as often.
	s.OfBaseline = percent(u.Ours, baseline.Usage.Cycle)
	return merged, nil
}

// perPod turns CPU time of all repeats, in ns, into µs per pod.
func (s *series) perPod(nanoseconds int64) float64 {
	return float64(nanoseconds) / 1000 / float64(s.Pods*len(s.Wall))
}

func writeProfile(path string, profiles []*pprofile.Profile) error {
	if path == "" || len(profiles) == 0 {
		return nil
	}
	merged, err := pprofile.Merge(profiles)
	if err != nil {
		return fmt.Errorf("merge the CPU profiles: %w", err)
	}
	var encoded bytes.Buffer
	if err := merged.Write(&encoded); err != nil {
		return fmt.Errorf("encode the CPU profile: %w", err)
	}
	if err := os.WriteFile(path, encoded.Bytes(), 0o644); err != nil {
		return fmt.Errorf("keep the CPU profile: %w", err)
	}
	return nil
}
