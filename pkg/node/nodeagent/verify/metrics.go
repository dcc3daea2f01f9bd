// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// Kinds of mismatch that are not a state of an allocation.
const (
	kindEscaped    = "escaped"
	kindUnrecorded = "unrecorded"
)

type metrics struct {
	mismatches  *prometheus.CounterVec
	allocations *prometheus.GaugeVec
	publish     prometheus.Histogram
	failures    prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		mismatches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "nvtopo", Subsystem: "agent", Name: "mismatch_total",
			Help: "Containers found with other devices than chosen for them, once each: swapped, reassigned, foreign (no choice was made), " +
				"escaped (more than kubelet gave), unrecorded (running without a record of kubelet's).",
		}, []string{"kind"}),
		allocations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "nvtopo", Subsystem: "agent", Name: "allocations", Help: "Entries of kubelet's record that count now, by state.",
		}, []string{"state"}),
		publish: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "nvtopo", Subsystem: "agent", Name: "publish_seconds",
			Help: "From the first sign of a change to the API server's answer that it is stored.",
			// From a local API server to one that was away for a while.
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 12),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "nvtopo", Subsystem: "agent", Name: "publish_errors_total", Help: "Failed writes of the status or the Lease.",
		}),
	}
	for _, kind := range []string{v1alpha1.StateSwapped, v1alpha1.StateReassigned, v1alpha1.StateForeign, kindEscaped, kindUnrecorded} {
		m.mismatches.WithLabelValues(kind)
	}
	m.count(nil)
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.mismatches, m.allocations, m.publish, m.failures} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) count(entries []entry) {
	counts := map[string]int{
		v1alpha1.StateConfirmed: 0, v1alpha1.StateSwapped: 0, v1alpha1.StateReassigned: 0, v1alpha1.StateForeign: 0,
	}
	for i := range entries {
		counts[entries[i].State]++
	}
	for state, n := range counts {
		m.allocations.WithLabelValues(state).Set(float64(n))
	}
}

func (m *metrics) published(after time.Duration) { m.publish.Observe(after.Seconds()) }
