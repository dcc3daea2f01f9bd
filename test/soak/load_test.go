// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"hash/fnv"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// latest is the metrics of the program that started last, empty after it ended.
type latest struct {
	mu sync.Mutex
	of prometheus.Gatherer // guarded by mu
}

func (l *latest) set(g prometheus.Gatherer) {
	l.mu.Lock()
	l.of = g
	l.mu.Unlock()
}

// Gather implements prometheus.Gatherer.
func (l *latest) Gather() ([]*dto.MetricFamily, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		return nil, nil
	}
	return l.of.Gather()
}

// load stands for dcgm-exporter and node-exporter on a node whose pods compute nothing. Its values are
// made up: the pods, their GPUs and the links that they use are those of kubelet's record.
type load struct {
	b     *box
	since time.Time
}

func newLoad(b *box) prometheus.Gatherer {
	r := prometheus.NewRegistry()
	r.MustRegister(&load{b, time.Now()})
	return r
}

var (
	ofGPU      = []string{"UUID", "namespace", "pod"}
	nvlinkSent = prometheus.NewDesc("DCGM_FI_PROF_NVLINK_TX_BYTES", "Bytes a second.", ofGPU, nil)
	pcieSent   = prometheus.NewDesc("DCGM_FI_PROF_PCIE_TX_BYTES", "Bytes a second.", ofGPU, nil)
	gpuUse     = prometheus.NewDesc("DCGM_FI_DEV_GPU_UTIL", "Percent.", ofGPU, nil)
	numaMiss   = prometheus.NewDesc("node_memory_numa_numa_miss_total", "Pages.", []string{"node"}, nil)
	numaOther  = prometheus.NewDesc("node_memory_numa_other_node_total", "Pages.", []string{"node"}, nil)
)

// Describe implements prometheus.Collector.
func (l *load) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nvlinkSent, pcieSent, gpuUse, numaMiss, numaOther} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (l *load) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, h := range l.b.kubelet.holders() {
		busy := wave(h.name)
		gpus := h.uuids()
		byNVLink, byPCIe := 0.0, 0.05*busy
		switch {
		case len(gpus) < 2:
		case l.linked(gpus):
			byNVLink = 60e9 * busy
		default:
			byPCIe = busy
		}
		for _, id := range gpus {
			gauge(nvlinkSent, byNVLink, id, h.namespace, h.name)
			gauge(pcieSent, 12e9*byPCIe, id, h.namespace, h.name)
			gauge(gpuUse, 100*busy, id, h.namespace, h.name)
		}
	}
	for numa, share := range map[string]float64{"0": 1, "1": 0.6} {
		pages := time.Since(l.since).Seconds() * 1000 * share * phaseOf(l.b.name)
		out <- prometheus.MustNewConstMetric(numaMiss, prometheus.CounterValue, pages, numa)
		out <- prometheus.MustNewConstMetric(numaOther, prometheus.CounterValue, 1.4*pages, numa)
	}
}

// linked reports whether any two of a node's GPUs have a link of their own.
func (l *load) linked(uuids []string) bool {
	g, mine := l.b.now(), map[string]bool{}
	for _, id := range uuids {
		mine[id] = true
	}
	var all nvtopo.Mask
	for i := range g.GPUs {
		if mine[g.GPUs[i].UUID] {
			all |= nvtopo.MaskOf(i)
		}
	}
	for i := range all.All() {
		for j := range all.All() {
			if j < i && g.Link(j, i).Class.IsFabric() {
				return true
			}
		}
	}
	return false
}

// wave returns a value between 0.4 and 0.95 that rises and falls within two minutes, with a phase of each
// name's own.
func wave(name string) float64 {
	return 0.675 + 0.275*math.Sin(2*math.Pi*(float64(time.Now().UnixMilli())/120_000+phaseOf(name)))
}

// phaseOf returns a number from 0 to 1 that is constant for a name.
func phaseOf(name string) float64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash never fails to write
	return float64(h.Sum32()%1000) / 1000
}
