// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/pooldemo"
	"github.com/nvtopo/nvtopo/internal/testkit"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/remotesession"
)

// TestDevclusterSessions checks that remote sessions can be tried on the cluster of nvtopo-devcluster up
// --pools.
func TestDevclusterSessions(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	p := findPrograms(t)
	crashes := newCrashes(testkit.Log())
	c, err := demo.Boot(ctx, &demo.Options{
		Kwok: p.kwok, Scheduler: p.scheduler, Nodes: []devcluster.NodeSpec{},
		Kueue:    &devcluster.KueueOptions{Binary: p.kueue, Config: p.kueueConfig},
		Progress: testkit.Log(), Log: crashes,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &testEnv{Cluster: c, recorder: newRecorder(), refusals: newRefusals(testkit.Log()), crashes: crashes, stop: func() {}}
	t.Cleanup(func() {
		if err := l.end(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	if l.Client, err = client.New(c.RESTConfig(), client.Options{Scheme: kinds()}); err != nil {
		t.Fatal(err)
	}
	if err := pooldemo.Start(ctx, c, p.controller); err != nil {
		t.Fatal(err)
	}
	stop, err := l.record(ctx)
	if err != nil {
		t.Fatal(err)
	}
	l.stop = stop
	s := newScenarioOn(t, l, dgx(1)...)
	s.tenants(t, "a")
	s.computePool(t, sessionPool)
	s.ready(t)
	s.session(t, "first", 1)
	s.waitSession(t, "first", poolv1alpha1.SessionReady, remotesession.ReasonServes)
}
