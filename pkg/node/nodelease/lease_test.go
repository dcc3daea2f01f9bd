// SPDX-License-Identifier: Apache-2.0

package nodelease

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/release"
)

func TestRenew(t *testing.T) {
	client := fake.NewClientset()
	l := Lease{Namespace: "ns", Name: AgentPrefix + "n1", Node: "n1", NodeUID: "u", Manager: "m"}
	for _, now := range []time.Time{time.Unix(1000, 0), time.Unix(1030, 0)} {
		if err := l.Renew(t.Context(), client, now); err != nil {
			t.Fatal(err)
		}
		got, err := client.CoordinationV1().Leases("ns").Get(t.Context(), "agent-n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := coordinationv1.LeaseSpec{
			HolderIdentity: new("n1"), LeaseDurationSeconds: new(int32(120)), RenewTime: new(metav1.NewMicroTime(now)),
		}
		if diff := cmp.Diff(want, got.Spec); diff != "" {
			t.Errorf("at %v (-want,+got):\n%s", now, diff)
		}
		if diff := cmp.Diff([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: "u"}}, got.OwnerReferences); diff != "" {
			t.Errorf("owner (-want,+got):\n%s", diff)
		}
		if diff := cmp.Diff(release.Marks(), got.Annotations); diff != "" {
			t.Errorf("marks (-want,+got):\n%s", diff)
		}
	}
}

// TestNextRenewal: Next leaves room for three missed renewals.
func TestNextRenewal(t *testing.T) {
	for _, r := range []float64{0, 0.5, 0.999} {
		if d := Next(r); d < 25*time.Second || d > 35*time.Second || 3*d > Duration {
			t.Errorf("next renewal after %v", d)
		}
	}
}

// TestKeep: Keep renews when told and on schedule.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		var answers atomic.Bool
		start := time.Now()
		wake := make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			Keep(ctx, clock.RealClock{}, func() float64 { return 0 }, wake, func(context.Context) error {
				at = append(at, time.Since(start))
				if !answers.Load() {
					return errors.New("no server")
				}
				return nil
			})
		}()
		time.Sleep(2 * time.Second)
		wake <- struct{}{}
		time.Sleep(4 * time.Second) // the tries after one second and two more fail
		answers.Store(true)
		time.Sleep(time.Minute)
		cancel()
		<-done
		// The fourth, after four more, succeeds; Next(0) is Renewal less the jitter.
		want := []time.Duration{2 * time.Second, 3 * time.Second, 5 * time.Second, 9 * time.Second, 9*time.Second + Next(0), 9*time.Second + 2*Next(0)}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("renewals (-want,+got):\n%s", diff)
		}
	})
}

// TestAPIServerOutage: an outage of 75 seconds makes no Lease run out. It plays 3000 programs whose
// API server refuses everything for so long.
func TestAPIServerOutage(t *testing.T) {
	const outage = 75 * time.Second
	out, worst := 0, time.Duration(0)
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 0))
		begin := time.Minute + time.Duration(random.Int64N(int64(time.Minute)))
		synctest.Test(t, func(t *testing.T) {
			start, renewed := time.Now(), time.Duration(0)
			ctx, cancel := context.WithTimeout(t.Context(), begin+2*outage)
			defer cancel()
			gap := time.Duration(0)
			Keep(ctx, clock.RealClock{}, random.Float64, nil, func(context.Context) error {
				now := time.Since(start)
				if now >= begin && now < begin+outage {
					return errors.New("no server")
				}
				gap, renewed = max(gap, now-renewed), now
				return nil
			})
			if worst = max(worst, gap); gap >= Duration {
				out++
			}
		})
	}
	if out > 0 {
		t.Errorf("%d Leases of 3000 ran out, one was not renewed for %v", out, worst)
	}
}
