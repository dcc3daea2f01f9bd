// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

func TestNodeMarks(t *testing.T) {
	const own = "nvtopo.dev/"
	tests := map[string]struct {
		graph        func() *nvtopo.Graph
		compat       bool
		wantLabels   map[string]string
		wantTopology string // nvtopo.dev/gpu-topology
		wantCompat   string // topology.kubernetes.io/gpu-topology
	}{
		"eight H100 on two NUMA nodes": {
			graph: func() *nvtopo.Graph { return uniform(t, 8, "NVIDIA H100 80GB HBM3", "NV18") },
			wantLabels: map[string]string{
				own + "gpu-interconnect": "NV18", own + "gpu-count": "8", own + "gpu-product": "NVIDIA-H100-80GB-HBM3", own + "numa-nodes": "2",
				own + "gpus-per-numa": "4", own + "single-numa-4gpu": "true", own + "single-numa-8gpu": "false",
			},
			wantTopology: `{"interconnect":"NV18","gpus":8,"numaNodes":2,"gpusPerNUMA":[{"node":0,"gpus":4},{"node":1,"gpus":4}]}`,
		},
		"with the keys of others": {
			graph:  func() *nvtopo.Graph { return uniform(t, 4, "NVIDIA L40S", "PHB") },
			compat: true,
			wantLabels: map[string]string{
				own + "gpu-interconnect": "PHB", own + "gpu-count": "4", own + "gpu-product": "NVIDIA-L40S", own + "numa-nodes": "2",
				own + "gpus-per-numa": "2", own + "single-numa-4gpu": "false", own + "single-numa-8gpu": "false",
				"topology.kubernetes.io/gpu-interconnect": "pcie", "topology.kubernetes.io/numa-nodes": "2",
				"topology.kubernetes.io/gpus-per-numa": "2", "topology.kubernetes.io/single-numa-4gpu": "false",
				"topology.kubernetes.io/single-numa-8gpu": "false", "accelerator": "nvidia-l40s", "gpu-count": "4",
			},
			wantTopology: `{"interconnect":"PHB","gpus":4,"numaNodes":2,"gpusPerNUMA":[{"node":0,"gpus":2},{"node":1,"gpus":2}]}`,
			wantCompat: `{"gpus":[{"id":0,"numa":0,"pcie":""},{"id":1,"numa":0,"pcie":""},{"id":2,"numa":1,"pcie":""},{"id":3,"numa":1,"pcie":""}],` +
				`"nvlinks":[]}`,
		},
		"GPUs on unknown nodes and in MIG mode share no NUMA node": {
			graph: func() *nvtopo.Graph {
				g := uniform(t, 8, "NVIDIA A100", "NV12")
				g.GPUs[0].NUMANode = nvtopo.UnknownNUMA
				g.GPUs[4].MIG = true
				return g
			},
			wantLabels: map[string]string{
				own + "gpu-interconnect": "NV12", own + "gpu-count": "8", own + "gpu-product": "NVIDIA-A100", own + "numa-nodes": "2",
				own + "gpus-per-numa": "3", own + "single-numa-4gpu": "false", own + "single-numa-8gpu": "false",
			},
			wantTopology: `{"interconnect":"NV12","gpus":8,"numaNodes":2,"gpusPerNUMA":[{"node":0,"gpus":3},{"node":1,"gpus":3}]}`,
		},
		"health is not in the labels": {
			graph: func() *nvtopo.Graph {
				g := uniform(t, 8, "NVIDIA A100", "NV12")
				g.GPUs[0].Unhealthy = "Xid 79"
				return g
			},
			wantLabels: map[string]string{
				own + "gpu-interconnect": "NV12", own + "gpu-count": "8", own + "gpu-product": "NVIDIA-A100", own + "numa-nodes": "2",
				own + "gpus-per-numa": "4", own + "single-numa-4gpu": "true", own + "single-numa-8gpu": "false",
			},
			wantTopology: `{"interconnect":"NV12","gpus":8,"numaNodes":2,"gpusPerNUMA":[{"node":0,"gpus":4},{"node":1,"gpus":4}]}`,
		},
		"two models, one GPU of each": {
			graph: func() *nvtopo.Graph {
				g := uniform(t, 2, "NVIDIA A10", "SYS")
				g.GPUs[1].Model = "Tesla T4"
				return g
			},
			wantLabels: map[string]string{
				own + "gpu-interconnect": "SYS", own + "gpu-count": "2", own + "gpu-product": "mixed", own + "numa-nodes": "2",
				own + "gpus-per-numa": "1", own + "single-numa-4gpu": "false", own + "single-numa-8gpu": "false",
			},
			wantTopology: `{"interconnect":"SYS","gpus":2,"numaNodes":2,"gpusPerNUMA":[{"node":0,"gpus":1},{"node":1,"gpus":1}]}`,
		},
		"no GPU, compat": {
			graph:  func() *nvtopo.Graph { return uniform(t, 0, "", "SYS") },
			compat: true,
			wantLabels: map[string]string{
				own + "gpu-interconnect": "none", own + "gpu-count": "0", own + "numa-nodes": "2",
				own + "gpus-per-numa": "0", own + "single-numa-4gpu": "false", own + "single-numa-8gpu": "false",
				"topology.kubernetes.io/gpu-interconnect": "none", "topology.kubernetes.io/numa-nodes": "2", "gpu-count": "0",
				"topology.kubernetes.io/gpus-per-numa": "0", "topology.kubernetes.io/single-numa-4gpu": "false",
				"topology.kubernetes.io/single-numa-8gpu": "false",
			},
			wantTopology: `{"interconnect":"none","gpus":0,"numaNodes":2,"gpusPerNUMA":[]}`,
			wantCompat:   `{"gpus":[],"nvlinks":[]}`,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := tc.graph()
			got := nodeMarks(&Config{Resource: v1alpha1.DefaultResource, NoCompatLabels: !tc.compat}, g, v1alpha1.FromGraph("n1", "", g).Status.Summary)
			if diff := cmp.Diff(tc.wantLabels, got.labels); diff != "" {
				t.Errorf("labels (-want,+got):\n%s", diff)
			}
			wantAnnotations := map[string]string{own + "gpu-topology": tc.wantTopology}
			if tc.compat {
				wantAnnotations["topology.kubernetes.io/gpu-topology"] = tc.wantCompat
			}
			if diff := cmp.Diff(wantAnnotations, got.annotations); diff != "" {
				t.Errorf("annotations (-want,+got):\n%s", diff)
			}
			for k, v := range got.labels {
				if errs := append(validation.IsQualifiedName(k), validation.IsValidLabelValue(v)...); len(errs) > 0 {
					t.Errorf("%s=%s: %v", k, v, errs)
				}
			}
		})
	}
}

