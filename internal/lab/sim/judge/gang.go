// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Part holds a gang's GPUs on one node.
type Part struct {
	Graph *nvtopo.Graph
	Set   nvtopo.Mask
}

// Hop is the network between two nodes, one after the other in the order of ranks.
type Hop struct {
	Bandwidth int64 // kB/s; 0: not known, and taken to be no limit
	Latency   int64 // ns
}

// GangVerdict holds the results of gangs: jobs of several pods on a fabric.
type GangVerdict struct {
	Gangs int `json:"gangs"`
	// AllReduceMS decides between policies: the mean time of an all-reduce over all GPUs of a gang,
	// each gang weighed by its GPUs. Milliseconds.
	AllReduceMS float64 `json:"allReduceMS"`
	// MixedModels counts the gangs on GPUs of several models, of which the slowest holds up the rest.
	MixedModels int `json:"mixedModels"`
	// BySize is by the GPUs of a gang.
	BySize map[int]GangSizeVerdict `json:"bySize"`
}

// GangSizeVerdict is a GangVerdict of the gangs of one size.
type GangSizeVerdict struct {
	Gangs       int     `json:"gangs"`
	AllReduceMS float64 `json:"allReduceMS"` // mean, milliseconds
	MeanWaitS   float64 `json:"meanWaitS"`
}

type gangSums struct {
	gangs, mixed    int
	allReduce, wait float64
}

// bottleneck returns the limit of the fastest ring through a set: the greatest bandwidth, and with it the
// least latency. One GPU has none (zero).
func bottleneck(g *nvtopo.Graph, set nvtopo.Mask) (limit, error) {
	members := set.Positions()
	if len(members) > MostGPUs {
		return limit{}, fmt.Errorf("all-reduce of %d GPUs of a node: at most %d", len(members), MostGPUs)
	}
	all := limits(g, members)
	slices.SortStableFunc(all, func(a, b limit) int {
		return cmp.Or(cmp.Compare(b.bandwidth, a.bandwidth), cmp.Compare(a.latency, b.latency))
	})
	for _, l := range all {
		if hasRing(g, members, l) {
			return l, nil
		}
	}
	return limit{}, nil
}

// GangAllReduce returns the seconds of an all-reduce of so many bytes around one ring through all GPUs
// of a gang: around those of a node, on to the next node, and from the last to the first.
//
//	2(n-1)/n · bytes/B + 2(n-1) · L
//
// B is the least bandwidth of the nodes' own fastest rings and of the hops, L the greatest latency. It
// is +Inf if a node's GPUs have no ring of known bandwidth.
func (j *Judge) GangAllReduce(parts []Part, hops []Hop) (float64, error) {
	n, worst := 0, limit{bandwidth: math.MaxInt64}
	for _, p := range parts {
		n += p.Set.Len()
		if p.Set.Len() < 2 {
			continue
		}
		l, err := j.bottleneckOf(p)
		if err != nil {
			return 0, err
		}
		worst = limit{min(worst.bandwidth, l.bandwidth), max(worst.latency, l.latency)}
	}
	for _, h := range hops {
		worst.latency = max(worst.latency, h.Latency)
		if h.Bandwidth > 0 {
			worst.bandwidth = min(worst.bandwidth, h.Bandwidth)
		}
	}
	if worst.bandwidth == 0 {
		return math.Inf(1), nil
	}
	steps := 2 * float64(n-1)
	return steps/float64(n)*j.bytes/(float64(worst.bandwidth)*1e3) + steps*float64(worst.latency)/1e9, nil
}

func (j *Judge) bottleneckOf(p Part) (limit, error) {
	at := placed{p.Graph, p.Set}
	if l, ok := j.rings[at]; ok {
		return l, nil
	}
	l, err := bottleneck(p.Graph, p.Set)
	if err == nil {
		j.rings[at] = l
	}
	return l, err
}

// AddGang adds a gang that waited for so many seconds, with the nodes that it is on, in the order of
// ranks, and the hops between each and the next.
func (j *Judge) AddGang(parts []Part, hops []Hop, wait float64) error {
	seconds, err := j.GangAllReduce(parts, hops)
	if err != nil {
		return err
	}
	n, models := 0, map[string]bool{}
	for _, p := range parts {
		n += p.Set.Len()
		for i := range p.Set.All() {
			models[p.Graph.GPUs[i].Model] = true
		}
	}
	s := j.gangs[n]
	if s == nil {
		s = &gangSums{}
		j.gangs[n] = s
	}
	s.gangs++
	s.allReduce += seconds
	s.wait += wait
	if len(models) > 1 {
		s.mixed++
	}
	return nil
}

// gangVerdict returns the verdict on all gangs so far; nil if there were none.
func (j *Judge) gangVerdict() *GangVerdict {
	if len(j.gangs) == 0 {
		return nil
	}
	v := &GangVerdict{BySize: map[int]GangSizeVerdict{}}
	gpus := 0.0
	for _, n := range slices.Sorted(maps.Keys(j.gangs)) {
		s := j.gangs[n]
		count := float64(s.gangs)
		v.Gangs += s.gangs
		v.MixedModels += s.mixed
		v.BySize[n] = GangSizeVerdict{Gangs: s.gangs, AllReduceMS: 1e3 * s.allReduce / count, MeanWaitS: s.wait / count}
		v.AllReduceMS += float64(n) * 1e3 * s.allReduce
		gpus += float64(n) * count
	}
	v.AllReduceMS /= gpus
	return v
}
