// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// gpuQuota is the GPU quota of a Kueue object; -1 for an unset field.
type gpuQuota struct{ Nominal, Borrowing, Lending int64 }

func gpuQuotaIn(groups []kueue.ResourceGroup) gpuQuota {
	out := gpuQuota{Nominal: -1, Borrowing: -1, Lending: -1}
	for _, g := range groups {
		for _, f := range g.Flavors {
			for i := range f.Resources {
				q := &f.Resources[i]
				if q.Name != topologyv1alpha1.DefaultResource {
					continue
				}
				out.Nominal = q.NominalQuota.Value()
				if q.BorrowingLimit != nil {
					out.Borrowing = q.BorrowingLimit.Value()
				}
				if q.LendingLimit != nil {
					out.Lending = q.LendingLimit.Value()
				}
			}
		}
	}
	return out
}

// gpuQuotas returns the quotas of the pool's Cohorts and ClusterQueues. The root Cohort is named cohort,
// a queue of tenant a is named a.
func (s *scenario) gpuQuotas(ctx context.Context) (map[string]gpuQuota, error) {
	var (
		cohorts kueue.CohortList
		queues  kueue.ClusterQueueList
		out     = map[string]gpuQuota{}
	)
	for _, list := range []client.ObjectList{&cohorts, &queues} {
		if err := s.List(ctx, list, client.MatchingLabels{names.LabelManaged: s.name}); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
	}
	short := func(name string) string {
		return strings.ReplaceAll(strings.TrimPrefix(name, s.name+"."), s.name+"-", "")
	}
	for i := range cohorts.Items {
		out[strings.Replace("cohort "+short(cohorts.Items[i].Name), "cohort "+s.name, "cohort", 1)] = gpuQuotaIn(cohorts.Items[i].Spec.ResourceGroups)
	}
	for i := range queues.Items {
		out[short(queues.Items[i].Name)] = gpuQuotaIn(queues.Items[i].Spec.ResourceGroups)
	}
	return out, nil
}

func (s *scenario) quotasOf(t *testing.T) map[string]gpuQuota {
	t.Helper()
	got, err := s.gpuQuotas(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// waitQuotas waits until Kueue's objects of the pool have these quotas.
func (s *scenario) waitQuotas(t *testing.T, want map[string]gpuQuota) {
	t.Helper()
	s.waitFor(t, "Kueue's objects of "+s.name, func(ctx context.Context) (bool, string) {
		got, err := s.gpuQuotas(ctx)
		if err != nil {
			return false, err.Error()
		}
		diff := cmp.Diff(want, got)
		return diff == "", diff
	})
}

// waitStates waits until the pool's devices are in these states.
func (s *scenario) waitStates(t *testing.T, want poolv1alpha1.DeviceStates) {
	t.Helper()
	s.waitPool(t, fmt.Sprintf("the states are %+v", want), func(status *poolv1alpha1.ComputePoolStatus) bool {
		return status.States != nil && *status.States == want
	})
}

// waitStop waits until the queue of tenant a is stopped, and Kueue has seen that.
func (s *scenario) waitStop(t *testing.T, policy string) {
	t.Helper()
	s.waitFor(t, "tenant a's queue is stopped", func(ctx context.Context) (bool, string) {
		var cq kueue.ClusterQueue
		if err := s.Get(ctx, client.ObjectKey{Name: names.ClusterQueue(s.name, s.tenant("a"), "")}, &cq); err != nil {
			return false, err.Error()
		}
		for _, c := range cq.Status.Conditions {
			if c.Type == kueue.ClusterQueueActive && c.Reason == kueue.ClusterQueueStopped {
				return cq.Spec.StopPolicy == policy, cq.Spec.StopPolicy
			}
		}
		return false, fmt.Sprintf("%+v", cq.Status.Conditions)
	})
}

// share returns a tenant's share in the pool's status; empty if it has none.
func (s *scenario) share(status *poolv1alpha1.ComputePoolStatus, tenant string) poolv1alpha1.PoolShare {
	for _, share := range status.Shares {
		if share.Tenant == s.tenant(tenant) && share.Queue == "" {
			return share
		}
	}
	return poolv1alpha1.PoolShare{}
}

// least returns the least number of a status.
func least(status *poolv1alpha1.ComputePoolStatus) int32 {
	out := min(status.TotalCapacity, status.ReservedCapacity, status.AllocatedCapacity, status.AvailableCapacity, status.Discovered, status.UtilizationPercent)
	if st := status.States; st != nil {
		out = min(out, st.Available, st.Allocated, st.Reserved, st.Maintenance, st.Failed)
	}
	for _, share := range status.Shares {
		out = min(out, share.Used, share.Borrowed, share.Pending, share.Pinned)
	}
	return out
}

// sumOverPods waits until the status has as many devices allocated as the tenants' pods hold.
func (s *scenario) sumOverPods(t *testing.T) {
	t.Helper()
	s.waitFor(t, "the status is the sum over pods", func(ctx context.Context) (bool, string) {
		var pods v1.PodList
		if err := s.List(ctx, &pods); err != nil {
			return false, err.Error()
		}
		var sum int64
		for i := range pods.Items {
			p := &pods.Items[i]
			if strings.HasPrefix(p.Namespace, s.name+"-") && p.Spec.NodeName != "" && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
				sum += devicesOf(&p.Spec)
			}
		}
		got := s.status(t).AllocatedCapacity
		return int64(got) == sum, fmt.Sprintf("status %d, pods %d", got, sum)
	})
}

// setUnschedulable cordons or uncordons a node.
func (s *scenario) setUnschedulable(t *testing.T, node string, to bool) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, to)
	if err := s.Patch(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
}

