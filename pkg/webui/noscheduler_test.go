// SPDX-License-Identifier: Apache-2.0

package webui

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/webui/documents"
)

// TestNoScheduler: that no scheduler leads is the first of the problems, and is no change from one moment to the next.
func TestNoScheduler(t *testing.T) {
	c := sample(t)
	c.Leases = append(c.Leases, coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "nvtopo-system", Name: diagnosis.ShippedLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("pod-1_x"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(c.Now.Add(-5 * time.Minute))),
		},
	})
	b := newTestEnv(t, c, nil)
	var before, after documents.Cluster
	b.get(t, "/api/v1/cluster", &before)
	const want = "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler was last renewed at 2026-11-24T11:55:00Z; see why no scheduler runs: kubectl -n nvtopo-system get deploy,pods"
	if len(before.Problems) == 0 || !strings.HasPrefix(before.Problems[0], want) {
		t.Errorf("problems %q, want first %q", before.Problems, want)
	}
	b.clock.Step(30 * time.Second)
	b.get(t, "/api/v1/cluster", &after)
	if !after.Moment.After(before.Moment) || after.Version != before.Version {
		t.Errorf("version %d of %s after %d of %s, want a later moment and no other version", after.Version, after.Moment, before.Version, before.Moment)
	}
}
