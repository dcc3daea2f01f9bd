// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	sampleFabric = `node,rack
node-0-0,rack-0
node-0-1,rack-0
node-0-2,rack-0
node-0-3,rack-0
node-1-0,rack-1
node-1-1,rack-1
node-1-2,rack-1
node-1-3,rack-1
`
	threeAndThree = "node,free\nnode-0-3,\nnode-1-3,\n"
)

// fabricFiles writes the requirement's sample cluster of DGX H100, and its free GPUs.
func fabricFiles(t *testing.T, fabric, free string) []string {
	t.Helper()
	var nodes strings.Builder
	nodes.WriteString("node,machine\n")
	for line := range strings.Lines(fabric) {
		if name, _, _ := strings.Cut(line, ","); name != "node" {
			nodes.WriteString(strings.TrimSpace(name) + ",dgx-h100\n")
		}
	}
	dir := t.TempDir()
	args := []string{"fabric", "place"}
	for flag, text := range map[string]string{"fabric": fabric, "nodes": nodes.String(), "free": free} {
		file := filepath.Join(dir, flag+".csv")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--"+flag, file)
	}
	return args
}

func TestFabricPlace(t *testing.T) {
	const whole = "[0,1,2,3,4,5,6,7]"
	cases := map[string]struct {
		fabric, free string // the sample, all free
		flags        string
		want         string
		wantCode     int
	}{
		"an empty cluster": {
			flags: "--pods 4 --gpus 8 -o json",
			want: `{"placed":true,"level":"rack","domains":{"rack":["rack-0"]},"pods":[{"rank":0,"node":"node-0-0","gpus":` + whole +
				`},{"rank":1,"node":"node-0-1","gpus":` + whole + `},{"rank":2,"node":"node-0-2","gpus":` + whole + `},{"rank":3,"node":"node-0-3","gpus":` + whole +
				`}],"quality":"optimal (same rack)","estimateMs":{"ring":1.46484375,"tree":3.90625,"other":0.4,"hierarchical":2.488888888888889},"crossings":0,"exact":true,"model":"NVIDIA-H100-80GB-HBM3","chosen":"32 × NVIDIA-H100-80GB-HBM3 in rack-0, 2.49 ms"}`,
		},
		"three and one": {
			free: threeAndThree, flags: "--pods 4 --gpus 8 -o json",
			want: `{"placed":true,"level":"cluster","domains":{"rack":["rack-0","rack-1"]},"pods":[{"rank":0,"node":"node-0-0","gpus":` + whole +
				`},{"rank":1,"node":"node-0-1","gpus":` + whole + `},{"rank":2,"node":"node-0-2","gpus":` + whole + `},{"rank":3,"node":"node-1-0","gpus":` + whole +
				`}],"quality":"acceptable (adjacent racks)","estimateMs":{"ring":2.9296875,"tree":5.208333333333333,"other":1.2,"hierarchical":6.388888888888888},"crossings":2,"exact":true,"model":"NVIDIA-H100-80GB-HBM3","chosen":"32 × NVIDIA-H100-80GB-HBM3 in cluster, 6.39 ms"}`,
		},
		"no rack has room": {
			free: threeAndThree, flags: "--pods 4 --gpus 8 --required-topology rack -o json",
			want: `{"placed":false,"reason":"rack: 3 of 4"}`, wantCode: ExitNoAnswer,
		},
		"and as text nothing is printed": {
			free: threeAndThree, flags: "--pods 4 --gpus 8 --required-topology rack", wantCode: ExitNoAnswer,
		},
		"a node takes two pods": {
			free: "node,free\nnode-0-0,0 1 4 5\n", flags: "--pods 2 --gpus 2",
			want: `RANK  NODE      GPUS
0     node-0-0  0,1
1     node-0-0  4,5

Level       node
Domains     rack: rack-0
Quality     optimal
Chosen      4 × NVIDIA-H100-80GB-HBM3 in node-0-0, 0.333 ms
All-reduce  0.333 ms; between nodes by ring 0.000, tree 0.000, other 0.000
Crossings   0`,
		},
		"spread, on NUMA nodes": {
			free:  "node,free\nnode-0-0,0 1 4 5\nnode-0-1,0 1 4 5\nnode-0-2,0 1 4 5\n",
			flags: "--pods 2 --gpus 4 --policy single-numa-node --placement-strategy compute-heavy",
			want: `RANK  NODE      GPUS
