// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"math"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const subsystem = "scheduler_nvtopo"

var (
	attempts = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "gang_attempts_total", StabilityLevel: metrics.ALPHA,
		Help: "Attempts to bind members of a gang together, by what became of them: placed (a gang that had nobody bound), added (members of one that " +
			"had: replacements, or above the minimum), partial (committed, but a member found its place lost), late (not all came in time), failed " +
			"(a member could not be bound, or the gang's state not be written) and ended (a member is gone, or another plugin refused its node).",
	}, []string{"result"})
	rollBacks = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "gang_rollbacks_total", StabilityLevel: metrics.ALPHA,
		Help: "Times that members of a gang that was never whole were evicted; a gang counts again if a disruption budget kept some of them.",
	})
	rollBackEvictions = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "gang_rollback_evictions_total", StabilityLevel: metrics.ALPHA,
		Help: "Members of such gangs that were evicted.",
	})
	registerOnce sync.Once
)

// RegisterMetrics registers all metrics, for the process's one Gangs.
func (d Diagnosis) RegisterMetrics() {
	registerOnce.Do(func() {
		legacyregistry.MustRegister(attempts, rollBacks, rollBackEvictions)
		legacyregistry.CustomMustRegister(newCollector(d))
	})
}

// collector is the metrics collector that reports the gangs when it is scraped.
type collector struct {
	metrics.BaseStableCollector
	gangs          Diagnosis
	states, reduce *metrics.Desc
}

func newCollector(d Diagnosis) *collector {
	return &collector{
		gangs: d,
		states: metrics.NewDesc(metrics.BuildFQName("", subsystem, "gangs"),
			"Gangs by state: incomplete (members are missing, or what it asks for cannot be read), waiting (for room or a better level), "+
				"on_the_way (its members are being placed) and bound (nobody is left to place).",
			[]string{"state"}, nil, metrics.ALPHA, ""),
		reduce: metrics.NewDesc(metrics.BuildFQName("", subsystem, "gang_allreduce_seconds"),
			"Estimated time of an all-reduce of 1 GB, or of the size that it names, over all members of a gang that is bound, as written when it was placed; none if a bandwidth is not known.",
			[]string{"gang"}, nil, metrics.ALPHA, ""),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- c.states
	ch <- c.reduce
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	states := c.gangs.states()
	for _, state := range []string{stateIncomplete, stateWaiting, stateOnTheWay, stateBound} {
		ch <- metrics.NewLazyConstMetric(c.states, metrics.GaugeValue, float64(states[state]), state)
	}
	for gang, seconds := range c.gangs.reduces() {
		ch <- metrics.NewLazyConstMetric(c.reduce, metrics.GaugeValue, seconds, gang)
	}
}

// The states of a gang.
const (
	stateIncomplete = "incomplete"
	stateWaiting    = "waiting"
	stateOnTheWay   = "on_the_way"
	stateBound      = "bound"
)

// states counts the gangs in each state.
func (d Diagnosis) states() map[string]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	states := map[string]int{}
	for _, x := range d.queue.gangs {
		switch {
		case x.attempt != nil:
			states[stateOnTheWay]++
		case x.bound() > 0 && len(x.unbound()) == 0:
			states[stateBound]++
		case x.read == nil || d.queue.missing(x) != "":
			states[stateIncomplete]++
		default:
			states[stateWaiting]++
		}
	}
	return states
}

// reduces returns the estimated seconds of an all-reduce of each bound gang, from its placement
// annotation.
func (d Diagnosis) reduces() map[string]float64 {
	out := map[string]float64{}
	for gang, text := range d.placements() {
		p, err := gangrequest.ParsePlacement(text)
		if err != nil { // another text that was written there is ignored
			continue
		}
		if ms := float64(p.Estimate.Hierarchical); ms > 0 && !math.IsInf(ms, 1) {
			out[gang] = ms / 1e3
		}
	}
	return out
}

// placements returns the placement annotations of bound gangs: from the PodGroup, or a member.
func (d Diagnosis) placements() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[string]string{}
	for key, x := range d.queue.gangs {
		if x.attempt != nil || x.bound() == 0 || len(x.unbound()) > 0 {
			continue
		}
		if group := x.group; group != nil && group.Annotations[gangrequest.PlacementKey] != "" {
			out[key.String()] = group.Annotations[gangrequest.PlacementKey]
			continue
		}
		for _, p := range x.pods {
			if text := p.Annotations[gangrequest.PlacementKey]; text != "" {
				out[key.String()] = text
			}
		}
	}
	return out
}
