// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// refuseCompact answers as an API server does whose definition lacks the compact fields.
func refuseCompact(r request) *metav1.Status {
	spec, _ := r.body["spec"].(map[string]any)
	if _, ok := spec["linkRows"]; !ok {
		return nil
	}
	return failure(http.StatusInternalServerError, metav1.StatusReasonInternalError,
		"failed to create typed patch object (/n1; topology.nvtopo.dev/v1alpha1, Kind=NodeGPUTopology): errors:\n"+
			"  .spec.linkKinds: field not declared in schema\n  .spec.linkRows: field not declared in schema")
}

// TestCompactGraph: a compact graph is published as the schema takes it.
func TestCompactGraph(t *testing.T) {
	tests := map[string]struct {
		compact             bool
		refuse              func(request) *metav1.Status
		wantLinks, wantRows int
	}{
		"by default at length":                              {wantLinks: 28},
		"in short when told to":                             {compact: true, wantRows: 7},
		"at length where the schema does not have the rows": {compact: true, refuse: refuseCompact, wantLinks: 28},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, Config{Compact: tc.compact})
			r.api.refuse = tc.refuse
			r.publish(t)
			top := r.api.topology(t)
			if len(top.Spec.Links) != tc.wantLinks || len(top.Spec.LinkRows) != tc.wantRows {
				t.Errorf("%d links and %d rows, want %d and %d", len(top.Spec.Links), len(top.Spec.LinkRows), tc.wantLinks, tc.wantRows)
			}
			graphs, err := top.Graphs()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := graphs[v1alpha1.DefaultResource].ClassKey(), r.src.graph.ClassKey(); got != want {
				t.Errorf("the graph is of class %s, want %s", got, want)
			}
			r.expect(t, "without a change", getTopology, putLease)
		})
	}
}

// TestFormChange: the form is changed in place.
func TestFormChange(t *testing.T) {
	r := newTestEnv(t, Config{})
	for _, compact := range []bool{false, true, false} {
		r.cfg.Compact = compact
		r.restart(t)
		r.publish(t)
		if top := r.api.topology(t); (len(top.Spec.LinkRows) > 0) != compact || (len(top.Spec.Links) > 0) == compact {
			t.Errorf("compact %t: %d rows, %d links", compact, len(top.Spec.LinkRows), len(top.Spec.Links))
		}
	}
}

// TestManyGPUs: a machine of many GPUs is published in short. Beyond what the schema takes at
// length, also without --compact.
func TestManyGPUs(t *testing.T) {
	tests := map[string]struct {
		gpus                int
		refuse              func(request) *metav1.Status
		wantLinks, wantRows int
	}{
		"20 GPUs at length": {gpus: 20, wantLinks: 190},
		"21 GPUs in rows":   {gpus: 21, wantRows: 20},
		"64 GPUs in rows":   {gpus: 64, wantRows: 63},
		"at length where the schema does not have the rows, which takes more": {gpus: 21, refuse: refuseCompact, wantLinks: 210},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, Config{})
			r.src.graph = uniform(t, tc.gpus, "NVIDIA H100 80GB HBM3", "NV18")
			r.api.refuse = tc.refuse
			r.publish(t)
			top := r.api.topology(t)
			if len(top.Spec.Links) != tc.wantLinks || len(top.Spec.LinkRows) != tc.wantRows {
				t.Errorf("%d links and %d rows, want %d and %d", len(top.Spec.Links), len(top.Spec.LinkRows), tc.wantLinks, tc.wantRows)
			}
			graphs, err := top.Graphs()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := graphs[v1alpha1.DefaultResource].ClassKey(), r.src.graph.ClassKey(); got != want {
				t.Errorf("the graph is of class %s, want %s", got, want)
			}
			r.expect(t, "without a change", getTopology, putLease)
		})
	}
}

// TestUnpublishableGraph: a graph that cannot be published is an error: it is said in Ready, and
// the last good graph stays.
func TestUnpublishableGraph(t *testing.T) {
	r := newTestEnv(t, Config{})
	r.publish(t)
	var nodes []nvtopo.NUMANode
	for i := range 65 {
		nodes = append(nodes, nvtopo.NUMANode{ID: i})
	}
	g, err := nvtopo.NewGraph([]nvtopo.GPU{{UUID: "GPU-0", NUMANode: 0}}, nodes, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.src.graph = g
	const want = "spec.numaNodes: 65 entries, at most 64"
	if err := r.exporter.PublishOnce(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("published with %v, want %q", err, want)
	}
	top := r.api.topology(t)
	if c := readyOf(t, top); c.Status != metav1.ConditionFalse || c.Reason != ReasonReadFailed || !strings.Contains(c.Message, want) {
		t.Errorf("the condition is %+v, want it to say %q", c, want)
	}
	if len(top.Spec.GPUs) != 8 {
		t.Errorf("%d GPUs, want the 8 of the last good graph", len(top.Spec.GPUs))
	}
}
