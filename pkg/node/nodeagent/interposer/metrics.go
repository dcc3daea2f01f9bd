// SPDX-License-Identifier: Apache-2.0

package interposer

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/utils/clock"
)

// Values of the label "rpc".
const (
	rpcPreferred = "GetPreferredAllocation"
	rpcAllocate  = "Allocate"
	rpcPreStart  = "PreStartContainer"
)

// Values of the label "part".
const (
	partOwn   = "own"
	partInner = "inner"
)

// Values of the label "side".
const (
	sideInner   = "inner"
	sideKubelet = "kubelet"
)

type metrics struct {
	seconds       *prometheus.HistogramVec
	slowest       *prometheus.GaugeVec
	registrations *prometheus.CounterVec

	mu  sync.Mutex
	max map[string]time.Duration // longest time by rpc and part; guarded by mu
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "nvtopo", Subsystem: "agent", Name: "rpc_seconds",
			Help: "Time of kubelet's calls: own is ours, inner the device plugin's, waiting for it included.",
			// From 100 µs, a response from memory, to 3.3 s, a plugin that reads its hardware. The bucket of 50 ms
			// is the target for the agent's own responses.
			Buckets: slices.Insert(prometheus.ExponentialBuckets(0.0001, 2, 16), 9, 0.05),
		}, []string{"rpc", "part"}),
		slowest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "nvtopo", Subsystem: "agent", Name: "rpc_slowest_seconds",
			Help: "The longest time of kubelet's calls since the start.",
		}, []string{"rpc", "part"}),
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "nvtopo", Subsystem: "agent", Name: "registrations_total",
			Help: "Registrations by side (inner: of device plugins with us; kubelet: ours with kubelet) and result.",
		}, []string{"side", "result"}),
		max: map[string]time.Duration{},
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.seconds, m.slowest, m.registrations} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) registered(side string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.registrations.WithLabelValues(side, result).Inc()
}

func (m *metrics) observe(rpc, part string, d time.Duration) {
	m.seconds.WithLabelValues(rpc, part).Observe(d.Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	if key := rpc + " " + part; d >= m.max[key] {
		m.max[key] = d
		m.slowest.WithLabelValues(rpc, part).Set(d.Seconds())
	}
}

// stopwatch splits the time of one call between the agent and the inner plugin.
type stopwatch struct {
	metrics *metrics
	rpc     string
	clk     clock.PassiveClock
	began   time.Time

	mu        sync.Mutex
	innerTime time.Duration // guarded by mu
	asked     bool          // the inner plugin was called; guarded by mu
}

func (m *metrics) start(rpc string, clk clock.PassiveClock) *stopwatch {
	return &stopwatch{metrics: m, rpc: rpc, clk: clk, began: clk.Now()}
}

// inner starts to measure time as the plugin's, until stop is called.
func (w *stopwatch) inner() (stop func()) {
	began := w.clk.Now()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.innerTime += w.clk.Since(began)
		w.asked = true
	}
}

func (w *stopwatch) stop() {
	total := w.clk.Since(w.began)
	w.mu.Lock()
	inner, asked := w.innerTime, w.asked
	w.mu.Unlock()
	w.metrics.observe(w.rpc, partOwn, max(0, total-inner))
	if asked {
		w.metrics.observe(w.rpc, partInner, inner)
	}
}
