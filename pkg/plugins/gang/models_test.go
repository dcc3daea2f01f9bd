// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// remodel changes the model of a node's GPUs.
func (e *testEnv) remodel(node string) {
	e.t.Helper()
	m, err := machine.Lookup("dgx-h100")
	if err != nil {
		e.t.Fatal(err)
	}
	g, err := m.GraphFor(node)
	if err != nil {
		e.t.Fatal(err)
	}
	for i := range g.GPUs {
		g.GPUs[i].Model = "other"
	}
	_, graph, _ := nodeOf(e.t, node, "")
	uid := graph.Spec.NodeUID
	graph = v1alpha1.FromGraph(node, gpuResource, g)
	graph.UID, graph.ResourceVersion, graph.Spec.NodeUID = "remodelled", "2", uid
	if _, err := e.state.Graphs.Apply(graph); err != nil {
		e.t.Fatal(err)
	}
}

// TestNoEvictionForOneModel: no pod is evicted and no node closed for a gang that would fit on two
// models but on neither alone. Pods are evicted and nodes closed for a gang that fits on no model.
func TestNoEvictionForOneModel(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		taken     []string // nodes with a pod of lower priority
		mixed     bool
		wantWaits bool   // it is placed, and its first member waits for the second
		wantWhy   string // of PostFilter
		wantEnds  bool   // somebody is evicted, and nodes are closed
	}{
		"it fits on two models": {
			taken: []string{"node-0-1", "node-0-2"}, wantWhy: "nobody goes for a gang that allow-mixed-models would fit",
		},
		"and may have both": {taken: []string{"node-0-1", "node-0-2"}, mixed: true, wantWaits: true},
		"it does not fit on two models": {
			taken: []string{"node-0-0", "node-0-1", "node-0-2"}, wantWhy: "evicted for this gang", wantEnds: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestEnvWith(t, `{"drainAfter": "1s"}`, 4)
			r.remodel("node-0-0")
			r.remodel("node-0-1")
			for _, node := range tc.taken {
				r.place(r.create(gpuPod("on-"+node, 8).Namespace("others").Node(node).Obj()))
			}
			gang := r.gangOf("gang", 2, 8, 10, func(pod *v1.Pod) {
				pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour)) // it has waited for long
				if tc.mixed {
					pod.Annotations[gangrequest.MixedModelsKey] = "true"
				}
			})
			r.known(gang[0])
			if tc.wantWaits {
				if c := r.cycle(gang[0]); !c.status.IsWait() {
					t.Fatalf("%v, want a place", c.status)
				}
				return
			}
			c := r.cycle(gang[0])
			if closed := r.state.PreSelector.Closed().Any(); closed != tc.wantEnds {
				t.Errorf("nodes are closed: %v, want %v", closed, tc.wantEnds)
			}
			if _, status := r.fw.RunPostFilterPlugins(t.Context(), c.state, gang[0], nil); !strings.Contains(status.Message(), tc.wantWhy) {
				t.Errorf("%q, want %q", status.Message(), tc.wantWhy)
			}
			if r.state.PreSelector.Closed().Any() {
				t.Error("nodes are closed whose devices the gang holds until others are gone")
			}
			if tc.wantEnds {
				testkit.Soon(t, "somebody is evicted", func() bool { return len(r.evicted()) > 0 })
			} else if got := r.evicted(); len(got)+len(r.held()) > 0 {
				t.Errorf("evicted %v, held %v", got, r.held())
			}
		})
	}
}

// TestPromisedModelTime: a gang waits for the model that it was promised, reports until when, and then
// takes another one.
func TestPromisedModelTime(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		made    time.Time
		wantWhy string // empty: it is placed
	}{
		"it has time left":    {made: time.Now().Add(time.Hour), wantWhy: "1 of 2 on other; allow-mixed-models would fit; takes another model than the promised one from "},
		"it has had its time": {made: time.Now().Add(-time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestEnvWith(t, `{"anyModelAfter": "30m"}`, 4)
			r.remodel("node-0-0")
			gang := r.gangOf("gang", 2, 8, 10, func(pod *v1.Pod) {
				pod.CreationTimestamp = metav1.NewTime(tc.made)
				pod.Annotations[podrequest.PromisedModelKey] = "other"
			})
			r.known(gang[0])
			c := r.cycle(gang[0])
			if got := c.status.Message(); tc.wantWhy != "" && !strings.Contains(got, tc.wantWhy) || tc.wantWhy == "" && !c.status.IsWait() {
				t.Errorf("%v, want %q", c.status, tc.wantWhy)
			}
		})
	}
}
