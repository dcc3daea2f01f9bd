// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestMeasureRecount: measures follow from the placements. It computes the measures anew from what
// Observe saw, pod by pod and with no sums kept along the way.
func TestMeasureRecount(t *testing.T) {
	nodes := mixedCluster(t)
	for _, name := range []string{Ours, "spread+random", "binpack+hami", "fgd+exact"} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(6) {
				c := Config{
					Nodes: nodes, Jobs: randomJobs(rand.New(rand.NewPCG(seed, 4)), 150), Policy: name, Seed: seed,
					Load: 0.5 + 0.1*float64(seed), WarmUp: 0.1 * float64(seed),
				}
				got, seen := watched(t, c)
				want := recomputed(&c, seen, got)
				if diff := cmp.Diff(want, got, approximately); diff != "" {
					t.Fatalf("seed %d (-from the placements,+got):\n%s", seed, diff)
				}
				if got.MultiGPUPods == 0 || got.StrandedForFour == 0 || got.MeanWaitS == 0 {
					t.Fatalf("seed %d shows nothing: %+v", seed, got)
				}
			}
		})
	}
}

// recomputed takes over from got only what placements do not tell.
func recomputed(c *Config, seen []Placement, got *Result) *Result {
	tables := make([]*nvtopo.Tables, len(c.Nodes))
	healthy := 0
	for i := range c.Nodes {
		tables[i] = nvtopo.NewTables(c.Nodes[i].Graph, nvtopo.DefaultWeights())
		healthy += c.Nodes[i].Graph.Healthy().Len()
	}
	jobs, first := rescaled(c, seen, healthy)
	begin, end := jobs[first].arrival, jobs[len(jobs)-1].arrival
	out := &Result{
		Policy: c.Policy, Seed: c.Seed, Load: c.Load, Nodes: len(c.Nodes), GPUs: healthy, Unplaceable: got.Unplaceable,
		PickerFailures: got.PickerFailures, BestClassShareBySize: map[int]float64{}, WindowS: end - begin,
	}
	var waits, multiWaits, eightWaits []float64
	var ratios, regrets, single []float64
	best := map[int][]float64{}
	for i, p := range seen {
		at := slices.IndexFunc(jobs, func(j timedJob) bool { return j.job == p.Job })
		if at < first {
			continue
		}
		wait := p.StartS - jobs[at].arrival
		waits = append(waits, wait)
		k := p.Set.Len()
		if k < 2 {
			continue
		}
		multiWaits = append(multiWaits, wait)
		if k == 8 {
			eightWaits = append(eightWaits, wait)
		}
		free := freeBefore(c, seen, i)
		var most int64
		for n, f := range free {
			if s, ok := tables[n].Pick(f, f, k, nvtopo.Constraint{}); ok {
				most = max(most, tables[n].Ring(s))
			}
		}
		ring, ideal := tables[p.Node].Ring(p.Set), tables[p.Node].Best(k)
		ratios = append(ratios, float64(ring)/float64(ideal))
		regrets = append(regrets, nvtopo.GBps(most-ring))
		single = append(single, indicator(len(c.Nodes[p.Node].Graph.NUMAOf(p.Set)) == 1))
		best[k] = append(best[k], indicator(ring == ideal))
	}
	out.Pods, out.MultiGPUPods = len(waits), len(multiWaits)
	var all []float64
	for k, b := range best {
		out.BestClassShareBySize[k] = mean(b)
		all = append(all, b...)
	}
	out.BestClassShare, out.MeanRingRatio, out.MeanRegretGBps, out.SingleNUMAShare = mean(all), mean(ratios), mean(regrets), mean(single)
	out.MeanWaitS, out.MeanWaitMultiS, out.MeanWait8S = mean(waits), mean(multiWaits), mean(eightWaits)
	slices.Sort(waits)
	out.P99WaitS = waits[int(math.Ceil(0.99*float64(len(waits))))-1]
	levels(c, seen, out, tables, begin, end, jobs)
	return out
}

// timedJob is a job that was replayed, with its rescaled arrival.
type timedJob struct {
	job, gpus, pods int
	arrival         float64
}

// rescaled returns the replayed jobs by arrival and the first that is measured.
func rescaled(c *Config, seen []Placement, healthy int) (out []timedJob, first int) {
	var work float64
	for i, j := range c.Jobs {
		if slices.ContainsFunc(seen, func(p Placement) bool { return p.Job == i }) {
			out = append(out, timedJob{i, j.GPUs, j.Pods, j.ArrivalS})
			work += float64(j.GPUs*j.Pods) * j.DurationS
		}
	}
	slices.SortStableFunc(out, func(a, b timedJob) int { return int(a.arrival - b.arrival) }) // whole seconds
	zero := out[0].arrival
	scale := work / float64(healthy) / c.Load / (out[len(out)-1].arrival - zero)
	for i := range out {
		out[i].arrival = (out[i].arrival - zero) * scale
	}
	return out, int(c.WarmUp * float64(len(out)))
}

// freeBefore is what is free on each node just before placement i.
func freeBefore(c *Config, seen []Placement, i int) []nvtopo.Mask {
	free := make([]nvtopo.Mask, len(c.Nodes))
	for n := range free {
		free[n] = c.Nodes[n].Graph.Healthy()
	}
	for _, p := range seen[:i] {
		if p.EndS > seen[i].StartS {
			free[p.Node] &^= p.Set
		}
	}
	return free
}

// levels integrates over the moments at which something changes.
func levels(c *Config, seen []Placement, out *Result, tables []*nvtopo.Tables, begin, end float64, jobs []timedJob) {
	moments := []float64{begin, end}
	for _, p := range seen {
		for _, at := range []float64{p.StartS, p.EndS} {
			if at > begin && at < end {
				moments = append(moments, at)
			}
		}
	}
	slices.Sort(moments)
	var pods float64
	for _, j := range jobs {
		pods += float64(j.pods)
	}
	var held, unused, wasted, counted, stranded float64
	for i := range moments[1:] {
		dt := moments[i+1] - moments[i]
		for n := range c.Nodes {
			free := c.Nodes[n].Graph.Healthy()
			for _, p := range seen {
				if p.Node == n && p.StartS <= moments[i] && p.EndS > moments[i] {
					free &^= p.Set
					held += dt * float64(p.Set.Len())
				}
			}
			f := float64(free.Len())
			unused += dt * f
			for _, j := range jobs {
				if j.gpus > free.Len() {
					wasted += dt * f * float64(j.pods) / pods
				}
			}
			counted += dt * f // all machines here have four GPUs or more
			stranded += dt * (f - 4*float64(foursIn(tables[n], free)))
		}
	}
	out.AllocationRatio, out.FGDFragmentation, out.StrandedForFour = held/(held+unused), wasted/unused, stranded/counted
}

// foursIn is the most disjoint best-class groups of four in up to 8 GPUs: two if
// some group's complement holds another.
func foursIn(t *nvtopo.Tables, free nvtopo.Mask) int {
	most := 0
	for s := free; s != 0; s = (s - 1) & free {
		if s.Len() != 4 || t.Ring(s) != t.Best(4) {
			continue
		}
		most = max(most, 1)
		for r := free &^ s; r != 0; r = (r - 1) & (free &^ s) {
			if r.Len() == 4 && t.Ring(r) == t.Best(4) {
				return 2
			}
		}
	}
	return most
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func mean(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
