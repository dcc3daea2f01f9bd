// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

// requiredLabels are what the product was asked to write on a node of eight A100
// behind NVSwitches, four on each of two NUMA nodes.
var requiredLabels = map[string]string{
	"accelerator": "nvidia-a100",
	"gpu-count":   "8",
	"topology.kubernetes.io/gpu-interconnect": "nvswitch",
	"topology.kubernetes.io/numa-nodes":       "2",
	"topology.kubernetes.io/gpus-per-numa":    "4",
	"topology.kubernetes.io/single-numa-4gpu": "true",
	"topology.kubernetes.io/single-numa-8gpu": "false",
}

// TestRequiredNodeMarks: the node is marked as required. It compares labels and annotation of such
// a node field by field, as an exporter writes them that is told nothing but the node's name.
func TestRequiredNodeMarks(t *testing.T) {
	m, err := machine.Lookup("hgx-a100-8")
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.GraphFor("n1")
	if err != nil {
		t.Fatal(err)
	}
	r := newTestEnv(t, Config{})
	r.src.graph = g
	r.publish(t)
	got := map[string]string{}
	for k := range requiredLabels {
		if v, ok := r.api.labels()[k]; ok {
			got[k] = v
		}
	}
	if diff := cmp.Diff(requiredLabels, got); diff != "" {
		t.Errorf("labels (-required,+got):\n%s", diff)
	}

	type gpu struct {
		ID   int    `json:"id"`
		NUMA int    `json:"numa"`
		PCIe string `json:"pcie"`
	}
	type link struct {
		From      int     `json:"from"`
		To        int     `json:"to"`
		Bandwidth float64 `json:"bandwidth_gbps"`
	}
	var topology struct {
		GPUs    []gpu  `json:"gpus"`
		NVLinks []link `json:"nvlinks"`
	}
	want := topology
	for i, at := range []string{
		"0000:07:00.0", "0000:0a:00.0", "0000:45:00.0", "0000:4b:00.0", "0000:84:00.0", "0000:8a:00.0", "0000:c0:00.0", "0000:c6:00.0",
	} {
		want.GPUs = append(want.GPUs, gpu{ID: i, NUMA: i / 4, PCIe: at})
		for j := i + 1; j < 8; j++ {
			want.NVLinks = append(want.NVLinks, link{From: i, To: j, Bandwidth: 600})
		}
	}
	d := json.NewDecoder(strings.NewReader(r.api.annotations()["topology.kubernetes.io/gpu-topology"]))
	d.DisallowUnknownFields()
	if err := d.Decode(&topology); err != nil {
		t.Fatalf("the annotation: %v", err)
	}
	if diff := cmp.Diff(want, topology); diff != "" {
		t.Errorf("annotation (-required,+got):\n%s", diff)
	}
}