func FuzzLabelValue(f *testing.F) {
	for _, s := range []string{"NVIDIA H100 80GB HBM3", "", "---", "Ünïcode GPU™", strings.Repeat("x", 70), strings.Repeat("-x", 40)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if errs := validation.IsValidLabelValue(labelValue(s)); len(errs) > 0 {
			t.Errorf("labelValue(%q) = %q: %v", s, labelValue(s), errs)
		}
	})
}

// Turning compat off takes its keys away, also after a restart.
func TestUnwantedLabels(t *testing.T) {
	r := newTestEnv(t, Config{})
	r.publish(t)
	if r.api.labels()["accelerator"] == "" || r.api.annotations()["topology.kubernetes.io/gpu-topology"] == "" {
		t.Fatalf("compat labels and annotation are missing: %v, %v", r.api.labels(), r.api.annotations())
	}
	r.cfg.NoCompatLabels = true
	r.restart(t)
	r.expect(t, "after the restart", getNode, getTopology, putLabels, putLease)
	for k := range r.api.labels() {
		if k != "kubernetes.io/hostname" && !strings.HasPrefix(k, "nvtopo.dev/") {
			t.Errorf("label %s is left", k)
		}
	}
	for k := range r.api.annotations() {
		if !strings.HasPrefix(k, "nvtopo.dev/") {
			t.Errorf("annotation %s is left", k)
		}
	}
	r.expect(t, "then", getTopology, putLease)
}

// A key of ours that another manager owns cannot be removed, and is not tried for ever.
func TestForeignLeftover(t *testing.T) {
	r := newTestEnv(t, Config{Resync: 1, NoCompatLabels: true})
	r.api.edit(nodePath, func(o map[string]any) {
		o["metadata"].(map[string]any)["labels"].(map[string]any)["gpu-count"] = "by hand"
	})
	r.publish(t)
	r.clk.Step(1)
	r.expect(t, "at resync", getNode, getTopology, putLease)
	if got := r.api.labels()["gpu-count"]; got != "by hand" {
		t.Errorf("gpu-count = %s", got)
	}
}
