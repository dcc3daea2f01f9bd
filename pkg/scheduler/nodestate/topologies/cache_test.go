// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// BenchmarkApply reads objects of nodes that are new to the cache, as at a scheduler's start. live-B is
// the memory that the cache keeps for one beside the object itself.
func BenchmarkApply(b *testing.B) {
	for _, kind := range []string{"dgx1-v100", "dgx-h100"} {
		b.Run(kind, func(b *testing.B) {
			objects := make([]*v1alpha1.NodeGPUTopology, b.N)
			for i := range objects {
				objects[i] = topologyOf(b, fmt.Sprintf("n%d", i), kind)
			}
			c := newTestEnv(b)
			before := liveHeap()
			b.ReportAllocs()
			b.ResetTimer()
			for _, obj := range objects {
				if _, err := c.Apply(obj); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(liveHeap()-before)/float64(b.N), "live-B/op")
			runtime.KeepAlive(c)
			runtime.KeepAlive(objects)
		})
	}
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestObjectChanges: the Change of each object is complete. Its consumers have no other source.
func TestObjectChanges(t *testing.T) {
	first := func(t *testing.T) *v1alpha1.NodeGPUTopology { t.Helper(); return topologyOf(t, "first", "dgx-h100") }
	second := func(t *testing.T) *v1alpha1.NodeGPUTopology {
		t.Helper()
		obj := topologyOf(t, "second", "dgx-h100")
		obj.Spec.GPUs[2].ID = first(t).Spec.GPUs[2].ID
		return obj
	}
	tests := map[string]struct {
		play func(t *testing.T, r *testEnv) (Change, error)
		want Change
		err  bool
	}{
		"a new object": {
			play: func(t *testing.T, r *testEnv) (Change, error) { t.Helper(); return r.Apply(first(t)) },
			want: Change{Node: "first", Changed: true, Freed: true},
		},
		"the same version again": {
			play: func(t *testing.T, r *testEnv) (Change, error) {
				t.Helper()
				_, _ = r.Apply(first(t))
				return r.Apply(first(t))
			},
			want: Change{Node: "first"},
		},
		"a GPU breaks": {
			play: func(t *testing.T, r *testEnv) (Change, error) {
				t.Helper()
				_, _ = r.Apply(first(t))
				r.renew("first", time.Hour)
				sick := first(t)
				sick.ResourceVersion, sick.Status.GPUHealth[3].Healthy = "2", false
				return r.Apply(sick)
			},
			want: Change{Node: "first", Changed: true},
		},
		"nothing of it can be read": {
			play: func(t *testing.T, r *testEnv) (Change, error) {
				t.Helper()
				obj := first(t)
				obj.Spec.LinkKinds[0].Class = "NVLink9"
				return r.Apply(obj)
			},
			want: Change{Node: "first"}, err: true,
		},
		"the owner of another node's device goes": {
			play: func(t *testing.T, r *testEnv) (Change, error) {
				t.Helper()
				_, _ = r.Apply(first(t))
				_, _ = r.Apply(second(t))
				return r.Remove("first", "topology-first"), nil
			},
			want: Change{Node: "first", Changed: true, Others: []string{"second"}, Freed: true},
		},
		"another object of the name goes": {
			play: func(t *testing.T, r *testEnv) (Change, error) {
				t.Helper()
				_, _ = r.Apply(first(t))
				return r.Remove("first", "earlier"), nil
			},
			want: Change{Node: "first"},
		},
		"one goes that was never there": {
			play: func(_ *testing.T, r *testEnv) (Change, error) { return r.Remove("nobody", "u"), nil },
			want: Change{Node: "nobody"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t)
			r.listed = true
			got, err := tc.play(t, r)
			if (err != nil) != tc.err {
				t.Errorf("error %v, want one: %t", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("change (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestForget has nodes publish and go, always with new names.
func TestForget(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t)
	entries := func() (n int) {
		for range r.all() {
			n++
		}
		return n
	}
	for i := range 1000 {
		obj := topologyOf(t, fmt.Sprint("node-", i), "a100-pcie-4-bridged")
		exporter := nodelease.ExporterPrefix + obj.Name
		r.renew(obj.Name, time.Minute)
		if _, err := r.Apply(obj); err != nil {
			t.Fatal(err)
		}
		if r.Forget(obj.Name) || r.Known(obj.Name).Node() == nil {
			t.Fatal("a node with an object was forgotten")
		}
		r.Remove(obj.Name, obj.UID)
		if r.Forget(obj.Name) {
			t.Fatal("a node whose exporter has a Lease was forgotten")
		}
		r.LeaseGone(exporter)
		if !r.Forget(obj.Name) || entries() != 0 {
			t.Fatalf("%d entries are kept after the node, its object and its Lease went, want 0", entries())
		}
		if expiry := r.leases.Get(exporter); expiry == r.leases.Get(exporter+"-other") || expiry.Until() != nil {
			t.Fatal("a Lease that is gone counts")
		}
		r.LeaseGone(exporter)
		r.LeaseGone(exporter + "-other")
	}
	r.renew("n", 24*time.Hour)
	if _, err := r.Apply(topologyOf(t, "n", "a100-pcie-4-bridged")); err != nil {
		t.Fatal(err)
	}
	r.LeaseGone(nodelease.ExporterPrefix + "n")
	r.renew("n", 24*time.Hour)
	if e := r.Known("n"); r.CheckGraph(e, e.Node(), e.Node().NodeUID) != placement.Fits {
		t.Error("a Lease that was deleted and made anew does not vouch for the graph")
	}
}
