// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
)

// TestRequiredConfigMapKeys: the ConfigMap has the required keys. It compares what the product was
// asked to write in a ConfigMap with what it writes of such a machine: eight A100 behind
// NVSwitches, four on each of two NUMA nodes.
func TestRequiredConfigMapKeys(t *testing.T) {
	type numaNode struct {
		ID   int   `json:"node_id"`
		GPUs []int `json:"gpus"`
		CPUs []int `json:"cpus"`
	}
	type connection struct {
		From      int     `json:"from"`
		To        int     `json:"to"`
		Type      string  `json:"type"`
		Bandwidth float64 `json:"bandwidth_gbps"`
	}
	type document struct {
		GPUCount    int          `json:"gpu_count"`
		NUMANodes   []numaNode   `json:"numa_nodes"`
		Connections []connection `json:"connections"`
	}
	numbers := func(from, to int) (out []int) {
		for i := from; i <= to; i++ {
			out = append(out, i)
		}
		return out
	}
	want := document{GPUCount: 8, NUMANodes: []numaNode{
		{ID: 0, GPUs: numbers(0, 3), CPUs: append(numbers(0, 31), numbers(64, 95)...)},
		{ID: 1, GPUs: numbers(4, 7), CPUs: append(numbers(32, 63), numbers(96, 127)...)},
	}}
	for i := range 8 {
		for j := i + 1; j < 8; j++ {
			want.Connections = append(want.Connections, connection{i, j, "NVSwitch", 600})
		}
	}
	var cm corev1.ConfigMap
	if err := yaml.Unmarshal([]byte(mustRun(t, "", "export", "--machine", "hgx-a100-8", "--format", "configmap")), &cm); err != nil {
		t.Fatal(err)
	}
	if cm.APIVersion != "v1" || cm.Kind != "ConfigMap" || len(cm.Data) != 1 {
		t.Errorf("%s %s with %d entries", cm.APIVersion, cm.Kind, len(cm.Data))
	}
	var got document
	if err := json.Unmarshal([]byte(cm.Data["topology.json"]), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("topology.json (-required,+got):\n%s", diff)
	}
}
