// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/topologies"
)

const subsystem = "scheduler_nvtopo"

// The framework times every extension point already; these metrics are about the choices themselves.
var (
	choices = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "choices_total", StabilityLevel: metrics.ALPHA,
		Help: "Choices of devices made in Reserve, by the class of the weakest link of the ring; empty for one GPU or none.",
	}, []string{"link_class"})
	choiceShare = metrics.NewHistogram(&metrics.HistogramOpts{
		Subsystem: subsystem, Name: "choice_bandwidth_ratio", StabilityLevel: metrics.ALPHA,
		Help: "Bandwidth of the ring of a choice of two devices or more against the best of as many on the empty machine.",
		// The last bucket but one separates the best possible choices from all others.
		Buckets: []float64{0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1},
	})
	malformedAllocations = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "malformed_allocations_total", StabilityLevel: metrics.ALPHA,
		Help: "Allocation annotations that could not be read; their pods are known by count only.",
	})
	malformedTopologies = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: subsystem, Name: "malformed_topologies_total", StabilityLevel: metrics.ALPHA,
		Help: "Versions of NodeGPUTopology objects that could not be used; their nodes keep the last good graph.",
	})
	registerOnce sync.Once
)

// maxUncounted is the greatest number of nodes named in the metric of nodes without a valid graph.
const maxUncounted = 200

// stateCollector reports the sizes of a State when it is scraped.
type stateCollector struct {
	metrics.BaseStableCollector
	state                                                      *State
	reservations, classes, tableBytes, narrowings, late, nodes *metrics.Desc
	waiting, wakes, writes, domains, closed, refused           *metrics.Desc
	uncounted                                                  *metrics.Desc
}

func newStateCollector(s *State) *stateCollector {
	desc := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(metrics.BuildFQName("", subsystem, name), help, labels, nil, metrics.ALPHA, "")
	}
	return &stateCollector{
		state:        s,
		reservations: desc("claims", "In-flight choices by phase.", "phase"),
		classes:      desc("graph_classes", "Distinct link graphs seen."),
		tableBytes:   desc("table_bytes", "Memory of the answer tables of all graph classes."),
		narrowings: desc("narrowings_total", "Scheduling cycles narrowed to a list of the best nodes (listed), and those of them in which every node listed "+
			"was refused, so that the pod was tried again on all nodes (recovered).", "outcome"),
		waiting: desc("waiting_pods", "Pods with GPUs that no node took: shut_out (none would now, so that they are not tried) and let_through (woken, or refused for reasons of others).", "state"),
		wakes: desc("wakes_total", "Pods woken for what came free on a node, by what became of them: served (bound, or gone), refused (another is woken) and "+
			"late (not tried in time; another is woken).", "outcome"),
		writes:  desc("writes", "Writes of choices, and of the bindings of their pods: under_way (not answered yet) and waiting (until fewer are).", "state"),
		domains: desc("fabric_domains", "Domains of each level of the fabric that has labels, as the nodes' labels have it now; a node without a label is one of its own.", "level"),
		closed:  desc("closed_nodes", "Nodes of which a place is kept from younger pods, because a gang has waited for long."),
		refused: desc("refused_pods", "Pods with GPUs that a node's kubelet refused within five minutes, of nodes that others are preferred to for it.", "node_name"),
		late:    desc("topologies_held_back", "Nodes that publish more than their share, whose last object is read later."),
		nodes: desc("nodes", "Nodes with accelerators by what their graph is worth: counted; stale (its exporter is silent, or what it publishes cannot be read); "+
			"missing; replaced (an earlier node's of the name); malformed (some of it cannot be read).", "state"),
		uncounted: desc("uncounted_nodes", "1 for each node with accelerators whose graph does not count, of 200 at most, with its state as in nodes.", "node_name", "state"),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *stateCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- c.reservations
	ch <- c.classes
	ch <- c.tableBytes
	ch <- c.narrowings
	ch <- c.late
	ch <- c.waiting
	ch <- c.wakes
	ch <- c.writes
	ch <- c.nodes
	ch <- c.uncounted
	ch <- c.domains
	ch <- c.closed
	ch <- c.refused
}

