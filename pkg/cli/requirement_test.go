// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
)

// TestRequiredConfigMapKeys: the ConfigMap has the required keys. The test compares the required content
// of a ConfigMap with the output for such a machine: eight A100 behind NVSwitches, four on each of two
// NUMA nodes.
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

// TestRequiredForms: amounts, names and commands are read as the required examples write them.
func TestRequiredForms(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string // parts of the answer
	}{
		"amounts as Docker writes them": {
			args: strings.Fields("generate docker --machine hgx-a100-8 --gpus 0 --memory 32g --memory-reservation 28g --shm-size 16g"),
			want: []string{"--memory=32g", "--memory-reservation=28g", "--shm-size=16g"},
		},
		"mebibytes as Docker writes them": {
			args: strings.Fields("generate docker --machine hgx-a100-8 --gpus 0 --memory 32768m --shm-size 512m"),
			want: []string{"--memory=32g", "--shm-size=512m"},
		},
		"a pod's memory as Docker writes it": {
			args: strings.Fields("generate pod --gpus 1 --memory 64g --shm-size 16g"),
			want: []string{"memory: 64Gi", "sizeLimit: 16Gi"},
		},
		"memory for the system as Docker writes it": {
			args: strings.Fields("generate kubelet-config --machine hgx-a100-8 --kube-reserved 4g"),
			want: []string{"memory: 4Gi"},
		},
		"a message of lower case": {
			args: strings.Fields("estimate -n 8 --bandwidth 600 --latency 0 --size 16g -o json"),
			want: []string{`"sizeBytes":16000000000`},
		},
		"an operation with an underscore": {
			args: strings.Fields("estimate -n 8 --bandwidth 600 --latency 0 --collective all_reduce --algorithm ring"),
			want: []string{"all-reduce  ring "},
		},
		"an algorithm with an underscore": {
			args: strings.Fields("estimate -n 8 --bandwidth 600 --latency 0 --collective reduce_scatter --algorithm recursive_halving"),
			want: []string{"reduce-scatter  recursive-halving "},
		},
		"a command for numactl": {
			args: strings.Fields("affinity --machine hgx-a100-8 --gpus 0 --cpus 8 -- python train.py --gpu 0"),
			want: []string{"numactl --physcpubind=0-3,64-67 --membind=0 -- python train.py --gpu 0\n", "IMAGE python train.py --gpu 0\n"},
		},
		"a command for Docker": {
			args: append(strings.Fields("generate docker --machine hgx-a100-8 --gpus 0 --image my-training-image:latest -- python train.py --name"), "a run"),
			want: []string{"  my-training-image:latest python train.py --name 'a run'\n"},
		},
		"a command for a pod": {
			args: strings.Fields("generate pod --gpus 1 -- torchrun --nproc_per_node=1 train.py"),
			want: []string{"- torchrun\n", "- --nproc_per_node=1\n", "- train.py\n"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := mustRun(t, "", tc.args...)
			for _, part := range tc.want {
				if !strings.Contains(got, part) {
					t.Errorf("%q is not in\n%s", part, got)
				}
			}
		})
	}
}

// TestCommandAfterDashes: words before "--", or beside --command, are no command.
func TestCommandAfterDashes(t *testing.T) {
	for line, want := range map[string]string{
		"affinity --machine hgx-a100-8 --gpus 0 python":                                     `"python": affinity takes flags, and a command after "--"`,
		"affinity --machine hgx-a100-8 --gpus 0 python -- train.py":                         `"python": affinity takes flags, and a command after "--"`,
		"generate docker --machine hgx-a100-8 --gpus 0 --command python -- python train.py": `--command cannot be used with a command after "--"`,
	} {
		if _, err := run(t, "", strings.Fields(line)...); ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}
