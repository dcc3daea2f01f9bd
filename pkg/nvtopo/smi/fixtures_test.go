// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/fixtures"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// captures is the expected result of each capture of a real machine: the NUMA node of each GPU, or for a
// truncated one the first row that it lacks.
var captures = map[string]struct {
	numa        []int
	wantMissing string
}{
	"2gpu-4nic-phb-per-socket":                  {numa: []int{0, 1}},
	"2gpu-nv3-of-4-bad-bridge":                  {numa: []int{-1, -1}},
	"3gpu-1plus2-node--topo-mp":                 {numa: []int{0, 1, 1}},
	"3gpu-8g-threadripper-numa-0-1":             {numa: []int{-1, -1, -1}},
	"4gpu-soc-mlx4":                             {numa: []int{0, 0, 1, 1}},
	"5gpu-all-phb":                              {numa: []int{0, 0, 0, 0, 0}},
	"8gpu-all-sys-2numa":                        {numa: []int{0, 0, 0, 0, 1, 1, 1, 1}},
	"a100-pcie-6gpu-bridge-across-sockets":      {numa: []int{0, 0, 0, 1, 1, 1}},
	"a100-pcie40-2gpu-no-bridge":                {numa: []int{1, 1}},
	"a6000-3gpu-nv4-plus-single":                {numa: []int{0, 0, 0}},
	"aws-p4d-8xa100":                            {numa: []int{0, 0, 0, 0, 1, 1, 1, 1}},
	"azure-nc96ads-4xa100-pcie-nv12-pairs":      {numa: []int{0, 1, 2, 3}},
	"azure-ndv2-8xv100-vm":                      {numa: []int{0, 0, 0, 0, 0, 0, 0, 0}},
	"cineca-leonardo-4xa100":                    {numa: []int{-1, -1, -1, -1}},
	"dell-r760xa-pod-1gpu-10nic--topo-mp":       {numa: []int{0}},
	"dgx-a100":                                  {numa: []int{3, 3, 1, 1, 7, 7, 5, 5}},
	"dgx-a100-2of8-slurm.TRUNCATED":             {wantMissing: "NIC3"},
	"dgx-h100":                                  {numa: []int{0, 0, 0, 0, 1, 1, 1, 1}},
	"dgx-spark-gb10":                            {numa: []int{0}},
	"dgx1-p100":                                 {numa: []int{-1, -1, -1, -1, -1, -1, -1, -1}},
	"dgx1-v100":                                 {numa: []int{0, 0, 0, 0, 1, 1, 1, 1}},
	"dgx2-16xv100-sxm3.TRUNCATED":               {wantMissing: "GPU4"},
	"gb200-4gpu-34numa":                         {numa: []int{-1, -1, -1, -1}},
	"gb200-vm-opennebula":                       {numa: []int{0, 0, 1, 1}},
	"h100-4of8-slurm-empty-affinity":            {numa: []int{0, 1, 1, 1}},
	"h100-sxm-4gpu-nv6-cpuset":                  {numa: []int{3, 1, 7, 5}},
	"hgx-a100-8gpu-18vf-4rows.TRUNCATED":        {wantMissing: "GPU4"},
	"hgx-a100-8gpu-2nic":                        {numa: []int{0, 0, 0, 0, 1, 1, 1, 1}},
	"hgx-b200-8gpu-16nic":                       {numa: []int{0, 0, 0, 0, 1, 1, 1, 1}},
	"hgx-b200-8gpu-no-nic":                      {numa: []int{0, 0, 0, 0, 1, 1, 1, 1}},
	"hgx-h100-8gpu-nic-sys-same-numa.TRUNCATED": {wantMissing: "NIC3"},
	"hgx-h100-8gpu-vm-nic0-sys":                 {numa: []int{0, 0, 0, 0, 1, 1, 1, 1}},
	"hgx-h100-nics-on-even-gpus.TRUNCATED":      {wantMissing: "GPU7"},
	"hgx-h100-vm-reversed-nics.TRUNCATED":       {wantMissing: "NIC5"},
	"l40-4gpu-turin-node-sys":                   {numa: []int{0, 0, 1, 1}},
	"l40s-4gpu-pix-node":                        {numa: []int{0, 0, 0, 0}},
	"nersc-perlmutter-4xa100-nps4":              {numa: []int{3, 2, 1, 0}},
	"p40-8gpu-single-root":                      {numa: []int{0, 0, 0, 0, 0, 0, 0, 0}},
	"pcie-4gpu-pix-phb-one-socket":              {numa: []int{0, 0, 0, 0}},
	"pcie-5of8-gpus-container":                  {numa: []int{0, 0, 0, 0, 1}},
	"pcie-6gpu-pix-pairs":                       {numa: []int{0, 0, 0, 0, 1, 1}},
	"pcie-8gpu-pix-phb-sys":                     {numa: []int{-1, -1, -1, -1, -1, -1, -1, -1}},
	"perlmutter-like-4xa100-cgroup":             {numa: []int{-1, -1, -1, -1}},
	"princeton-della-4xa100-nv4":                {numa: []int{0, 0, 1, 1}},
	"rtx3090-2gpu-nv4":                          {numa: []int{0, 0}},
	"rtx4090-8gpu-all-sys":                      {numa: []int{0, 0, 0, 0, 1, 1, 1, 1}},
	"rtx5060ti-4gpu-phb":                        {numa: []int{0, 0, 0, 0}},
	"t4-4gpu-1plus3":                            {numa: []int{0, 1, 1, 1}},
	"threadripper-2gpu-sys-numa-na":             {numa: []int{-1, -1}},
	"v100-sxm2-32g-8gpu-node-nic":               {numa: []int{0, 0, 0, 0, 1, 1, 1, 1}},
}

