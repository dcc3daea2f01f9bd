// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/bench/internal/proc"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// victims returns a small cluster, and the clients of its first nodes' exporters and agents.
func victims(tb testing.TB, nodes int) (*cluster, []hostileNode) {
	tb.Helper()
	cp, err := startControlPlane(tb.Context(), tb.Output(), realLimits...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := cp.stop(); err != nil {
			tb.Error(err)
		}
	})
	c, err := newCluster(tb.Context(), cp, &options{}, 2*nodes)
	if err != nil {
		tb.Fatal(err)
	}
	clients := make([]hostileNode, nodes)
	for i := range clients {
		if clients[i].exporter, err = c.boundClient(tb.Context(), exporterAccount, i); err != nil {
			tb.Fatal(err)
		}
		if clients[i].agent, err = c.boundClient(tb.Context(), agentAccount, i); err != nil {
			tb.Fatal(err)
		}
	}
	return c, clients
}

// tempDir is tempFolder for benchmarks, too.
func tempDir(tb testing.TB) {
	tb.Helper()
	dir, err := os.MkdirTemp("", "nb-") //nolint:usetesting // etcd's sockets need a path shorter than TempDir's
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	tb.Setenv("TMPDIR", dir)
}

// TestHostileObjectsAdmitted: the API server admits the hostile nodes' objects. A refused attack
// would be none, and the greatest object has the most entries that the schema admits.
func TestHostileObjectsAdmitted(t *testing.T) {
	tempDir(t)
	c, clients := victims(t, len(publications))
	for node := range publications {
		kind := &publications[node]
		for step := range 3 {
			object, err := kind.object(place{node: node, victim: node + len(publications), step: step})
			if err != nil {
				t.Fatalf("%s: %v", kind.name, err)
			}
			if err := clients[node].write(t.Context(), node, object); err != nil {
				t.Fatalf("%s, step %d: %v", kind.name, step, err)
			}
		}
	}
	u, err := c.dyn.Resource(v1alpha1.GroupVersionResource).Get(t.Context(), fleet.Name(0), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var most v1alpha1.NodeGPUTopology
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &most); err != nil {
		t.Fatal(err)
	}
	var gpus int
	for _, a := range most.Status.Allocations {
		gpus += len(a.GPUs)
	}
	for what, n := range map[string][2]int{
		"GPUs":            {len(most.Spec.GPUs), nvtopo.MaxGPUs},
		"kinds of links":  {len(most.Spec.LinkKinds), v1alpha1.MaxLinkKinds},
		"NUMA distances":  {len(most.Spec.NUMANodes[0].Distances), v1alpha1.MaxDistances},
		"siblings":        {len(most.Spec.NUMANodes) * len(most.Spec.NUMANodes[0].Siblings), v1alpha1.MaxSiblings / v1alpha1.MaxDistances * v1alpha1.MaxDistances},
		"NIC distances":   {len(most.Spec.NICs) * len(most.Spec.NICs[0].Distances), v1alpha1.MaxNICDistances},
		"healths":         {len(most.Status.GPUHealth), nvtopo.MaxGPUs},
		"allocations":     {len(most.Status.Allocations), v1alpha1.MaxAllocations},
		"allocated GPUs":  {gpus, v1alpha1.MaxAllocatedGPUs},
		"memory accounts": {len(most.Status.Kubelet.Memory), v1alpha1.MaxDistances},
	} {
		if n[0] != n[1] {
			t.Errorf("%d %s, want %d", n[0], what, n[1])
		}
	}
}

// BenchmarkPublication has the CPU that API server and etcd spend on one publication, that
// is all requests of it, of each kind that hostile nodes publish, of an honest one, and of
// one that is refused: a GPU more than there may be.
//
//	go test -C bench -run '^$' -bench Publication -benchtime 100x ./scheduler
func BenchmarkPublication(b *testing.B) {
	tempDir(b)
	refused := publication{"refused, 65 GPUs", func(t *v1alpha1.NodeGPUTopology, p place) error {
		noise(t, nvtopo.MaxGPUs+1, p)
		return nil
	}}
	honest := publication{"honest", func(t *v1alpha1.NodeGPUTopology, p place) error {
		t.Spec.GPUs[0].MIG = p.step%2 == 1
		return nil
	}}
	kinds := append([]publication{honest, refused}, publications...)
	c, clients := victims(b, len(kinds))
	for node := range kinds {
		kind, step := &kinds[node], 0
		b.Run(kind.name, func(b *testing.B) {
			before, err := proc.CPUTime(c.pid)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				step++
				object, err := kind.object(place{node: node, victim: node + len(kinds), step: step})
				if err != nil {
					b.Fatal(err)
				}
				err = clients[node].write(b.Context(), node, object)
				if isRefused := apierrors.IsInvalid(errors.Unwrap(err)); (err != nil) != isRefused || isRefused != (node == 1) {
					b.Fatal(err)
				}
			}
			after, err := proc.CPUTime(c.pid)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64((after-before)/time.Microsecond)/1000/float64(b.N), "server-ms/op")
		})
	}
}
