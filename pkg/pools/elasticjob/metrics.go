// SPDX-License-Identifier: Apache-2.0

package elasticjob

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// Values of the label result.
const (
	resultCompleted = "completed"
	resultFailed    = "failed"
)

type jobMetrics struct {
	replicas *prometheus.GaugeVec
	ended    *prometheus.CounterVec
}

func newMetrics(registry prometheus.Registerer) (*jobMetrics, error) {
	m := &jobMetrics{
		replicas: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "elasticjob_replicas",
			Help: "Replicas of an ElasticJob that have quota.",
		}, []string{"namespace", "name"}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "elasticjob_completed_total",
			Help: "ElasticJobs that ended while this process led, by result: completed, failed.",
		}, []string{"result"}),
	}
	for _, result := range []string{resultCompleted, resultFailed} {
		m.ended.WithLabelValues(result)
	}
	return m, errors.Join(registry.Register(m.replicas), registry.Register(m.ended))
}

func (m *jobMetrics) show(ej *v1alpha1.ElasticJob, s *v1alpha1.ElasticJobStatus) {
	m.replicas.WithLabelValues(ej.Namespace, ej.Name).Set(float64(s.Replicas))
}

func (m *jobMetrics) forget(job types.NamespacedName) {
	m.replicas.DeleteLabelValues(job.Namespace, job.Name)
}

// count counts a job when its end is first written to the status.
func (m *jobMetrics) count(before, after *v1alpha1.ElasticJobStatus) {
	if before.Phase == after.Phase {
		return
	}
	switch after.Phase {
	case v1alpha1.JobCompleted:
		m.ended.WithLabelValues(resultCompleted).Inc()
	case v1alpha1.JobFailed:
		m.ended.WithLabelValues(resultFailed).Inc()
	case v1alpha1.JobPending, v1alpha1.JobQueued, v1alpha1.JobRunning, v1alpha1.JobPreempted, v1alpha1.JobSuspended:
	}
}