// CollectWithStability implements metrics.StableCollector.
func (c *stateCollector) CollectWithStability(ch chan<- metrics.Metric) {
	phases := map[reservations.Phase]int{}
	for _, r := range c.state.Allocations.reservations.List() {
		phases[r.Phase]++
	}
	for p := reservations.Planned; p <= reservations.Void; p++ {
		ch <- metrics.NewLazyConstMetric(c.reservations, metrics.GaugeValue, float64(phases[p]), p.String())
	}
	nodes := map[string]int{}
	var uncounted []topologies.Report
	for _, r := range c.state.Diagnosis.Reports() {
		if nodes[r.State()]++; r.State() != topologies.Counted {
			uncounted = append(uncounted, r)
		}
	}
	slices.SortFunc(uncounted, func(a, b topologies.Report) int { return strings.Compare(a.Node.Name, b.Node.Name) })
	for _, r := range uncounted[:min(len(uncounted), maxUncounted)] {
		ch <- metrics.NewLazyConstMetric(c.uncounted, metrics.GaugeValue, 1, r.Node.Name, r.State())
	}
	for _, state := range []string{topologies.Counted, topologies.Stale, topologies.Missing, topologies.Replaced, topologies.Malformed} {
		ch <- metrics.NewLazyConstMetric(c.nodes, metrics.GaugeValue, float64(nodes[state]), state)
	}
	classes, bytes := c.state.Registry.Stats()
	ch <- metrics.NewLazyConstMetric(c.classes, metrics.GaugeValue, float64(classes))
	ch <- metrics.NewLazyConstMetric(c.tableBytes, metrics.GaugeValue, float64(bytes))
	ch <- metrics.NewLazyConstMetric(c.narrowings, metrics.CounterValue, float64(c.state.PreSelector.index.Listed()), "listed")
	ch <- metrics.NewLazyConstMetric(c.narrowings, metrics.CounterValue, float64(c.state.PreSelector.retries.Added()), "recovered")
	k := c.state.Waiting.waker.Counts()
	ch <- metrics.NewLazyConstMetric(c.waiting, metrics.GaugeValue, float64(k.Gated), "shut_out")
	ch <- metrics.NewLazyConstMetric(c.waiting, metrics.GaugeValue, float64(k.Waiting-k.Gated), "let_through")
	ch <- metrics.NewLazyConstMetric(c.wakes, metrics.CounterValue, float64(k.Served), "served")
	ch <- metrics.NewLazyConstMetric(c.wakes, metrics.CounterValue, float64(k.Refused), "refused")
	ch <- metrics.NewLazyConstMetric(c.wakes, metrics.CounterValue, float64(k.Late), "late")
	w := c.state.Binder.writes
	ch <- metrics.NewLazyConstMetric(c.writes, metrics.GaugeValue, float64(w.underWay.Load()), "under_way")
	ch <- metrics.NewLazyConstMetric(c.writes, metrics.GaugeValue, float64(w.queued.Load()), "waiting")
	tree := c.state.Fabric.Current().Tree
	for depth := 1; depth <= tree.Depth(); depth++ {
		ch <- metrics.NewLazyConstMetric(c.domains, metrics.GaugeValue, float64(len(tree.Domains(depth))), tree.LevelName(depth))
	}
	ch <- metrics.NewLazyConstMetric(c.closed, metrics.GaugeValue, float64(len(c.state.PreSelector.closed.Kept())))
	for _, m := range c.state.Refusals.Marks() {
		ch <- metrics.NewLazyConstMetric(c.refused, metrics.GaugeValue, float64(m.Pods), m.Node)
	}
	ch <- metrics.NewLazyConstMetric(c.late, metrics.GaugeValue, float64(len(c.state.Nodes.topologies.HeldBack())))
}

// registerMetrics registers all metrics, for the process's one State.
func registerMetrics(s *State) {
	registerOnce.Do(func() {
		legacyregistry.MustRegister(choices, choiceShare, malformedAllocations, malformedTopologies)
		legacyregistry.CustomMustRegister(newStateCollector(s))
		legacyregistry.CustomMustRegister(newFigureCollector(s.figures))
	})
}

// countChoice updates the metrics after a choice made in Reserve.
func countChoice(u *usage.Usage, a *allocation.Allocation) {
	choices.WithLabelValues(placement.LinkClass(u, a)).Inc()
	if share, ok := placement.RingShare(u, a); ok {
		choiceShare.Observe(share)
	}
}
