// SPDX-License-Identifier: Apache-2.0

package sim

// GangResult holds a replay's measurements of jobs of several pods on a fabric. It covers the gangs that
// arrived after the warm-up and started.
type GangResult struct {
	Count int `json:"count"`
	// OneDomainShare is, by level, the share of the gangs within one domain of it, of those
	// that could be in one when the cluster is empty.
	OneDomainShare map[string]float64 `json:"oneDomainShare"`
	// DomainsOverFewest is, by level, the mean of the domains used over the fewest that could
	// have held the gang when it started.
	DomainsOverFewest map[string]float64 `json:"domainsOverFewest"`
	// MeanWaitSeconds is from arrival to start, over gangs.
	MeanWaitSeconds float64 `json:"meanWaitSeconds"`
	// LevelRegret is the mean number of levels by which the smallest domain with all pods was
	// larger than it had to be when the gang started.
	LevelRegret float64 `json:"levelRegret"`
	// NotCarriedOut counts the plans, warm-up included, that a node could not carry out.
	NotCarriedOut int `json:"notCarriedOut"`
}

// gangMeasures accumulates the values of GangResult.
type gangMeasures struct {
	count     int
	wait      float64
	regret    int
	could, in []int     // by depth: gangs that could be in one domain, and those of them that are
	over      []float64 // by depth
}

func newGangMeasures(depth int) *gangMeasures {
	return &gangMeasures{could: make([]int, depth+1), in: make([]int, depth+1), over: make([]float64, depth+1)}
}

// start measures a gang that is about to take its parts.
func (m *gangMeasures) start(x *site, size int, parts []part, wait float64) {
	pods := len(parts)
	m.count++
	m.wait += wait
	depth, ideal := x.common(parts), x.ideal(size, pods)
	m.regret += x.level(size, pods) - depth
	for d := 1; d < len(m.could); d++ {
		if ideal >= d {
			m.could[d]++
			if depth >= d {
				m.in[d]++
			}
		}
		m.over[d] += float64(x.domains(d, parts)) / float64(x.fewest(size, d, pods))
	}
}

func (m *gangMeasures) result(x *site, unfit int) *GangResult {
	n := float64(m.count)
	out := &GangResult{
		Count: m.count, OneDomainShare: map[string]float64{}, DomainsOverFewest: map[string]float64{},
		MeanWaitSeconds: share(m.wait, n), LevelRegret: share(float64(m.regret), n), NotCarriedOut: unfit,
	}
	for d := 1; d < len(m.could); d++ {
		level := x.tree.LevelName(d)
		out.OneDomainShare[level] = share(float64(m.in[d]), float64(m.could[d]))
		out.DomainsOverFewest[level] = share(m.over[d], n)
	}
	return out
}
