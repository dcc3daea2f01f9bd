// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestLeaseOfVictims: a scheduler that loses the leader Lease while it evicts pods for a gang begins no
// further eviction. Before, it checked the Lease once, before the first of 24 victims.
func TestLeaseOfVictims(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const atOnce, victims = 16, 24
	r := newTestEnvOf(t, clock.RealClock{}, `{}`, `{"leaderLease": {"name": "leader", "durationSeconds": 3600}}`, 3)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "leader", Namespace: "nvtopo-system"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new(host + "_me"), AcquireTime: new(metav1.NowMicro()), RenewTime: new(metav1.NowMicro()), LeaseDurationSeconds: new(int32(3600)),
		},
	}
	leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
	if err := r.client.Tracker().Create(leases, lease, lease.Namespace); err != nil {
		t.Fatal(err)
	}
	testkit.Soon(t, "the process leads", func() bool { return r.state.Leader.Check(t.Context()) == nil })
	var once sync.Once
	r.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		once.Do(func() { // the first victim is being written
			other := lease.DeepCopy()
			other.Spec.HolderIdentity = new("another")
			if err := r.client.Tracker().Update(leases, other, other.Namespace); err != nil {
				t.Error(err)
			}
			testkit.Soon(t, "the process hears of another leader", func() bool { return r.state.Leader.Check(context.Background()) != nil })
		})
		return false, nil, nil
	})
	for i := range victims {
		r.place(r.create(gpuPod(fmt.Sprint("low-", i), 1).Node(fmt.Sprint("node-0-", i%3)).Obj()))
	}
	gang := r.gangOf("gang", 3, 8, 10)
	r.known(gang[0])
	r.failing(gang[0])
	testkit.Soon(t, "what was held for the gang is given back", func() bool { return len(r.held()) == 0 })
	if got := len(r.evicted()); got == 0 || got > atOnce {
		t.Errorf("%d pods were evicted, want some, and no more than the %d that were under way when the Lease was lost", got, atOnce)
	}
}
