// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestFaultPublishing: a fault is published within one period and at once with an event.
func TestFaultPublishing(t *testing.T) {
	sound := func() *nvtopo.Graph { return uniform(t, 4, "NVIDIA H100 80GB HBM3", "NV18") }
	tests := map[string]func(g *nvtopo.Graph) *nvtopo.Graph{
		"a lost GPU":        func(g *nvtopo.Graph) *nvtopo.Graph { g.GPUs[2].Unhealthy = "GPU is lost: x"; return g },
		"a degraded GPU":    func(g *nvtopo.Graph) *nvtopo.Graph { g.GPUs[2].Degraded = "NVLink error: Xid 74"; return g },
		"a partitioned GPU": func(g *nvtopo.Graph) *nvtopo.Graph { g.GPUs[2].MIG = true; return g },
		"links down":        func(*nvtopo.Graph) *nvtopo.Graph { return uniform(t, 4, "NVIDIA H100 80GB HBM3", "NV16") },
	}
	for name, breakIt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := &scripted{graph: sound(), events: make(chan Event)}
				line, stop := running(t, src, nil)
				written := func() int { return len(line.times(putSpec)) + len(line.times(putStatus)) }
				pass(10 * time.Second)
				for _, step := range []struct {
					what  string
					graph *nvtopo.Graph
				}{{"the fault", breakIt(sound())}, {"its end", sound()}} {
					before := written()
					src.show(step.graph)
					pass(30 * time.Second)
					if written() == before {
						t.Errorf("%s was not published within a period of 30 s", step.what)
					}
				}
				for _, step := range []struct {
					what  string
					graph *nvtopo.Graph
				}{{"the fault", breakIt(sound())}, {"its end", sound()}} {
					before := written()
					src.show(step.graph)
					src.events <- Event{UUID: "GPU-2"}
					pass(time.Second)
					if written() == before {
						t.Errorf("%s was not published within a second of an event", step.what)
					}
				}
				stop()
			})
		})
	}
}

// TestHealthSince: the health says since when it holds.
func TestHealthSince(t *testing.T) {
	r := newTestEnv(t, Config{})
	begun := r.clk.Now()
	r.publish(t)
	since := func(when string, gpu int, want time.Duration) {
		t.Helper()
		h := healthOf(r.api.topology(t), r.src.graph.GPUs[gpu].UUID)
		if h == nil || h.Since == nil || h.Since.Sub(begun) != want {
			t.Errorf("%s: health %+v, want it since %s after the start", when, h, want)
		}
	}
	with := func(unhealthy, degraded string) {
		t.Helper()
		g := uniform(t, 8, "NVIDIA H100 80GB HBM3", "NV18")
		g.GPUs[3].Unhealthy, g.GPUs[3].Degraded = unhealthy, degraded
		r.src.graph = g
		r.publish(t)
	}
	r.clk.Step(time.Minute)
	with("", "NVLink error: Xid 74")
	since("when it turns up", 3, time.Minute)
	r.clk.Step(time.Minute)
	with("", "NVLink error: Xid 74")
	r.restart(t)
	with("", "NVLink error: Xid 74")
	since("while it lasts, over a restart", 3, time.Minute)
	with("", "NVLink error: in other words")
	since("when the driver puts it in other words", 3, time.Minute)
	r.expect(t, "without a change", getTopology, putLease)
	with("Xid 79", "")
	since("when it gets worse", 3, 2*time.Minute)
	with("", "")
	if health := r.api.topology(t).Status.GPUHealth; len(health) > 0 {
		t.Errorf("when it is over: %+v, want no entry, which is healthy", health)
	}
}

// TestDroppedFields: fields that the server does not store do not make the exporter write in every round.
func TestDroppedFields(t *testing.T) {
	r := newTestEnv(t, Config{})
	r.api.mutate = func(_ string, obj map[string]any) {
		status, _ := obj["status"].(map[string]any)
		list, _ := status["gpuHealth"].([]any)
		for _, h := range list {
			delete(h.(map[string]any), "degraded")
			delete(h.(map[string]any), "since")
		}
	}
	r.src.graph.GPUs[1].Degraded = "NVLink error: Xid 74"
	r.publish(t)
	if h := healthOf(r.api.topology(t), r.src.graph.GPUs[1].UUID); h == nil || !h.Healthy || h.Degraded {
		t.Fatalf("health %+v: the server should have dropped two fields", h)
	}
	for range 5 {
		r.clk.Step(30 * time.Second)
		r.expect(t, "without a change", getTopology, putLease)
	}
}
