// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"strconv"
	"sync"

	"k8s.io/component-base/metrics"
)

// figureCollector is the metrics collector that reports figures; it computes them when it is scraped.
type figureCollector struct {
	metrics.BaseStableCollector
	figures                *figureReader
	mu                     sync.Mutex // one scrape at a time; guards counters
	counters               groupCounters
	gpus, groups           *metrics.Desc
	podNUMA, leastNUMA     *metrics.Desc
	podReduce, leastReduce *metrics.Desc
}

func newFigureCollector(figures *figureReader) *figureCollector {
	desc := func(name, help string, labels ...string) *metrics.Desc {
		return metrics.NewDesc(metrics.BuildFQName("", subsystem, name), help, labels, nil, metrics.ALPHA, "")
	}
	// Not "pod" and "namespace": Prometheus sets these labels to the scraped pod's.
	pod := []string{"pod_namespace", "pod_name", "node_name"}
	return &figureCollector{
		figures: figures, counters: groupCounters{},
		gpus: desc("gpus", "GPUs by model and state, each in one: used; free (with a free partner as fast as any on the machine); stranded (free without one); "+
			"unusable (not used and not to be had: unhealthy, or its node takes no pods).", "model", "state"),
		groups: desc("linked_groups", "Disjoint groups of GPUs of one node whose ring is as fast as that of as many can be there, by model, number of GPUs and "+
			"class of that ring's weakest link: free now, possible (of as many free GPUs, were they rightly spread) and capacity (with nothing used).",
			"model", "gpus", "link_class", "state"),
		podNUMA:   desc("pod_numa_nodes", "NUMA nodes that the GPUs of a pod of two or more are on.", pod...),
		leastNUMA: desc("pod_numa_nodes_least", "The fewest NUMA nodes that so many GPUs can be on, on the pod's node.", pod...),
		podReduce: desc("pod_allreduce_seconds", "Estimated time of an all-reduce of 1 GB on the ring of a pod of two GPUs or more.", pod...),
		leastReduce: desc("pod_allreduce_seconds_least",
			"The same on the best ring that so many GPUs can be, on the pod's node with nothing used.", pod...),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *figureCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{c.gpus, c.groups, c.podNUMA, c.leastNUMA, c.podReduce, c.leastReduce} {
		ch <- d
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *figureCollector) CollectWithStability(ch chan<- metrics.Metric) {
	send := func(d *metrics.Desc, v float64, labels ...string) {
		ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, v, labels...)
	}
	c.mu.Lock()
	f := c.figures.read(c.counters)
	c.mu.Unlock()
	for model, g := range f.gpus {
		send(c.gpus, float64(g.used), model, "used")
		send(c.gpus, float64(g.free), model, "free")
		send(c.gpus, float64(g.stranded), model, "stranded")
		send(c.gpus, float64(g.unusable), model, "unusable")
	}
	for key, g := range f.groups {
		gpus := strconv.Itoa(key.gpus)
		send(c.groups, float64(g.free), key.model, gpus, key.class, "free")
		send(c.groups, float64(g.possible(key.gpus)), key.model, gpus, key.class, "possible")
		send(c.groups, float64(g.capacity), key.model, gpus, key.class, "capacity")
	}
	for i := range f.pods {
		p := &f.pods[i]
		send(c.podNUMA, float64(p.numa), p.namespace, p.name, p.node)
		send(c.leastNUMA, float64(p.leastNUMA), p.namespace, p.name, p.node)
		if p.reduce > 0 {
			send(c.podReduce, p.reduce, p.namespace, p.name, p.node)
			send(c.leastReduce, p.leastReduce, p.namespace, p.name, p.node)
		}
	}
}
