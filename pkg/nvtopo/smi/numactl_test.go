// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

const twoNodes = `$ numactl --hardware
available: 2 nodes (0-1)
node 0 cpus: 0 1 4 5
node 0 size: 1024 MB
node 0 free: 512 MB
node 1 cpus: 2 3 6 7
node 1 size: 2048 MB
node 1 free: 2000 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
`

func TestParseNUMA(t *testing.T) {
	tests := map[string]struct {
		text string
		want []nvtopo.NUMANode
	}{
		"as printed": {
			text: twoNodes,
			want: []nvtopo.NUMANode{
				{ID: 0, CPUs: nvtopo.NewCPUSet(0, 1, 4, 5), Memory: 1 << 30, Distances: []int{10, 21}},
				{ID: 1, CPUs: nvtopo.NewCPUSet(2, 3, 6, 7), Memory: 2 << 30, Distances: []int{21, 10}},
			},
		},
		"long lists wrapped, a node without CPUs, ids with gaps, carriage returns": {
			text: "available: 2 nodes (0,252)\r\nnode 0 cpus: 0 1\r\n2 3\r\nnode 0 size: 1 MB\r\n" +
				"node 252 cpus:\r\nnode 252 size: 2 MB\r\nnode distances:\r\nnode   0\r\n252\r\n  0:  10\r\n80\r\n252:  80  10\r\n",
			want: []nvtopo.NUMANode{
				{ID: 0, CPUs: nvtopo.NewCPUSet(0, 1, 2, 3), Memory: 1 << 20, Distances: []int{10, 80}},
				{ID: 252, Memory: 2 << 20, Distances: []int{80, 10}},
			},
		},
		"without distances": {
			text: "available: 1 nodes (0)\nnode 0 cpus: 0\nnode 0 size: <not available>\nnode 0 free: <not available>\n",
			want: []nvtopo.NUMANode{{ID: 0, CPUs: nvtopo.NewCPUSet(0)}},
		},
		"distances alone": {
			text: "node distances:\nnode 0 1\n0: 10 32\n1: 32 10\n",
			want: []nvtopo.NUMANode{{ID: 0, Distances: []int{10, 32}}, {ID: 1, Distances: []int{32, 10}}},
		},
		"distances in another order than the nodes": {
			text: "node 1 cpus: 1\nnode 1 size: 1 MB\nnode 0 cpus: 0\nnode 0 size: 1 MB\nnode 1 0\n1: 10 31\n0: 32 10\n",
			want: []nvtopo.NUMANode{
				{ID: 0, CPUs: nvtopo.NewCPUSet(0), Memory: 1 << 20, Distances: []int{10, 32}},
				{ID: 1, CPUs: nvtopo.NewCPUSet(1), Memory: 1 << 20, Distances: []int{31, 10}},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseNUMA(strings.NewReader(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestParseNUMAErrors(t *testing.T) {
	const node0 = "node 0 cpus: 0\nnode 0 size: 1 MB\n"
	tests := map[string]struct {
		text string
		want SyntaxError
	}{
		"nothing":               {"", SyntaxError{1, 1, "no NUMA nodes found: want the output of numactl --hardware"}},
		"a node missing":        {"available: 2 nodes (0-1)\n" + node0, SyntaxError{3, 18, "node 1 is missing: the text ends"}},
		"a size missing":        {"available: 1 nodes (0)\nnode 0 cpus: 0", SyntaxError{2, 15, "size of node 0 is missing: the text ends"}},
		"an unannounced node":   {"available: 1 nodes (1)\n" + node0 + "node 1 cpus:\nnode 1 size: 1 MB", SyntaxError{5, 18, "node 0 is not among the available nodes"}},
		"count and list differ": {"available: 2 nodes (0)\n", SyntaxError{1, 1, `2 nodes announced, but "0" listed`}},
		"a node twice":          {node0 + "node 0 cpus: 1\n", SyntaxError{3, 1, "node 0 appears twice"}},
		"a CPU on two nodes":    {node0 + "node 1 cpus: 0\nnode 1 size: 1 MB\n", SyntaxError{4, 18, "a CPU of node 1 belongs to another node too"}},
		"a size without a node": {"node 3 size: 1 MB\n", SyntaxError{1, 1, "size of node 3 without its CPUs before it, or twice"}},
		"size out of range":     {"node 0 cpus: 0\nnode 0 size: 99999999999999999999 MB\n", SyntaxError{2, 1, `size "99999999999999999999" of node 0 is out of range`}},
		"an unreadable CPU":     {"node 0 cpus: 0 x\n", SyntaxError{1, 1, `CPUs of node 0: CPU list "0,x": "x" is not a CPU number`}},
		"an unreadable line":    {node0 + "node 1 cp", SyntaxError{3, 1, `cannot read "node 1 cp"`}},
		"distances missing":     {node0 + "node distances:\n", SyntaxError{3, 16, "the distances are missing: the text ends"}},
		"a distance missing":    {node0 + "node 0\n0:", SyntaxError{4, 3, "node 0 has 0 of 1 distances: the text ends"}},
		"too many distances":    {node0 + "node 0\n0: 10 20\n", SyntaxError{4, 1, "node 0 has more than 1 distances"}},
		"distance out of range": {node0 + "node 0\n0: 9\n", SyntaxError{4, 1, `distance "9" of node 0 is not between 10 and 255`}},
		"distances of others":   {node0 + "node 1\n1: 10\n", SyntaxError{4, 6, "node 1 is missing: the text ends"}},
		"two machines":          {twoNodes + twoNodes, SyntaxError{14, 1, "a second list of nodes starts: give the output of one machine"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			nodes, err := ParseNUMA(strings.NewReader(tc.text))
			var got *SyntaxError
			if !errors.As(err, &got) {
				t.Fatalf("nodes %v, error %v, want a SyntaxError", nodes, err)
			}
			if d := cmp.Diff(tc.want, *got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
