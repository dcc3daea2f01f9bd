// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// TestSupplyStamp: a stamp changes with the supply.
func TestSupplyStamp(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	info, l := r.view(t)
	stamper := r.Nodes.Stamper([]string{"n"})
	stamp := func() Stamp { stamper.Begin(); return stamper.Stamp(0, info) }
	if n := testing.AllocsPerRun(100, func() { stamper.Stamp(0, info) }); n != 0 {
		t.Errorf("a stamp allocates %v times", n)
	}
	for _, tc := range []struct {
		what   string
		change func()
	}{
		{"a plan", func() { r.mustPlan(t, l, member(t, schedtest.Pod("p").GPUs(2).Obj(), "n", 0, 1)) }},
		{"its end", func() { r.GangReserver.EndPlanned("p") }},
		{"a pod that is there", func() { info, l = r.view(t, on(t, r.State, schedtest.Pod("q").GPUs(1).Obj(), "n", 0)) }},
		{"a graph", func() { r.tell(t, func(s *v1alpha1.NodeGPUTopologyStatus) { s.GPUHealth[1].Healthy = false }) }},
		{"an exporter whose Lease is deleted", func() { r.Changes.leaseGone(nodelease.ExporterPrefix + "n") }},
		{"its return", func() {
			if name := nodelease.ExporterPrefix + "n"; r.PodDevices.leases.Set(lease(name, r.clock.now, 24*time.Hour), r.clock.now) {
				r.Changes.leaseBack(name)
			}
		}},
		{"silence of the programs", func() { r.clock.now = r.clock.now.Add(3 * 365 * 24 * 3600e9) }},
	} {
		before := stamp()
		if again := stamp(); !again.Same(before) || !stamper.Holds(0, &before, info) {
			t.Fatalf("before %s: stamps %+v and %+v of one moment", tc.what, before, again)
		}
		tc.change()
		if stamper.Begin(); stamper.Holds(0, &before, info) || stamp().Same(before) {
			t.Errorf("%s: the stamp is the same", tc.what)
		}
	}
}
