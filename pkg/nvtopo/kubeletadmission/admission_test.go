// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// twoSockets has CPUs 0-7 and 8-15 in cores of two and four devices on each node.
func twoSockets(tb testing.TB, cfg Config) *Machine {
	tb.Helper()
	var nodes []Node
	for i := range 2 {
		n := Node{ID: i, Socket: i, Distances: []int{10, 21}}
		for c := range 4 {
			core := nvtopo.NewCPUSet(8*i+2*c, 8*i+2*c+1)
			n.Siblings = append(n.Siblings, core)
			n.CPUs = append(n.CPUs, core...)
		}
		nodes = append(nodes, n)
	}
	m, err := New(&cfg, nodes, []Resource{{All: nvtopo.FullMask(8), NUMA: []int{0, 0, 0, 0, 1, 1, 1, 1}}})
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func app(devices, cpus int, memory int64) Container {
	c := Container{CPUs: cpus, Memory: memory}
	c.Devices[0] = devices
	return c
}

// TestKubeletRefusals: the solver refuses pods that kubelet refuses.
func TestKubeletRefusals(t *testing.T) {
	full, ordinary := map[string]string{fullCores: "true"}, map[int]Memory{0: {Free: 10, Allocatable: 10}, 1: {Free: 10, Allocatable: 10}}
	grouped := map[int]Memory{0: {Free: 5, Allocatable: 10, Cells: []int{0, 1}}, 1: {Free: 10, Allocatable: 10, Cells: []int{0, 1}}}
	tests := map[string]struct {
		cfg       Config
		free      nvtopo.Mask
		exclusive nvtopo.CPUSet
		memory    map[int]Memory
		pod       []Container
		want      bool
	}{
		"devices on two nodes, restricted": {
			cfg: Config{Policy: PolicyRestricted}, free: nvtopo.MaskOf(2, 3, 6, 7), pod: []Container{app(3, 0, 0)},
		},
		"devices on two nodes, best-effort": {
			cfg: Config{Policy: PolicyBestEffort}, free: nvtopo.MaskOf(2, 3, 6, 7), pod: []Container{app(3, 0, 0)}, want: true,
		},
		"more devices than a node ever has may span, restricted": {
			cfg: Config{Policy: PolicyRestricted}, free: nvtopo.FullMask(8), pod: []Container{app(5, 0, 0)}, want: true,
		},
		"more devices than a node ever has, single-numa-node": {
			cfg: Config{Policy: PolicySingleNUMANode}, free: nvtopo.FullMask(8), pod: []Container{app(5, 0, 0)},
		},
		"too few devices, no policy": {free: nvtopo.FullMask(2), pod: []Container{app(3, 0, 0)}},
		"hints of unequal width are not preferred": {
			cfg: Config{Policy: PolicyRestricted, StaticCPUs: true}, free: nvtopo.FullMask(8), pod: []Container{app(2, 10, 0)},
		},
		"CPUs on the one node, devices on the other": {
			cfg: Config{Policy: PolicySingleNUMANode, StaticCPUs: true}, free: nvtopo.MaskOf(0, 1), exclusive: nvtopo.NewCPUSet(0, 1, 2, 3, 4, 5),
			pod: []Container{app(1, 4, 0)},
		},
		"an odd CPU in whole cores, no policy": {
			cfg: Config{StaticCPUs: true, CPUOptions: full}, free: nvtopo.FullMask(8), pod: []Container{app(1, 3, 0)},
		},
		"what a container takes is not there for the next": {
			cfg: Config{Policy: PolicySingleNUMANode, StaticCPUs: true}, free: nvtopo.FullMask(8),
			pod: []Container{app(1, 6, 0), app(1, 6, 0), app(1, 6, 0)},
		},
		"a node of a group gives no memory by itself": {
			cfg: Config{Policy: PolicySingleNUMANode, StaticMemory: true}, free: nvtopo.FullMask(8), memory: grouped, pod: []Container{app(1, 0, 2)},
		},
		"the group gives it, restricted devices cannot follow": {
			cfg: Config{Policy: PolicyRestricted, StaticMemory: true}, free: nvtopo.FullMask(8), memory: grouped, pod: []Container{app(1, 0, 2)},
		},
		"the group gives it, best-effort": {
			cfg: Config{Policy: PolicyBestEffort, StaticMemory: true}, free: nvtopo.FullMask(8), memory: grouped, pod: []Container{app(1, 0, 2)}, want: true,
		},
		"memory of a node of its own": {
			cfg: Config{Policy: PolicySingleNUMANode, StaticMemory: true}, free: nvtopo.FullMask(8), memory: ordinary, pod: []Container{app(1, 0, 10)}, want: true,
		},
		"an init container's memory is used again": {
			cfg: Config{Policy: PolicySingleNUMANode, StaticMemory: true}, free: nvtopo.MaskOf(4), memory: ordinary,
			pod: []Container{{Kind: Init, Memory: 8}, app(0, 0, 10), app(1, 0, 10)}, want: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := twoSockets(t, tc.cfg)
			s := m.NewState(tc.exclusive, tc.memory)
			s.Free[0] = tc.free
			if got := m.Admit(&s, NewPod(tc.pod), &Wish{}, nil); got != tc.want {
				t.Errorf("admitted %t, want %t", got, tc.want)
			}
		})
	}
}

