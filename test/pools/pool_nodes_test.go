// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// TestUnschedulableNodes is scenario 9: tenants cannot share the devices of lost nodes, and running pods
// are left alone.
func TestUnschedulableNodes(t *testing.T) {
	s := newScenario(t, dgx(8)...)
	s.tenants(t, "a", "b", "c")
	s.computePool(t, trainingPool)
	s.ready(t)
	s.jobs(t, "a", "one", 4, work{gpus: 8})
	s.waitBound(t, map[string]int64{"a": 32})
	used := map[string]bool{}
	for _, p := range s.podsOf(t, "a") {
		used[p.Spec.NodeName] = true
	}
	free := slices.DeleteFunc(slices.Clone(s.nodes), func(n string) bool { return used[n] })
	full := s.quotasOf(t)

	s.setUnschedulable(t, free[0], true)
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {24, -1, -1}, "a": {16, 16, -1}, "b": {8, 16, -1}, "c": {0, 16, -1}})
	s.waitStates(t, poolv1alpha1.DeviceStates{Available: 16, Reserved: 8, Allocated: 32, Maintenance: 8})
	s.waitAvailable(t, 16, 57) // of 56 that can be used
	s.setReady(t, free[1], v1.ConditionFalse)
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {16, -1, -1}, "a": {16, 16, -1}, "b": {8, 16, -1}, "c": {0, 16, -1}})
	s.waitStates(t, poolv1alpha1.DeviceStates{Available: 8, Reserved: 8, Allocated: 32, Maintenance: 8, Failed: 8})
	s.waitAvailable(t, 8, 66) // of 48
	s.setReady(t, free[1], v1.ConditionTrue)
	s.setUnschedulable(t, free[0], false)
	s.waitQuotas(t, full)
	s.waitStates(t, poolv1alpha1.DeviceStates{Available: 24, Reserved: 8, Allocated: 32})
	s.waitAvailable(t, 24, 50)
	if got := s.evictions(); len(got) > 0 || s.counts("a").running != 4 {
		t.Errorf("%d of 4 pods run, evictions: %+v", s.counts("a").running, got)
	}
}

// waitAvailable waits until the status and the metric have this number of available devices, and the
// status this utilisation in percent.
func (s *scenario) waitAvailable(t *testing.T, devices, percent int32) {
	t.Helper()
	s.waitPool(t, fmt.Sprintf("%d devices are available, and %d %% used", devices, percent), func(status *poolv1alpha1.ComputePoolStatus) bool {
		return status.AvailableCapacity == devices && status.UtilizationPercent == percent
	})
	s.waitMetrics(t, map[string]float64{`compute_pool_available{pool="POOL"}`: float64(devices)})
}

// TestForeignUse checks that a pod outside of the tenants' namespaces reduces the devices that tenants
// can share, and that the pool reports it.
func TestForeignUse(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a")
	s.namespace(t, "free", nil)
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 8}\n  quotas: [{tenant: POOL-a}]")
	s.ready(t)
	pod := s.foreignPod(t, "free", "guest", 3)
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {5, -1, -1}, "a": {0, 8, -1}})
	s.waitPool(t, "the pool names the pod", func(status *poolv1alpha1.ComputePoolStatus) bool {
		c := meta.FindStatusCondition(status.Conditions, poolv1alpha1.ConditionForeignUse)
		return c != nil && c.Status == metav1.ConditionTrue && strings.Contains(c.Message, s.tenant("free")+"/guest") && status.AllocatedCapacity == 3
	})
	s.remove(t, pod)
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {8, -1, -1}, "a": {0, 8, -1}})
}

// TestOverGuarantee checks that a pool with fewer devices than its guarantees reports it, and is
// degraded.
func TestOverGuarantee(t *testing.T) {
	s := newScenario(t, dgx(1)...)
	s.tenants(t, "a", "b")
	s.computePool(t, "  poolType: gpu\n  capacity: {total: 16}\n  quotas: [{tenant: POOL-a, guaranteed: 8}, {tenant: POOL-b, guaranteed: 4}]")
	s.waitPool(t, "the pool is degraded", func(status *poolv1alpha1.ComputePoolStatus) bool {
		return status.Phase == poolv1alpha1.PoolDegraded && meta.IsStatusConditionTrue(status.Conditions, poolv1alpha1.ConditionCapacityMismatch) &&
			meta.IsStatusConditionTrue(status.Conditions, poolv1alpha1.ConditionGuaranteesOvercommitted) && status.TotalCapacity == 8
	})
	s.addNodes(t, dgx(1)...)
	s.ready(t)
	s.waitQuotas(t, map[string]gpuQuota{"cohort": {4, -1, -1}, "a": {8, 8, -1}, "b": {4, 12, -1}})
}
