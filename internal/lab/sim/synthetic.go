// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// maxSynthetic bounds the pods of a synthetic trace.
const maxSynthetic = 10_000_000

// longest caps the drawn durations at a day, so that a trace of some ten thousand
// pods lasts several times its longest job.
const longest = 24 * 3600

// mix is a synthetic trace: the frequency and durations of each size of job.
type mix struct {
	name  string
	parts []mixPart
}

// mixPart is one size of job.
type mixPart struct {
	gpus, pods int // of a pod; of the gang
	weight     float64
	lasts      quantiles
}

// quantiles are the 10th, 25th, 50th, 75th, 90th and 99th percentile of the
// duration of jobs in seconds.
type quantiles [6]float64

// quantileOf holds the shares of the jobs that the quantiles are for.
var quantileOf = [len(quantiles{})]float64{0.10, 0.25, 0.50, 0.75, 0.90, 0.99}

// at is the duration that the share u of the jobs does not exceed: log-linear
// between the percentiles, going on below the first as between the first two; the
// longest hundredth runs as long as the 99th percentile, and nothing longer than a
// day: the tails of real traces, weeks long, let no replay come to a steady state.
func (q *quantiles) at(u float64) float64 {
	i := 1
	for i < len(q)-1 && u > quantileOf[i] {
		i++
	}
	part := (min(u, quantileOf[i]) - quantileOf[i-1]) / (quantileOf[i] - quantileOf[i-1])
	return min(q[i-1]*math.Pow(q[i]/q[i-1], part), longest)
}

// phillyDurations are those of the Philly trace by the GPUs of a job. Source:
// Microsoft Philly (Jeon et al., ATC'19), job list as published, 82,247 jobs.
func phillyDurations(gpus int) quantiles {
	switch gpus {
	case 1:
		return quantiles{62, 122, 1117, 2716, 8512, 135_000}
	case 2:
		return quantiles{11, 16, 21, 76, 73_600, 526_000}
	case 4:
		return quantiles{138, 772, 17_400, 89_400, 185_000, 909_000}
	case 8:
		return quantiles{216, 1871, 23_700, 173_000, 352_000, 1_070_000}
	}
	return quantiles{51, 380, 52_500, 167_000, 341_000, 1_370_000} // of 16 GPUs; more are rare
}

func mixes() []mix {
	multi := mix{name: "multigpu50"}
	// Shares of the pods with GPUs of Alibaba's trace "openb multigpu50". That gives
	// no times, and Philly's differ so much between sizes that 2 % of the jobs would
	// hold nearly all GPUs; so all sizes last as long as jobs of one GPU.
	for _, p := range []mixPart{{gpus: 1, weight: 55}, {gpus: 2, weight: 17}, {gpus: 4, weight: 16}, {gpus: 8, weight: 12}} {
		p.pods, p.lasts = 1, phillyDurations(1)
		multi.parts = append(multi.parts, p)
	}
	philly := mix{name: "philly"}
	for _, p := range []struct {
		gpus int
		jobs float64
	}{{1, 76627}, {2, 1818}, {4, 1870}, {8, 1643}, {16, 199}, {24, 7}, {32, 67}, {64, 6}, {128, 3}} {
		philly.parts = append(philly.parts, mixPart{
			gpus: min(p.gpus, 8), pods: max(1, p.gpus/8), weight: p.jobs, lasts: phillyDurations(p.gpus),
		})
	}
	return []mix{multi, philly}
}

// SyntheticNames lists the names Synthetic takes.
func SyntheticNames() []string {
	var out []string
	for _, m := range mixes() {
		out = append(out, m.name)
	}
	return out
}

// Synthetic draws a trace of so many pods or, where the last is of a gang, a few
// more. Arrivals are a Poisson process of one job a second on average: give
// Config.Load. The names:
//
//   - multigpu50: pods of 1, 2, 4 and 8 GPUs as 55 : 17 : 16 : 12;
//   - philly: jobs of 1 to 128 GPUs as in Microsoft's trace; those above 8 GPUs are
//     gangs of pods of 8.
func Synthetic(name string, pods int, seed uint64) ([]Job, error) {
	all := mixes()
	i := slices.IndexFunc(all, func(m mix) bool { return m.name == name })
	switch {
	case i < 0:
		return nil, fmt.Errorf("no synthetic trace %q, want one of %s", name, strings.Join(SyntheticNames(), ", "))
	case pods < 1 || pods > maxSynthetic:
		return nil, fmt.Errorf("%d pods: want 1 to %d", pods, maxSynthetic)
	}
	m := &all[i]
	var total float64
	for _, p := range m.parts {
		total += p.weight
	}
	rng := rand.New(rand.NewPCG(seed, streamTrace))
	var out []Job
	var now float64
	for n := 0; n < pods; {
		now += rng.ExpFloat64()
		part := m.draw(rng.Float64() * total)
		out = append(out, Job{ArrivalS: now, DurationS: part.lasts.at(rng.Float64()), GPUs: part.gpus, Pods: part.pods})
		n += part.pods
	}
	return out, nil
}

// draw is the part that holds the given point of the weights laid end to end.
func (m *mix) draw(point float64) *mixPart {
	for i := range m.parts {
		if point -= m.parts[i].weight; point < 0 {
			return &m.parts[i]
		}
	}
	return &m.parts[len(m.parts)-1]
}
