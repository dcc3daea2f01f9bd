// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"testing"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// Scenario 27: a job that is alone grows to its maximum, and ends with all of its replicas.
func TestAnElasticJobGrowsIntoAnIdlePool(t *testing.T) {
	s := newScenario(t, dgx(7)...)
	s.tenants(t, "a")
	s.onePool(t, 56)

	s.elasticJob(t, "a", "train", `
  scaling: {minReplicas: 2, maxReplicas: 7, gpuPerReplica: 8}`)
	s.waitElastic(t, "a", "train", "has 7 replicas that are ready", func(st *poolv1alpha1.ElasticJobStatus) bool {
		return st.Phase == poolv1alpha1.JobRunning && st.Replicas == 7 && st.ExtraReplicas == 5 && st.ReadyReplicas == 7
	})
	s.waitBound(t, map[string]int64{"a": 56})

	for _, pod := range s.pods(t, "a", names.BaseJob("train")) {
		s.end(t, pod)
	}
	s.waitElastic(t, "a", "train", "is complete", func(st *poolv1alpha1.ElasticJobStatus) bool {
		return st.Phase == poolv1alpha1.JobCompleted && st.Replicas == 0 && st.CompletionTime != nil
	})
	s.waitBound(t, map[string]int64{"a": 0})
}
