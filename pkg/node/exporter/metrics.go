// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// metrics holds the metrics of one exporter, in their own registry: a process may run many exporters.
type metrics struct {
	registry     *prometheus.Registry
	gpus         prometheus.Gauge
	healthy      prometheus.Gauge
	divided      prometheus.Gauge
	degraded     prometheus.Gauge
	problems     prometheus.Gauge
	links        *prometheus.GaugeVec
	fabric       prometheus.Gauge
	readDuration prometheus.Histogram
	readErrors   prometheus.Counter
	writes       *prometheus.CounterVec
	writeErrors  *prometheus.CounterVec
	lastSuccess  prometheus.Gauge
}

func newMetrics() *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "nvtopo", Subsystem: "exporter", Name: name, Help: help})
	}
	counters := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "nvtopo", Subsystem: "exporter", Name: name, Help: help}, []string{"object"})
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		gpus:     gauge("gpus", "GPUs in the last good graph."),
		healthy:  gauge("gpus_healthy", "GPUs in the last good graph that can be given out whole."),
		divided:  gauge("gpus_partitioned", "Healthy GPUs in the last good graph that are divided into slices (MIG), and so not given out whole."),
		degraded: gauge("gpus_degraded", "GPUs of the healthy ones that may be used only alone, never with others."),
		problems: gauge("problems", "Things the last good reading had to do without."),
		links: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "nvtopo", Subsystem: "exporter", Name: "links", Help: "Pairs of GPUs in the last good graph by link class.",
		}, []string{"class"}),
		fabric: gauge("fabric_links", "NVLinks, or the like of other vendors, added up over the pairs of GPUs in the last good graph."),
		readDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "nvtopo", Subsystem: "exporter", Name: "read_duration_seconds", Help: "Time to read the source.",
			// From a static source to a driver that no longer responds.
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
		readErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "nvtopo", Subsystem: "exporter", Name: "read_errors_total", Help: "Readings that gave no graph.",
		}),
		writes:      counters("writes_total", "Writes to the API server by object: spec, status, labels, lease."),
		writeErrors: counters("write_errors_total", "Failed writes to the API server by object."),
		lastSuccess: gauge("last_success_timestamp_seconds", "Unix time at which the published objects last agreed with a reading."),
	}
	m.registry.MustRegister(m.gpus, m.healthy, m.divided, m.degraded, m.problems, m.links, m.fabric, m.readDuration, m.readErrors, m.writes, m.writeErrors, m.lastSuccess)
	for _, o := range []string{objectSpec, objectStatus, objectLabels, objectLease} {
		m.writes.WithLabelValues(o)
		m.writeErrors.WithLabelValues(o)
	}
	return m
}

// Values of the label "object".
const (
	objectSpec   = "spec"
	objectStatus = "status"
	objectLabels = "labels"
	objectLease  = "lease"
)

func (m *metrics) read(g *nvtopo.Graph, problems int) {
	m.gpus.Set(float64(g.Len()))
	m.healthy.Set(float64(g.Healthy().Len()))
	m.divided.Set(float64(partitioned(g)))
	m.degraded.Set(float64(g.Degraded().Len()))
	m.problems.Set(float64(problems))
	m.links.Reset()
	fabric := 0
	for j := range g.Len() {
		for i := range j {
			class := g.Link(i, j).Class
			m.links.WithLabelValues(class.String()).Inc()
			if class.IsFabric() {
				fabric += class.Lanes
			}
		}
	}
	m.fabric.Set(float64(fabric))
}

// wrote counts a write as successful or failed and returns err.
func (m *metrics) wrote(object string, err error) error {
	if err != nil {
		m.writeErrors.WithLabelValues(object).Inc()
		return err
	}
	m.writes.WithLabelValues(object).Inc()
	return nil
}

func (m *metrics) success(now time.Time) { m.lastSuccess.Set(float64(now.UnixNano()) / 1e9) }

// partitioned returns the number of healthy GPUs that are divided into slices. An unhealthy GPU is
// reported as a fault, divided or not.
func partitioned(g *nvtopo.Graph) (n int) {
	for i := range g.GPUs {
		if g.GPUs[i].MIG && g.GPUs[i].Unhealthy == "" {
			n++
		}
	}
	return n
}
