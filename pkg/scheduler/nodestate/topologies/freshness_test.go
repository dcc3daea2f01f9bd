// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// TestLastGoodGraphExpiry: the last good graph is not valid for ever. An exporter goes on renewing its
// Lease for an object that cannot be read.
func TestLastGoodGraphExpiry(t *testing.T) {
	r := newTestEnv(t)
	r.vouched(t, "dgx1-v100")
	start := r.clock.now
	apply := func(version, class string, partial bool) (freed bool) {
		t.Helper()
		obj := topologyOf(t, "n", "dgx1-v100")
		obj.ResourceVersion, obj.Spec.LinkKinds[0].Class = version, class
		if partial {
			obj = withGraph(obj, r.Node("n").Spec)
		}
		r.mu.Lock()
		c, err := r.apply(obj, partial)
		r.mu.Unlock()
		if (err != nil) != (version == "2") {
			t.Fatalf("version %s with class %s: %v", version, class, err)
		}
		return c.Freed
	}
	at := func(d time.Duration, want placement.Reason) {
		t.Helper()
		r.clock.now = start.Add(d)
		r.renew("n", 2*time.Minute)
		e := r.Entry("n")
		if got := r.CheckGraph(e, e.Node(), "node-uid-n"); got != want {
			t.Errorf("after %v: %q, want %q", d, got, want)
		}
	}
	apply("2", "NVLink9", false)
	at(0, placement.Fits)
	at(time.Minute, placement.Fits)
	apply("3", "NVLink9", false) // a later write, still unreadable, begins no new term
	at(119*time.Second, placement.Fits)
	at(120*time.Second, placement.UnreadableGraph)
	apply("4", "NVLink9", true) // nor does an object whose graph has to wait end the old one
	at(130*time.Second, placement.UnreadableGraph)
	apply("4", "NVLink9", false)
	at(10*time.Minute, placement.UnreadableGraph)
	if !apply("5", topologyOf(t, "n", "dgx1-v100").Spec.LinkKinds[0].Class, false) {
		t.Error("nobody was woken when the old graph counted again")
	}
	at(11*time.Minute, placement.Fits)
}
