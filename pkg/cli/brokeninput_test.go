// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBrokenInputs: an error about a file has the file, the place in it and the expected content.
func TestBrokenInputs(t *testing.T) {
	const (
		matrix = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV2\t0-3\t0\nGPU1\tNV2\t X \t0-3\t0\n"
		fabric = "node,rack\na,r1\n"
		nodes  = "node,machine\na,dgx-h100\n"
		object = "apiVersion: topology.nvtopo.dev/v1alpha1\nkind: NodeGPUTopology\nmetadata: {name: a}\nspec: "
		levels = "apiVersion: topology.nvtopo.dev/v1alpha1\nkind: ClusterTopology\nmetadata: {name: default}\nspec:\n  levels:\n  - {name: rack, nodeLabel: rack, latencyMicros: 5, bandwidthGBps: "
	)
	place := []string{"fabric", "place", "--fabric", "@fabric", "--nodes", "@nodes", "--pods", "1", "--gpus", "1"}
	for name, tc := range map[string]struct {
		broken string // is in the file named broken
		args   []string
		want   string
	}{
		"a trace with a cell too few":          {"arrival_s,duration_s,gpus\n0,10\n", []string{"simulate", "--nodes", "@machines", "--trace", "@broken"}, "broken: line 2: 2 cells, want 3: arrival_s,duration_s,gpus"},
		"a trace with a quote":                 {"arrival_s,duration_s,gpus\n0,10,1\"2\n", []string{"simulate", "--nodes", "@machines", "--trace", "@broken"}, `broken: line 2, column 7: bare " in non-quoted-field`},
		"a trace with words":                   {"arrival_s,duration_s,gpus\n0,1 h,1\n", []string{"simulate", "--nodes", "@machines", "--trace", "@broken"}, `broken: line 2, column 3: duration_s "1 h": want seconds from 0 to 1e+10`},
		"machines without a number":            {"dgx-h100 two\n", []string{"simulate", "--nodes", "@broken", "--trace", "@fabric"}, `broken: line 1: count "two", want a whole number from 1`},
		"nodes of another type":                {object + "{gpus: [{index: a}]}\n", []string{"simulate", "--nodes", "@broken", "--trace", "@fabric"}, "broken: spec.gpus[0].index: want a whole number, not a text"},
		"a graph with a field of another type": {object + "{gpus: [{index: a}]}\n", []string{"matrix", "-f", "@broken"}, "broken: spec.gpus[0].index: want a whole number, not a text"},
		"a graph with an unknown field":        {object + "{linkKinds: [{bandwidthMB: 1}]}\n", []string{"matrix", "-f", "@broken"}, "broken: spec.linkKinds[0].bandwidthMB: there is no such field"},
		"a graph with a list of its links":     {object + "{links: [{a: 0, b: 1, class: SYS}]}\n", []string{"matrix", "-f", "@broken"}, "broken: spec.links: there is no such field"},
		"a graph with a unit":                  {object + "{linkKinds: [{bandwidth: 100GB/s}]}\n", []string{"matrix", "-f", "@broken"}, `broken: spec.linkKinds[0].bandwidth: "100GB/s": want a quantity such as 2, 0.5 or 100G, in bytes a second: 100G`},
		"a matrix with a link that is none":    {strings.Replace(matrix, "NV2\t0-3\t0\n", "NVX\t0-3\t0\n", 1), []string{"matrix", "-f", "@broken"}, `broken: line 2, column 10: row GPU0, column GPU1: want NV#, PIX, PXB, PHB, NODE or SYS, found "NVX"`},
		"a matrix with a cell too many":        {"\tGPU0\tGPU1\nGPU0\t X \tNV2\t0-3\nGPU1\tNV2\t X \n", []string{"matrix", "-f", "@broken"}, `broken: line 2, column 14: want nothing behind the last column of the header, found "0-3"`},
		"numactl's text with words":            {"available: 1 nodes (0)\nnode 0 cpus: 0 1 x\nnode 0 size: 3 MB\n", []string{"matrix", "-f", "@matrix", "--numactl", "@broken"}, `broken: line 2, column 1: CPUs of node 0: CPU list "0,1,x": "x" is not a CPU number`},
		"lscpu's text without cores":           {"CPU\n0\n", []string{"affinity", "--gpus", "0", "-f", "@matrix", "--lscpu", "@broken"}, "broken: line 2, column 2: no cores found: want the output of lscpu, lscpu -e or lscpu -p"},
		"a ClusterTopology with bytes":         {levels + "100GB/s}\n", append(place, "--topology", "@broken"), `broken: spec.levels[0].bandwidthGBps: "100GB/s": want a number of GB/s without a unit: write 100`},
		"a ClusterTopology with bits":          {levels + "800Gb/s}\n", append(place, "--topology", "@broken"), `broken: spec.levels[0].bandwidthGBps: "800Gb/s": want a number of GB/s without a unit: write 100`},
		"a ClusterTopology with a list":        {levels + "[1]}\n", append(place, "--topology", "@broken"), "broken: spec.levels[0].bandwidthGBps: want a whole number, not a list"},
		"a ClusterTopology with another field": {levels + "1, speed: 3}\n", append(place, "--topology", "@broken"), "broken: spec.levels[0].speed: there is no such field"},
		"a fabric with a cell too few":         {"node,rack\na\n", []string{"fabric", "place", "--fabric", "@broken", "--nodes", "@nodes", "--pods", "1", "--gpus", "1"}, "broken: line 2: 1 cells, want 2: node,rack"},
		"a flag that wants a number":           {"", []string{"pick", "-n", "two", "--machine", "dgx-h100"}, `--count "two": want a whole number` + "\nSee 'nvtopo pick --help'"},
		"a flag that wants numbers":            {"", []string{"simulate", "--load", "x"}, `--load "x": want a number` + "\nSee 'nvtopo simulate --help'"},
		"a pod with a field of another type":   {"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: 3}\n", []string{"what-if", "-f", "@broken", "--snapshot", "@fabric"}, "broken: document 1: Pod p: spec.containers: want a list, not a number"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"broken": tc.broken, "matrix": matrix, "fabric": fabric, "nodes": nodes, "machines": "dgx-h100 2\n"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			args := make([]string, len(tc.args))
			for i, arg := range tc.args {
				if file, ok := strings.CutPrefix(arg, "@"); ok {
					arg = filepath.Join(dir, file)
				}
				args[i] = arg
			}
			_, err := run(t, "", args...)
			if err == nil {
				t.Fatalf("no error, want %q", tc.want)
			}
			if diff := cmp.Diff(tc.want, strings.TrimPrefix(err.Error(), dir+string(filepath.Separator))); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}
