// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestLeaderTerms: a term ends with the Lease and another begins.
func TestLeaderTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var down atomic.Bool
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return down.Load(), nil, errors.New("no server")
		})
		holder := func() string {
			l, err := client.CoordinationV1().Leases("ns").Get(t.Context(), LeaseName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return *l.Spec.HolderIdentity
		}
		ctx, cancel := context.WithCancel(t.Context())
		var terms, running atomic.Int32
		ended := make(chan error, 1)
		go func() {
			ended <- Lead(ctx, client, "ns", func(ctx context.Context) {
				terms.Add(1)
				running.Add(1)
				<-ctx.Done()
				time.Sleep(5 * time.Second) // winding up takes a while
				running.Add(-1)
			})
		}()
		time.Sleep(time.Minute)
		if terms.Load() != 1 || running.Load() != 1 || holder() == "" {
			t.Fatalf("%d terms, %d running, holder %q", terms.Load(), running.Load(), holder())
		}
		down.Store(true)
		time.Sleep(time.Minute)
		if running.Load() != 0 {
			t.Error("the term goes on though the Lease could not be renewed for a minute")
		}
		down.Store(false)
		time.Sleep(time.Minute)
		if terms.Load() != 2 || running.Load() != 1 {
			t.Errorf("%d terms, %d running after the server is back", terms.Load(), running.Load())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the end returned %v", err)
		}
		if running.Load() != 0 || holder() != "" {
			t.Errorf("at the end %d running, holder %q", running.Load(), holder())
		}
	})
}