// TestUnpredictableMachines: machines that cannot be predicted are errors.
func TestUnpredictableMachines(t *testing.T) {
	nodes := make([]Node, 9)
	for i := range nodes {
		nodes[i].ID = i
	}
	tests := map[string]struct {
		cfg   Config
		nodes []Node
		want  bool // predicted
	}{
		"more NUMA nodes than kubelet runs on":        {cfg: Config{Policy: PolicyRestricted}, nodes: nodes},
		"without a policy they do not matter":         {nodes: nodes, want: true},
		"max-allowable-numa-nodes raises the limit":   {cfg: Config{Policy: PolicyRestricted, TopologyOptions: map[string]string{maxAllowable: "9"}}, nodes: nodes, want: true},
		"max-allowable-numa-nodes below 8":            {cfg: Config{TopologyOptions: map[string]string{maxAllowable: "4"}}, nodes: nodes[:2]},
		"an unknown topology option":                  {cfg: Config{TopologyOptions: map[string]string{"new": "true"}}, nodes: nodes[:2]},
		"an unknown CPU option":                       {cfg: Config{StaticCPUs: true, CPUOptions: map[string]string{"new": "true"}}, nodes: []Node{{CPUs: nvtopo.CPUSet{0}}}},
		"a CPU option that is neither true nor false": {cfg: Config{StaticCPUs: true, CPUOptions: map[string]string{fullCores: "maybe"}}, nodes: []Node{{CPUs: nvtopo.CPUSet{0}}}},
		"align-by-socket under single-numa-node": {
			cfg:   Config{Policy: PolicySingleNUMANode, StaticCPUs: true, CPUOptions: map[string]string{alignBySocket: "true"}},
			nodes: []Node{{CPUs: nvtopo.CPUSet{0}}},
		},
		"closest nodes without distances": {cfg: Config{TopologyOptions: map[string]string{preferClosest: "true"}}, nodes: nodes[:2]},
		"no CPUs to give out":             {cfg: Config{StaticCPUs: true}, nodes: nodes[:2]},
		"CPU numbers beyond all machines": {cfg: Config{StaticCPUs: true}, nodes: []Node{{CPUs: nvtopo.CPUSet{maxCPUs}}}},
		"no NUMA nodes":                   {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := New(&tc.cfg, tc.nodes, nil); (err == nil) != tc.want {
				t.Errorf("error %v, want one: %t", err, !tc.want)
			}
		})
	}
}

// TestVerdictAllocations: verdicts do not allocate.
func TestVerdictAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("under the race detector a pool forgets at random")
	}
	m := twoSockets(t, Config{Policy: PolicyRestricted, StaticCPUs: true})
	s := m.NewState(nil, nil)
	s.Free[0] = nvtopo.FullMask(8)
	pod := NewPod([]Container{{Kind: Init, CPUs: 2}, app(2, 4, 0), app(1, 2, 0)})
	wish := &Wish{}
	if n := testing.AllocsPerRun(100, func() {
		if !m.Admit(&s, pod, wish, nil) {
			t.Fatal("refused")
		}
	}); n != 0 {
		t.Errorf("Admit allocates %v times", n)
	}
}

func BenchmarkAdmit(b *testing.B) {
	for name, policy := range map[string]Policy{"best-effort": PolicyBestEffort, "restricted": PolicyRestricted, "single-numa-node": PolicySingleNUMANode} {
		b.Run(name, func(b *testing.B) {
			var nodes []Node
			var numa []int
			for i := range 8 {
				nodes = append(nodes, Node{ID: i, Socket: i / 4, CPUs: nvtopo.CPUSet{2 * i, 2*i + 1}})
				numa = append(numa, i)
			}
			m, err := New(&Config{Policy: policy, StaticCPUs: true}, nodes, []Resource{{All: nvtopo.FullMask(8), NUMA: numa}})
			if err != nil {
				b.Fatal(err)
			}
			s := m.NewState(nil, nil)
			s.Free[0] = nvtopo.FullMask(7)
			pod, wish := NewPod([]Container{app(1, 2, 0)}), &Wish{}
			b.ReportAllocs()
			for b.Loop() {
				m.Admit(&s, pod, wish, nil)
			}
		})
	}
}