// setReady sets a node's Ready condition as its kubelet, or the node controller, would.
func (s *scenario) setReady(t *testing.T, node string, to v1.ConditionStatus) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":%q,"reason":"Test"}]}}`, to)
	err := s.Status().Patch(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.StrategicMergePatchType, patch))
	if err != nil {
		t.Fatal(err)
	}
}

// objectsOfPool returns Kueue's objects of the pool, by kind and name.
func (s *scenario) objectsOfPool(ctx context.Context, t *testing.T) (out []string) {
	t.Helper()
	for _, list := range []client.ObjectList{&kueue.CohortList{}, &kueue.ClusterQueueList{}, &kueue.LocalQueueList{}, &kueue.ResourceFlavorList{}} {
		if err := s.List(ctx, list, client.MatchingLabels{names.LabelManaged: s.name}); err != nil {
			t.Fatal(err)
		}
		switch list := list.(type) {
		case *kueue.CohortList:
			for i := range list.Items {
				out = append(out, "Cohort "+list.Items[i].Name)
			}
		case *kueue.ClusterQueueList:
			for i := range list.Items {
				out = append(out, "ClusterQueue "+list.Items[i].Name)
			}
		case *kueue.LocalQueueList:
			for i := range list.Items {
				out = append(out, "LocalQueue "+list.Items[i].Namespace+"/"+list.Items[i].Name)
			}
		case *kueue.ResourceFlavorList:
			for i := range list.Items {
				out = append(out, "ResourceFlavor "+list.Items[i].Name)
			}
		}
	}
	return out
}

// scrape reads all metrics of the pool controller.
func (s *scenario) scrape(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.pools.MetricsURL(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("read the metrics: %s, %v", resp.Status, err)
	}
	return string(text)
}

// metric returns the value of a series; -1 if there is none. POOL stands for the scenario's name.
func (s *scenario) metric(t *testing.T, series string) float64 {
	t.Helper()
	series = strings.ReplaceAll(series, "POOL", s.name)
	for line := range strings.Lines(s.scrape(t)) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatalf("%s: %v", series, err)
			}
			return n
		}
	}
	return -1
}

// waitMetrics waits until series have these values.
func (s *scenario) waitMetrics(t *testing.T, want map[string]float64) {
	t.Helper()
	s.waitFor(t, "the metrics", func(context.Context) (bool, string) {
		got := map[string]float64{}
		for series := range want {
			got[series] = s.metric(t, series)
		}
		return maps.Equal(want, got), cmp.Diff(want, got)
	})
}
