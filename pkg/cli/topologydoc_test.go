// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestConfigMapRoundTrip: -f reads the ConfigMap that export writes, and finds the same machine.
func TestConfigMapRoundTrip(t *testing.T) {
	for _, of := range []string{
		"--machine dgx1-v100", "--machine hgx-a100-8", "--machine gb200-tray", "--machine mi250x-8",
		"-f testdata/degraded.yaml", "-f testdata/dgx1v.txt --numactl testdata/numactl.txt",
	} {
		t.Run(of, func(t *testing.T) {
			ask := func(line string) string { return mustRun(t, "", strings.Fields(line)...) }
			file := filepath.Join(t.TempDir(), "configmap.yaml")
			if err := os.WriteFile(file, []byte(ask("export --format configmap --name node-a "+of)), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, question := range []string{
				"export --format configmap --name node-a ", "matrix ", "matrix --show latency ", "matrix --show pcie ", "pick -n 2 -o json ",
				"affinity --gpus 1 --cpus 2 -o json ",
			} {
				if diff := cmp.Diff(ask(question+of), ask(question+"-f "+file)); diff != "" {
					t.Errorf("%s (-of the machine,+of its ConfigMap)\n%s", question, diff)
				}
			}
		})
	}
}

// TestConfigMapErrors: a ConfigMap that is no graph is refused where it is wrong.
func TestConfigMapErrors(t *testing.T) {
	whole := mustRun(t, "", "export", "--machine", "a100-pcie-4-bridged", "--format", "configmap")
	tests := map[string]struct {
		old, new string
		want     string
	}{
		"of something else":         {`topology.json: |`, `other.json: |`, "has no entry topology.json"},
		"a key that nobody writes":  {`"matrix": [`, `"matrices": [`, `unknown field "matrices"`},
		"a class that nobody knows": {`"SYS"`, `"FAR"`, `unknown link class "FAR"`},
		"a GPU twice":               {`"index": 1,`, `"index": 0,`, "0 is negative or there twice"},
		"a number out of range":     {`"index": 1,`, `"index": 4294967296,`, "index 4294967296"},
		"CPUs that are no list":     {`"cpus": "`, `"cpus": "x`, "is not a CPU number"},
		"one direction of a pair":   {`"NV12"`, `"NV4"`, "the two directions differ"},
		"a second object":           {"\n    }\n", "\n    }\n    {}\n", "nothing behind it"},
		"a NIC on no node":          {`"numa": [`, `"nics": [{"name": "mlx5_9", "numaNode": -2}], "numa": [`, "numaNode -2: want -1 to 1023"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(whole, tc.old) {
				t.Fatalf("%s is not in\n%s", tc.old, whole)
			}
			_, err := run(t, strings.Replace(whole, tc.old, tc.new, 1), "matrix", "-f", "-")
			if ExitCode(err) != ExitInput || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("exit code %d, %v; want %d and %q", ExitCode(err), err, ExitInput, tc.want)
			}
		})
	}
}

// TestConfigMapOfBefore: a ConfigMap without the keys that were added later is read.
func TestConfigMapOfBefore(t *testing.T) {
	const before = `
apiVersion: v1
kind: ConfigMap
metadata: {name: gpu-topology-node-a}
data:
  topology.json: |
    {"node":"node-a",
     "gpus":[{"index":0,"uuid":"GPU-a","numaNode":0},{"index":1,"uuid":"GPU-b","numaNode":0},{"index":2,"uuid":"GPU-c","numaNode":0}],
     "matrix":[["X","NV4","SYS"],["NV4","X","SYS"],["SYS","SYS","X"]],
     "bandwidthGBps":[[0,100,12],[100,0,12],[12,12,0]],
     "numa":[{"id":0,"cpus":"0-7"}],
     "gpu_count":3,"numa_nodes":[],"connections":[]}
`
	if got := mustRun(t, before, "pick", "-n", "2", "-f", "-"); !strings.Contains(got, "Weakest link    NV4, 100 GB/s\n") {
		t.Errorf("picked\n%s", got)
	}
}
