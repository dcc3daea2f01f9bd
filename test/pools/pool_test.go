// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"k8s.io/apimachinery/pkg/api/meta"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// trainingPool is the pool of the requirement's example: 64 GPUs of which 8 are kept back, and
// three tenants.
const trainingPool = `
  poolType: gpu
  capacity: {total: 64, reserved: 8}
  quotas:
  - {tenant: POOL-a, limit: 32, guaranteed: 16}
  - {tenant: POOL-b, limit: 24, guaranteed: 8}
  - {tenant: POOL-c, limit: 16}`

// gpuQuota is what an object of Kueue's says of GPUs: nominal, borrowing limit, lending limit; -1
// for what it leaves out.
type gpuQuota struct{ Nominal, Borrowing, Lending int64 }

func quotaIn(groups []kueue.ResourceGroup) gpuQuota {
	for _, g := range groups {
		for _, f := range g.Flavors {
			for i := range f.Resources {
				q := &f.Resources[i]
				if q.Name != topologyv1alpha1.DefaultResource {
					continue
				}
				out := gpuQuota{Nominal: q.NominalQuota.Value(), Borrowing: -1, Lending: -1}
				if q.BorrowingLimit != nil {
					out.Borrowing = q.BorrowingLimit.Value()
				}
				if q.LendingLimit != nil {
					out.Lending = q.LendingLimit.Value()
				}
				return out
			}
		}
	}
	return gpuQuota{Nominal: -1, Borrowing: -1, Lending: -1}
}

// quotas are what the pool's Cohorts and ClusterQueues say, by their names without the pool's.
func (s *scenario) quotas(ctx context.Context) (map[string]gpuQuota, error) {
	var (
		cohorts kueue.CohortList
		queues  kueue.ClusterQueueList
		out     = map[string]gpuQuota{}
	)
	ours := client.MatchingLabels{names.LabelManaged: s.name}
	for _, list := range []client.ObjectList{&cohorts, &queues} {
		if err := s.List(ctx, list, ours); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
	}
	for i := range cohorts.Items {
		out["cohort"+cohorts.Items[i].Name[len(s.name):]] = quotaIn(cohorts.Items[i].Spec.ResourceGroups)
	}
	for i := range queues.Items {
		out["queue"+queues.Items[i].Name[len(s.name):]] = quotaIn(queues.Items[i].Spec.ResourceGroups)
	}
	return out, nil
}

// waitQuotas waits until Kueue's objects of the pool are these. POOL in a name stands for the
// scenario's.
func (s *scenario) waitQuotas(t *testing.T, want map[string]gpuQuota) {
	t.Helper()
	s.waitFor(t, "Kueue's objects of "+s.name, func(ctx context.Context) (bool, string) {
		got, err := s.quotas(ctx)
		if err != nil {
			return false, err.Error()
		}
		diff := cmp.Diff(want, got)
		return diff == "", diff
	})
}

// Scenario 1.
func TestThePoolOfTheExample(t *testing.T) {
	s := newScenario(t, dgx(8)...)
	s.tenants(t, "a", "b", "c")
	s.computePool(t, trainingPool)
	s.ready(t)
	s.waitPool(t, "its nodes are counted", func(status *poolv1alpha1.ComputePoolStatus) bool {
		return status.Discovered == 64 && status.ReadyNodes == 8
	})
	got := s.status(t)
	type numbers struct{ Total, Reserved, Available, Allocated int32 }
	want := numbers{Total: 64, Reserved: 8, Available: 56}
	if diff := cmp.Diff(want, numbers{got.TotalCapacity, got.ReservedCapacity, got.AvailableCapacity, got.AllocatedCapacity}); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&poolv1alpha1.DeviceStates{Available: 56, Reserved: 8}, got.States); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	for _, kind := range []string{
		poolv1alpha1.ConditionCapacityMismatch, poolv1alpha1.ConditionGuaranteesOvercommitted, poolv1alpha1.ConditionReserveAdvice, poolv1alpha1.ConditionForeignUse,
	} {
		if !meta.IsStatusConditionFalse(got.Conditions, kind) {
			t.Errorf("condition %s: %+v", kind, meta.FindStatusCondition(got.Conditions, kind))
		}
	}
	s.waitQuotas(t, map[string]gpuQuota{
		"cohort":                 {Nominal: 32, Borrowing: -1, Lending: -1},
		"queue." + s.name + "-a": {Nominal: 16, Borrowing: 16, Lending: -1},
		"queue." + s.name + "-b": {Nominal: 8, Borrowing: 16, Lending: -1},
		"queue." + s.name + "-c": {Nominal: 0, Borrowing: 16, Lending: -1},
	})
}

// Scenario 3: the tenant's limit holds, whatever is free.
func TestATenantStaysWithinItsLimit(t *testing.T) {
	s := newScenario(t, dgx(8)...)
	s.tenants(t, "a", "b", "c")
	s.computePool(t, trainingPool)
	s.ready(t)
	s.jobs(t, "a", "one", 100, work{gpus: 1})
	s.waitFor(t, "32 jobs run and 68 wait", func(context.Context) (bool, string) {
		c := s.counts("a")
		return c.bound == 32 && c.running == 32 && c.admitted == 32 && c.waiting == 68, fmt.Sprintf("%+v", c)
	})
	s.settled(t)
	if c := s.counts("a"); c.bound != 32 || c.waiting != 68 {
		t.Errorf("settled: %+v, want 32 bound and 68 waiting", c)
	}
	s.waitPool(t, "the status shows what is held", func(status *poolv1alpha1.ComputePoolStatus) bool {
		i := 0
		return status.AllocatedCapacity == 32 && status.AvailableCapacity == 24 && status.UtilizationPercent == 50 &&
			status.Shares[i].Used == 32 && status.Shares[i].Borrowed == 16 && status.Shares[i].Pending == 68
	})
}
