// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

const testResource = "nvidia.com/gpu"

// tickClock is a clock whose time the test sets.
type tickClock struct {
	clock.WithTicker
	now time.Time
}

func (c *tickClock) Now() time.Time                  { return c.now }
func (c *tickClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

// testEnv is a Cache with a clock and Leases of the test.
type testEnv struct {
	*Cache
	clock  *tickClock
	leases *nodelease.Table
	listed bool // the first lists are in
	freed  int  // how often some pod may fit because of a change
}

func newTestEnv(tb testing.TB) *testEnv {
	tb.Helper()
	r := &testEnv{clock: &tickClock{now: time.Unix(1_700_000_000, 0)}, leases: nodelease.NewTable(0)}
	r.Cache = New(r.clock, r.leases, nvtopo.NewRegistry(nvtopo.DefaultWeights()), func() bool { return r.listed })
	return r
}

// vouched reads the object of a node "n" whose exporter is alive for a day.
func (e *testEnv) vouched(tb testing.TB, kind string) {
	tb.Helper()
	if _, err := e.Apply(topologyOf(tb, "n", kind)); err != nil {
		tb.Fatal(err)
	}
	e.renew("n", 24*time.Hour)
}

// renew renews the Lease of a node's exporter.
func (e *testEnv) renew(node string, term time.Duration) {
	e.leases.Set(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: nodelease.ExporterPrefix + node},
		Spec: coordinationv1.LeaseSpec{
			RenewTime: new(metav1.NewMicroTime(e.clock.now)), LeaseDurationSeconds: new(int32(term / time.Second)),
		},
	}, e.clock.now)
}

// handler returns the watch's handling of an object, and late that of objects that had to wait; changes
// are not passed on.
func (e *testEnv) handler() (add func(*v1alpha1.NodeGPUTopology), late func()) {
	nobody := func(Change, error) {}
	h := e.Handler(nobody)
	return func(obj *v1alpha1.NodeGPUTopology) { h.OnUpdate(nil, obj) }, func() {
		for _, node := range e.late() {
			_, _ = e.takeLate(node)
		}
	}
}

// topologyOf returns the NodeGPUTopology of a catalogue machine.
func topologyOf(tb testing.TB, name, kind string) *v1alpha1.NodeGPUTopology {
	tb.Helper()
	m, err := machine.Lookup(kind)
	if err != nil {
		tb.Fatal(err)
	}
	g, err := m.GraphFor(name)
	if err != nil {
		tb.Fatal(err)
	}
	obj := v1alpha1.FromGraph(name, testResource, g)
	obj.UID, obj.ResourceVersion = types.UID("topology-"+name), "1"
	obj.Spec.NodeUID = types.UID("node-uid-" + name)
	return obj
}
