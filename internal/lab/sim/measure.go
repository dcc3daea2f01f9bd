// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"maps"
	"math"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// measures accumulates the values of Result.
type measures struct {
	first      int     // the first measured job
	start0     float64 // seconds: when it arrives
	end        float64 // seconds: when the last job arrives
	now        float64
	allocated  float64 // GPU seconds in use
	free       float64 // GPU seconds not in use
	counted    float64 // those on machines of four GPUs or more
	stranded   float64
	unusable   float64 // GPU seconds times pods, see sizes.unusable
	pending    []choice
	bySize     map[int]*sizeCount
	waits      []float64
	ratio      float64
	regret     float64 // kB/s
	singleNUMA int
}

// choice is the measurement of one pod's GPUs.
type choice struct {
	ratio  float64
	regret int64 // kB/s
	best   bool
	single bool // within one NUMA node
}

type sizeCount struct {
	pods, best int
	wait       float64 // sum of seconds
}

func (m *measures) begin(jobs []arrival, warmUp float64) {
	m.bySize = map[int]*sizeCount{}
	if len(jobs) == 0 {
		return
	}
	m.first = int(warmUp * float64(len(jobs)))
	m.start0, m.end = jobs[m.first].ArrivalS, jobs[len(jobs)-1].ArrivalS
}

// advance adds the time since the last event to the levels.
func (m *measures) advance(s *state, now float64) {
	dt := min(now, m.end) - max(m.now, m.start0)
	m.now = now
	if dt <= 0 {
		return
	}
	m.allocated += dt * float64(s.gpus-s.free)
	m.free += dt * float64(s.free)
	m.counted += dt * float64(s.counted)
	m.stranded += dt * float64(s.stranded)
	m.unusable += dt * float64(s.unusable)
}

// choice measures one pod of the job that is being placed; best is the fastest ring that any node could
// have given.
func (m *measures) choice(t *nvtopo.Tables, set nvtopo.Mask, best int64) {
	c := choice{single: t.NUMACount(set) == 1}
	if k := set.Len(); k > 1 {
		ring, ideal := t.Ring(set), t.Best(k)
		c.regret = best - ring
		c.best = ring >= ideal
		c.ratio = 1
		if ideal > 0 {
			c.ratio = float64(ring) / float64(ideal)
		}
	}
	m.pending = append(m.pending, c)
}

// forget drops the choices of a job that could not start as a whole.
func (m *measures) forget() { m.pending = m.pending[:0] }

// start counts the choices of a job that starts.
func (m *measures) start(job int, j *arrival, now float64) {
	if job < m.first {
		m.forget()
		return
	}
	n := m.bySize[j.GPUs]
	if n == nil {
		n = &sizeCount{}
		m.bySize[j.GPUs] = n
	}
	for _, c := range m.pending {
		wait := now - j.ArrivalS
		m.waits = append(m.waits, wait)
		n.pods++
		n.wait += wait
		if j.GPUs < 2 {
			continue
		}
		m.ratio += c.ratio
		m.regret += float64(c.regret)
		if c.best {
			n.best++
		}
		if c.single {
			m.singleNUMA++
		}
	}
	m.forget()
}

// result returns the replay's measurements.
func (r *replay) result() *Result {
	m, c := &r.measures, r.config
	out := &Result{
		Policy: c.Policy, Seed: c.Seed, Load: c.Load,
		Nodes: len(c.Nodes), GPUs: int(r.state.gpus), Pods: len(m.waits), Unplaceable: r.unplaceable,
		BestClassShareBySize: map[int]float64{},
		KubeletRejections:    r.mishaps.rejections, PickerFailures: r.mishaps.failures,
		AllocationRatio:  share(m.allocated, m.allocated+m.free),
		FGDFragmentation: share(m.unusable, m.free*float64(r.state.sizes.total)),
		StrandedForFour:  share(m.stranded, m.counted),
		WindowS:          m.end - m.start0,
	}
	for _, q := range r.waiting {
		out.Unfinished += len(q.jobs) * q.pods
	}
	var wait, multiWait float64
	best := 0
	// In order of size: floating-point sums depend on it.
	for _, k := range slices.Sorted(maps.Keys(m.bySize)) {
		n := m.bySize[k]
		wait += n.wait
		if k > 1 {
			out.MultiGPUPods += n.pods
			best += n.best
			multiWait += n.wait
			out.BestClassShareBySize[k] = share(float64(n.best), float64(n.pods))
		}
		if k == 8 {
			out.MeanWait8S = share(n.wait, float64(n.pods))
		}
	}
	multi := float64(out.MultiGPUPods)
	out.BestClassShare = share(float64(best), multi)
	out.MeanRingRatio = share(m.ratio, multi)
	out.MeanRegretGBps = nvtopo.GBps(1) * share(m.regret, multi)
	out.SingleNUMAShare = share(float64(m.singleNUMA), multi)
	out.MeanWaitS = share(wait, float64(out.Pods))
	out.MeanWaitMultiS = share(multiWait, multi)
	out.P99WaitS = quantile(m.waits, 0.99)
	if r.judge != nil {
		out.Judged = r.judge.Verdict()
	}
	if r.site != nil {
		out.Gangs = r.gang.result(r.site, r.mishaps.unfit)
	}
	return out
}

// share is part of whole; 0 of nothing.
func share(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return part / whole
}

// quantile is the smallest value that at least the share q of the values does not
// exceed; it sorts them.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	at := int(math.Ceil(q*float64(len(values)))) - 1
	return values[min(max(at, 0), len(values)-1)]
}
