// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	// planSeconds has the finest buckets around 5 and 50 ms, the limits for plans of 64 and of 1000 members.
	planSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Subsystem: "scheduler_nvtopo", Name: "gang_plan_duration_seconds", StabilityLevel: metrics.ALPHA,
		Help: "Time that a plan for all members of a gang took, by whether there was room for it.",
		Buckets: []float64{
			.0002, .0005, .001, .0015, .002, .0025, .003, .0035, .004, .0045, .005, .006, .008, .01, .015, .02, .025, .03, .035, .04, .045, .05, .06, .08,
			.1, .2, .5, 1,
		},
	}, []string{"result"})
	registerOnce sync.Once
)

func registerMetrics() {
	registerOnce.Do(func() { legacyregistry.MustRegister(planSeconds) })
}

// observePlan records the duration and result of a plan.
func observePlan(took time.Duration, err error) {
	result := "placed"
	if err != nil {
		result = "refused"
	}
	planSeconds.WithLabelValues(result).Observe(took.Seconds())
}
