// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"k8s.io/apimachinery/pkg/api/meta"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
)

// Values of the label result.
const (
	resultReady = "ready"
	resultRetry = "retry"
)

var (
	checks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "nvtopo_placement_checks_total",
		Help: "Answers of the admission check for places, by result: ready, or retry where there is none.",
	}, []string{"result"})
	checkSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "nvtopo_placement_check_seconds",
		Help:    "From when a workload got quota to the answer of the admission check for places, by result.",
		Buckets: prometheus.ExponentialBuckets(0.05, 2, 12), // 50 ms to 102 s
	}, []string{"result"})
	roundSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "nvtopo_placement_check_round_seconds",
		Help:    "Time to read the cluster and plan for all workloads that ask for a place.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 14), // 1 ms to 8 s
	})
)

func init() { ctrlmetrics.Registry.MustRegister(checks, checkSeconds, roundSeconds) }

// count counts a result, and the time since the Workload got quota.
func count(w *kueue.Workload, result string, now time.Time) {
	checks.WithLabelValues(result).Inc()
	if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
		checkSeconds.WithLabelValues(result).Observe(max(0, now.Sub(c.LastTransitionTime.Time).Seconds()))
	}
}