0     node-0-3  0,1,2,3
1     node-1-0  0,1,2,3

Level       cluster
Domains     rack: rack-0, rack-1
Quality     acceptable (adjacent racks)
Chosen      8 × NVIDIA-H100-80GB-HBM3 in cluster, 3.33 ms
All-reduce  3.333 ms; between nodes by ring 1.953, tree 3.906, other 1.000
Crossings   2`,
		},
		"rack names that repeat": {
			fabric: "node,spine,rack\na,s0,r0\nb,s1,r0\nc,,\n", flags: "--pods 3 --gpus 8",
			want: `RANK  NODE  GPUS
0     a     0,1,2,3,4,5,6,7
1     b     0,1,2,3,4,5,6,7
2     c     0,1,2,3,4,5,6,7

Level       cluster
Domains     spine: s0, s1, c
Domains     rack: s0/r0, s1/r0, c
Quality     suboptimal (distributed)
Chosen      24 × NVIDIA-H100-80GB-HBM3 in cluster, 5.06 ms
All-reduce  5.056 ms; between nodes by ring 2.604, tree 7.812, other 1.500
Crossings   3`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.fabric == "" {
				tc.fabric = sampleFabric
			}
			if tc.free == "" {
				tc.free = "node,free\n"
			}
			got, err := run(t, "", append(fabricFiles(t, tc.fabric, tc.free), strings.Fields(tc.flags+" --size 100MB")...)...)
			if ExitCode(err) != tc.wantCode {
				t.Fatalf("exit code %d (%v), want %d", ExitCode(err), err, tc.wantCode)
			}
			if d := cmp.Diff(tc.want, strings.TrimSpace(got)); d != "" {
				t.Errorf("(-want, +got):\n%s", d)
			}
			if err != nil && !strings.Contains(err.Error(), "rack: 3 of 4") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestFabricPlaceModels: a gang gets machines of one model, and of two equally near places the one with
// the faster all-reduce. The files are fleets of empty HGX H200 and of machines with 8 L40S: one rack with
// both in turn, and a rack of each.
func TestFabricPlaceModels(t *testing.T) {
	cases := map[string]struct {
		files, flags string
		wantNodes    []string
		wantMs       float64 // hierarchical, rounded to 0.1
		wantReason   string
	}{
		"one rack: the H200": {
			files: "one-rack", flags: "--pods 8 --gpus 8",
			wantNodes: []string{"n01", "n03", "n05", "n07", "n09", "n11", "n13", "n15"}, wantMs: 3.5,
		},
		"one rack, of any model: the fastest": {
			files: "one-rack", flags: "--pods 8 --gpus 8 --allow-mixed-models",
			wantNodes: []string{"n01", "n03", "n05", "n07", "n09", "n11", "n13", "n15"}, wantMs: 3.5,
		},
		"two racks: the H200": {
			files: "two-racks", flags: "--pods 4 --gpus 8", wantNodes: []string{"b00", "b01", "b02", "b03"}, wantMs: 2.5,
		},
		"more than there is of a model": {
			files: "two-racks", flags: "--pods 5 --gpus 8",
			wantReason: "cluster: 4 of 5 on NVIDIA-H200, 4 on NVIDIA-L40S; allow-mixed-models would fit",
		},
		"more than there is in a rack of any model": {
			files: "two-racks", flags: "--pods 5 --gpus 8 --required-topology rack", wantReason: "rack: 4 of 5 on NVIDIA-H200, 4 on NVIDIA-L40S",
		},
		"more than there is": {
			files: "two-racks", flags: "--pods 9 --gpus 8 --allow-mixed-models", wantReason: "cluster: 8 of 9",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", "models", tc.files)
			args := append([]string{"fabric", "place", "--fabric", file + "-fabric.csv", "--nodes", file + "-nodes.csv", "-o", "json", "--size", "100MB"}, strings.Fields(tc.flags)...)
			text, err := run(t, "", args...)
			var got struct {
				Pods       []placedPod
				EstimateMs gangEstimate
				Reason     string
			}
			if jsonErr := json.Unmarshal([]byte(text), &got); jsonErr != nil {
				t.Fatalf("%v: %v\n%s", err, jsonErr, text)
			}
			var nodes []string
			for _, p := range got.Pods {
				nodes = append(nodes, p.Node)
			}
			ms := math.Round(10*got.EstimateMs.Hierarchical) / 10
			if d := cmp.Diff([]any{tc.wantNodes, tc.wantMs, tc.wantReason}, []any{nodes, ms, got.Reason}); d != "" {
				t.Errorf("nodes, ms, reason (-want, +got):\n%s", d)
			}
		})
	}
}

// TestFabricPlaceErrors: errors of "fabric place" report the fault.
func TestFabricPlaceErrors(t *testing.T) {
	cases := map[string]struct {
		fabric, nodes, free string
		flags               string
		code                int
		want                []string
	}{
		"no pods":                 {flags: "--gpus 1", code: ExitUsage, want: []string{"--pods"}},
		"no GPUs":                 {flags: "--pods 1", code: ExitUsage, want: []string{"--gpus"}},
		"an unknown strategy":     {flags: "--pods 1 --gpus 1 --placement-strategy x", code: ExitUsage, want: []string{"--placement-strategy", `"x"`}},
		"an unknown level":        {flags: "--pods 1 --gpus 1 --required-topology row", code: ExitUsage, want: []string{"required level", `"row"`}},
		"segments that leave one": {flags: "--pods 3 --gpus 1 --segment-size 2", code: ExitUsage, want: []string{"segments of 2 do not divide 3 members"}},
		"two levels of segments": {
			flags: "--pods 2 --gpus 1 --segment-size 2 --required-segment-topology rack --preferred-segment-topology rack", code: ExitUsage,
			want: []string{"cannot both be given"},
		},
		"a level of no segments": {flags: "--pods 2 --gpus 1 --required-segment-topology rack", code: ExitUsage, want: []string{"--segment-size"}},
		"a size that is none":    {flags: "--pods 1 --gpus 1 --size x", code: ExitUsage, want: []string{"--size"}},
		"an unknown policy":      {flags: "--pods 1 --gpus 1 --policy x", code: ExitUsage, want: []string{"--policy"}},
		"a fabric that is no tree": {
			fabric: "node,spine,rack\na,,r0\n", flags: "--pods 1 --gpus 1", code: ExitInput,
			want: []string{"fabric.csv", `node "a"`, `level "spine"`, `rack "r0"`},
		},
		"a fabric without a header": {fabric: "a,r0\n", flags: "--pods 1 --gpus 1", code: ExitInput, want: []string{"fabric.csv", "line 1"}},
		"an unknown machine": {
			nodes: "node,machine\na,toaster\n", flags: "--pods 1 --gpus 1", code: ExitInput, want: []string{"nodes.csv", "line 2", `"toaster"`, "dgx-h100"},
		},
		"a node with two machines": {
			nodes: "node,machine\na,dgx-h100\na,dgx-h100\n", flags: "--pods 1 --gpus 1", code: ExitInput, want: []string{"nodes.csv", "line 3", `"a" is there twice`},
		},
		"free GPUs of nobody": {free: "node,free\nz,0\n", flags: "--pods 1 --gpus 1", code: ExitInput, want: []string{"free.csv", "line 2", `"z"`}},
		"a GPU that is not there": {
			free: "node,free\nnode-0-0,0 8\n", flags: "--pods 1 --gpus 1", code: ExitInput, want: []string{"free.csv", "line 2", `"node-0-0" has no GPU "8"`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.fabric == "" {
				tc.fabric = sampleFabric
			}
			if tc.free == "" {
				tc.free = "node,free\n"
			}
			args := fabricFiles(t, tc.fabric, tc.free)
			for i, a := range args {
				if tc.nodes != "" && a == "--nodes" {
					if err := os.WriteFile(args[i+1], []byte(tc.nodes), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			_, err := run(t, "", append(args, strings.Fields(tc.flags)...)...)
			if ExitCode(err) != tc.code {
				t.Fatalf("exit code %d (%v), want %d", ExitCode(err), err, tc.code)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v: want %s in it", err, w)
				}
			}
		})
	}
}
