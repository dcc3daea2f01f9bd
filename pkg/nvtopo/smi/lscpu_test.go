// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

func TestParseCores(t *testing.T) {
	pairs := Cores{Siblings: []nvtopo.CPUSet{{0, 2}, {1, 3}}}
	tests := map[string]struct {
		text string
		want Cores
	}{
		"lscpu": {
			text: "Architecture:            x86_64\nCPU family:              6\n  Thread(s) per core:    2\n  Core(s) per socket:    32\nNUMA node0 CPU(s):       0-31,64-95\n",
			want: Cores{PerCore: 2},
		},
		"lscpu -e": {
			text: "$ lscpu -e\nCPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ\n  0    0      0    0 0:0:0:0          yes 3500.0000\n  1    0      0    1 1:1:1:0          yes 3500.0000\n" +
				"  2    0      0    0 0:0:0:0          yes 3500.0000\n  3    0      0    1 1:1:1:0          yes 3500.0000\n$ \n",
			want: pairs,
		},
		"lscpu -p": {
			text: "# The following is the parsable format, which can be fed to other\n# programs. Each different item in every column has an unique ID\n# starting usually from zero.\n" +
				"# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n0,0,0,0,,0,0,0,0\n1,1,0,0,,1,1,1,0\n2,0,0,0,,0,0,0,0\n3,1,0,0,,1,1,1,0\n",
			want: pairs,
		},
		"cores that are numbered anew on each socket": {
			text: "CPU SOCKET CORE\n0 0 0\n1 1 0\n2 0 0\n3 1 0\n", want: pairs,
		},
		"CPUs that are offline": {
			text: "CPU SOCKET CORE ONLINE\n0 0 0 yes\n1 0 1 yes\n2 0 0 yes\n3 0 1 yes\n4 - - no\n5 0 1 no\n", want: pairs,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseCores(strings.NewReader(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("cores (-want,+got)\n%s", diff)
			}
		})
	}
}

func TestParseCoresErrors(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":                 {"", "line 1, column 1: no cores found"},
		"another tool's text":     {twoNodes, "no cores found"},
		"a head without rows":     {"CPU CORE\n", "no CPU is online"},
		"a CPU twice":             {"CPU CORE\n0 0\n0 1\n", `line 3, column 1: CPU "0" is out of range, or appears twice`},
		"a CPU that is no number": {"CPU CORE\n0-3 0\n", "no CPU is online"},
		"a CPU out of range":      {"CPU CORE\n99999 0\n", `line 2, column 1: CPU "99999" is out of range`},
		"nine threads of a core":  {"CPU CORE\n0 0\n1 0\n2 0\n3 0\n4 0\n5 0\n6 0\n7 0\n8 0\n", "line 10, column 1: core \"0\" has more than 8 threads"},
		"no thread":               {"Thread(s) per core: 0\n", "0 threads per core: want 1 to 8"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ParseCores(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

// TestGraphCores: the NUMA nodes of a text have the cores given by lscpu or by a number.
func TestGraphCores(t *testing.T) {
	const apart = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-1,4-5\t0\nGPU1\tSYS\t X \t2-3,6-7\t1\n"
	const whole = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPHB\t0-3\t0\nGPU1\tPHB\t X \t0-3\t0\n"
	tests := map[string]struct {
		text    string
		cores   Cores
		want    [][]nvtopo.CPUSet // by NUMA node
		wantErr string
	}{
		"nobody tells":                    {text: apart, want: [][]nvtopo.CPUSet{nil, nil}},
		"two of each core, in runs apart": {text: apart, cores: Cores{PerCore: 2}, want: [][]nvtopo.CPUSet{{{0, 4}, {1, 5}}, {{2, 6}, {3, 7}}}},
		"one of each core":                {text: whole, cores: Cores{PerCore: 1}, want: [][]nvtopo.CPUSet{{{0}, {1}, {2}, {3}}}},
		"core by core":                    {text: whole, cores: Cores{Siblings: []nvtopo.CPUSet{{0, 1}, {2, 3}, {4, 5}}}, want: [][]nvtopo.CPUSet{{{0, 1}, {2, 3}}}},
		"two of each core, in one run":    {text: whole, cores: Cores{PerCore: 2}, wantErr: "NUMA node 0 has the CPUs 0-3: which 2 of them are one core is not told by that number; lscpu -e tells it"},
		"more threads than CPUs":          {text: apart, cores: Cores{PerCore: 8}, wantErr: "NUMA node 0 has the CPUs 0-1,4-5"},
		"lscpu of another machine":        {text: apart, cores: Cores{Siblings: []nvtopo.CPUSet{{0, 4}, {1, 5}}}, wantErr: "NUMA node 1 has the CPUs 2-3,6-7, which lscpu does not list"},
		"no CPUs are known":               {text: "\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU1\tNV1\t X \n", cores: Cores{PerCore: 2}, wantErr: "numactl --hardware tells it"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g, err := Parse(strings.NewReader(tc.text), Options{Cores: tc.cores})
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("%v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got [][]nvtopo.CPUSet
			for i := range g.NUMANodes {
				got = append(got, g.NUMANodes[i].Siblings)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("cores (-want,+got)\n%s", diff)
			}
		})
	}
}
