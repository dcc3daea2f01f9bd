// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Values of the label "result".
const (
	resultPatched  = "patched"
	resultConflict = "conflict"
	resultFailed   = "failed"
)

// The process has one registry, like the scheduler's own metrics.
var (
	repairs = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "scheduler_nvtopo", Name: "repairs_total", StabilityLevel: metrics.ALPHA,
		Help: "Patches of annotations that no longer told which GPUs a pod has: patched, conflict (the pod changed meanwhile), failed.",
	}, []string{"result"})
	requirementsLost = metrics.NewCounter(&metrics.CounterOpts{
		Subsystem: "scheduler_nvtopo", Name: "requirements_lost_total", StabilityLevel: metrics.ALPHA,
		Help: "Pods whose own demands are not met by the GPUs that kubelet gave them.",
	})
	hardwareEvents = metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "scheduler_nvtopo", Name: "hardware_events_total", StabilityLevel: metrics.ALPHA,
		Help: "Events on pods about their GPUs and links, by reason.",
	}, []string{"reason"})
	registerOnce sync.Once
)

func registerMetrics() {
	registerOnce.Do(func() {
		legacyregistry.MustRegister(repairs, requirementsLost, hardwareEvents)
		for _, reason := range []string{eventGPULost, eventGPUUnhealthy, eventGPUPartitioned, eventGPUDegraded, eventLinkDegraded, eventGPURecovered, eventLinkRecovered} {
			hardwareEvents.WithLabelValues(reason) // so that the first event is an increase
		}
	})
}
