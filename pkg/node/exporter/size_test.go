// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestManyGPUs: machines of few and of many GPUs are published with their links in rows.
func TestManyGPUs(t *testing.T) {
	for _, gpus := range []int{1, 2, 21, 64} {
		t.Run(strconv.Itoa(gpus), func(t *testing.T) {
			r := newTestEnv(t, Config{})
			r.src.graph = uniform(t, gpus, "NVIDIA H100 80GB HBM3", "NV18")
			r.publish(t)
			top := r.api.topology(t)
			if len(top.Spec.LinkRows) != gpus-1 {
				t.Errorf("%d rows, want %d", len(top.Spec.LinkRows), gpus-1)
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