// otherOutput reports whether a file holds the output of another command.
func otherOutput(slug string) bool {
	_, suffix, found := strings.Cut(slug, "--")
	return found && !strings.HasPrefix(suffix, "topo-mp")
}

func TestCaptures(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(filepath.Join(fixtures.Dir(t), "topo"), "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	seen := 0
	for _, file := range files {
		slug := strings.TrimSuffix(filepath.Base(file), ".txt")
		if otherOutput(slug) {
			continue
		}
		t.Run(slug, func(t *testing.T) {
			tc, ok := captures[slug]
			if !ok {
				t.Fatal("a capture that the table does not have")
			}
			seen++
			checkCapture(t, file, tc.numa, tc.wantMissing)
		})
	}
	if seen != len(captures) {
		t.Errorf("%d captures found, the table has %d", seen, len(captures))
	}
}

// checkCapture reads one capture, which is whole unless a row is missing.
func checkCapture(t *testing.T, file string, numa []int, missing string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Parse(strings.NewReader(string(text)), Options{})
	if missing != "" {
		var e *SyntaxError
		if !errors.As(err, &e) || !strings.Contains(e.Msg, "row "+missing+" is missing") {
			t.Fatalf("error %v, want row %s named as missing", err, missing)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(numa, numaOf(g)); d != "" {
		t.Errorf("NUMA nodes (-want +got):\n%s", d)
	}
	for i := range g.Len() {
		for j := range i {
			if g.Link(i, j) != g.Link(j, i) || g.Link(i, j).Class.String() == "" {
				t.Errorf("link of %d and %d: %+v and %+v", i, j, g.Link(i, j), g.Link(j, i))
			}
		}
	}
	checkPrefixes(t, string(text), g)
}

// checkPrefixes cuts a capture after every fifth byte: each piece is refused, or
// gives the whole graph's links.
func checkPrefixes(t *testing.T, text string, whole *nvtopo.Graph) {
	t.Helper()
	want := classes(whole)
	for end := 0; end < len(text); end += 5 {
		g, err := Parse(strings.NewReader(text[:end]), Options{})
		if err != nil {
			continue
		}
		if d := cmp.Diff(want, classes(g)); d != "" {
			t.Fatalf("the first %d bytes give other links (-whole +piece):\n%s", end, d)
		}
	}
}

func TestNUMACaptures(t *testing.T) {
	dir := filepath.Join(fixtures.Dir(t), "topo")
	tests := map[string]struct {
		wantNodes, wantCPUs, wantWithMemory int
		wantDistance                        int // from the first to the last node; 0 without distances
	}{
		"gh200-9node":                    {wantNodes: 9, wantCPUs: 72, wantWithMemory: 2, wantDistance: 80},
		"epyc7401-8node-memory-on-2":     {wantNodes: 8, wantCPUs: 96, wantWithMemory: 2},
		"dardel-epyc7742-nps4-distances": {wantNodes: 8, wantDistance: 32},
	}
	for slug, tc := range tests {
		t.Run(slug, func(t *testing.T) {
			f, err := os.Open(filepath.Join(dir, slug+"--numactl.txt"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			nodes, err := ParseNUMA(f)
			if err != nil {
				t.Fatal(err)
			}
			cpus, withMemory, distance := 0, 0, 0
			for _, n := range nodes {
				cpus += len(n.CPUs)
				if n.Memory > 0 {
					withMemory++
				}
			}
			if d := nodes[0].Distances; len(d) > 0 {
				distance = d[len(d)-1]
			}
			if len(nodes) != tc.wantNodes || cpus != tc.wantCPUs || withMemory != tc.wantWithMemory || distance != tc.wantDistance {
				t.Errorf("%d nodes, %d CPUs, %d with memory, distance %d; want %+v", len(nodes), cpus, withMemory, distance, tc)
			}
		})
	}
}
