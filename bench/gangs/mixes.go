// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"

	"github.com/nvtopo/nvtopo/internal/lab/sim"
)

// mix is a kind of trace.
type mix struct {
	name  string
	share float64  // of the GPU time, in gangs
	pods  []int    // of a gang, equally often
	gpus  weighted // of a pod of a gang
	// singles are the GPUs of jobs of one pod; nil: smallSingles.
	singles weighted
}

// weighted are numbers of GPUs with their frequencies.
type weighted []struct {
	gpus   int
	weight float64
}

// Names of the mixes.
const (
	mixTrain = "train"
	mixFrag  = "frag"
	mixBig   = "big"
)

// mixes returns the mixes that bars are set for.
func mixes() []mix {
	return []mix{
		{name: mixTrain, share: 0.75, pods: doubling(2, 32), gpus: weighted{{8, 0.7}, {4, 0.2}, {2, 0.1}}},
		{name: mixFrag, share: 0.5, pods: doubling(2, 16), gpus: weighted{{8, 0.4}, {4, 0.3}, {2, 0.2}, {1, 0.1}}},
		{name: mixBig, share: 0.85, pods: doubling(4, 128), gpus: weighted{{8, 0.85}, {4, 0.15}}},
	}
}

// wide returns the mix with gangs up to a thousand pods, to time their plans.
func wide() mix {
	return mix{name: "wide", share: 0.9, pods: []int{128, 256, 512, 1000}, gpus: weighted{{8, 0.5}, {4, 0.3}, {2, 0.2}}}
}

// smallSingles returns the GPUs of the jobs of one pod: small work beside the gangs.
func smallSingles() weighted { return weighted{{1, 0.7}, {2, 0.2}, {4, 0.1}} }

// openbSingles returns those of Alibaba's openb pods with GPUs. The whole nodes among them
// fill racks as gangs do, and under every rule fewer gangs find one.
func openbSingles() weighted { return weighted{{1, 0.55}, {2, 0.17}, {4, 0.16}, {8, 0.12}} }

// doubling returns first, twice that, and so on up to last.
func doubling(first, last int) (out []int) {
	for n := first; n <= last; n *= 2 {
		out = append(out, n)
	}
	return out
}

func (w weighted) mean() (m float64) {
	for _, e := range w {
		m += float64(e.gpus) * e.weight
	}
	return m
}

func (w weighted) draw(u float64) int {
	for _, e := range w {
		if u -= e.weight; u < 0 {
			return e.gpus
		}
	}
	return w[len(w)-1].gpus
}

// Durations are log-normal: the median is an hour, the mean three, and the longest three
// days.
const (
	medianS  = 3600
	sigma    = 1.5
	longestS = 3 * 24 * 3600
)

// jobs draws a trace: a Poisson process of one job a second, which the load stretches.
func (m *mix) jobs(n int, seed uint64) []sim.Job {
	rng := rand.New(rand.NewPCG(seed, 1))
	pods := 0.0
	for _, p := range m.pods {
		pods += float64(p) / float64(len(m.pods))
	}
	// All jobs have the same mean duration, so GPU time is in proportion to GPUs.
	single := m.singles
	if single == nil {
		single = smallSingles()
	}
	a, b := m.share/(pods*m.gpus.mean()), (1-m.share)/single.mean()
	gangs := a / (a + b)
	out := make([]sim.Job, n)
	now := 0.0
	for i := range out {
		now += rng.ExpFloat64()
		j := sim.Job{ArrivalS: now, DurationS: min(longestS, medianS*math.Exp(sigma*rng.NormFloat64())), Pods: 1}
		if rng.Float64() < gangs {
			j.Pods, j.GPUs = m.pods[rng.IntN(len(m.pods))], m.gpus.draw(rng.Float64())
		} else {
			j.GPUs = single.draw(rng.Float64())
		}
		out[i] = j
	}
	return out
}
