// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

func aKubelet(change func(*Kubelet)) *Kubelet {
	k := &Kubelet{
		Policy: "restricted", Scope: "pod", MemoryManager: MemoryStatic, ReservedCores: 1, ReconcilePeriod: 10 * time.Second,
		KubeReserved: resource.MustParse("4Gi"), SystemReserved: resource.MustParse("1Gi"), EvictionHard: resource.MustParse("100Mi"),
	}
	if change != nil {
		change(k)
	}
	return k
}

// TestKubeletMachines reads the output as kubelet does, and makes kubelet's checks at its start.
func TestKubeletMachines(t *testing.T) {
	everyMachine(t, func(t *testing.T, g *nvtopo.Graph) {
		t.Helper()
		for cores := 1; cores <= 3; cores++ {
			data, err := aKubelet(func(k *Kubelet) { k.ReservedCores = cores }).Write(g)
			if err != nil {
				t.Fatal(err)
			}
			var c kubeletv1beta1.KubeletConfiguration
			if err := yaml.UnmarshalStrict(data, &c); err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			checkReservedCPUs(t, g, c.ReservedSystemCPUs, cores)
			checkReservedMemory(t, g, &c)
			if c.CPUManagerPolicy != "static" || c.MemoryManagerPolicy != "Static" || c.TopologyManagerPolicy != "restricted" || c.TopologyManagerScope != "pod" {
				t.Errorf("policies %q, %q, %q and scope %q", c.CPUManagerPolicy, c.MemoryManagerPolicy, c.TopologyManagerPolicy, c.TopologyManagerScope)
			}
		}
	})
}

// checkReservedCPUs wants whole cores, as many of each NUMA node.
func checkReservedCPUs(t *testing.T, g *nvtopo.Graph, list string, cores int) {
	t.Helper()
	reserved, err := nvtopo.ParseCPUList(list)
	if err != nil {
		t.Fatal(err)
	}
	for i := range g.NUMANodes {
		n := &g.NUMANodes[i]
		whole, touched := 0, 0
		for _, core := range n.Siblings {
			has := 0
			for _, c := range core {
				if reserved.Has(c) {
					has++
				}
			}
			if has > 0 {
				touched++
			}
			if has == len(core) {
				whole++
			}
		}
		if whole != cores || touched != cores {
			t.Errorf("of NUMA node %d %d cores are reserved and %d touched, want %d", n.ID, whole, touched, cores)
		}
	}
}

func checkReservedMemory(t *testing.T, g *nvtopo.Graph, c *kubeletv1beta1.KubeletConfiguration) {
	t.Helper()
	var want, got resource.Quantity
	for _, q := range []string{c.KubeReserved["memory"], c.SystemReserved["memory"], c.EvictionHard["memory.available"]} {
		want.Add(resource.MustParse(q))
	}
	var nodes []int32
	for _, r := range c.ReservedMemory {
		memory := r.Limits["memory"]
		if memory.Sign() <= 0 || slices.Contains(nodes, r.NumaNode) {
			t.Errorf("NUMA node %d: %s, after nodes %v", r.NumaNode, &memory, nodes)
		}
		i := slices.IndexFunc(g.NUMANodes, func(n nvtopo.NUMANode) bool { return n.ID == int(r.NumaNode) })
		if i < 0 || memory.Value() >= g.NUMANodes[i].Memory {
			t.Errorf("NUMA node %d: %s are reserved, more than there is", r.NumaNode, &memory)
		}
		nodes = append(nodes, r.NumaNode)
		got.Add(memory)
	}
	if got.Cmp(want) != 0 {
		t.Errorf("reservedMemory is %s in all, want %s", &got, &want)
	}
}

func TestKubeletOptions(t *testing.T) {
	tests := map[string]struct {
		machine      string
		change       func(*Kubelet)
		graph        func(*nvtopo.Graph)
		wantCPU      map[string]string
		wantTopology map[string]string
		wantComment  string
		wantNot      string
	}{
		"two sockets with hyper-threads": {
			machine:      "dgx1-v100",
			wantCPU:      map[string]string{"full-pcpus-only": "true", "distribute-cpus-across-numa": "true", "strict-cpu-reservation": "true"},
			wantTopology: map[string]string{"prefer-closest-numa-nodes": "true"},
			wantComment:  "a multiple of 2 CPUs",
		},
		"cores without hyper-threads": {
			machine:      "gb200-tray",
			wantCPU:      map[string]string{"distribute-cpus-across-numa": "true", "strict-cpu-reservation": "true"},
			wantTopology: map[string]string{"prefer-closest-numa-nodes": "true"},
			wantNot:      "full-pcpus-only",
		},
		"one NUMA node only for a pod": {
			machine: "dgx1-v100", change: func(k *Kubelet) { k.Policy = "single-numa-node" },
			wantCPU: map[string]string{"full-pcpus-only": "true", "distribute-cpus-across-numa": "true", "strict-cpu-reservation": "true"},
		},
		"eight NUMA nodes, of which every combination is weighed": {
			machine:      "dgx-a100",
			wantCPU:      map[string]string{"full-pcpus-only": "true", "distribute-cpus-across-numa": "true", "strict-cpu-reservation": "true"},
			wantTopology: map[string]string{"prefer-closest-numa-nodes": "true"},
			wantComment:  "(2^8-1)^3",
		},
		"more NUMA nodes than kubelet allows by itself": {
			machine: "gb200-tray", graph: func(g *nvtopo.Graph) {
				for id := 2; id < 34; id++ {
					g.NUMANodes = append(g.NUMANodes, nvtopo.NUMANode{ID: id})
				}
			},
			wantCPU:      map[string]string{"distribute-cpus-across-numa": "true", "strict-cpu-reservation": "true"},
			wantTopology: map[string]string{"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "34"},
			wantNot:      "Should lscpu",
		},
		"a named node and no memory manager": {
			machine: "gb200-tray", change: func(k *Kubelet) { k.Node, k.MemoryManager = "gpu-node-7", MemoryNone },
			wantCPU:      map[string]string{"distribute-cpus-across-numa": "true", "strict-cpu-reservation": "true"},
			wantTopology: map[string]string{"prefer-closest-numa-nodes": "true"},
			wantComment:  "kubectl drain gpu-node-7 ", wantNot: "reservedMemory",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g, k := graphOf(t, tc.machine), aKubelet(tc.change)
			if tc.graph != nil {
				tc.graph(g)
			}
			c, err := k.Config(g)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantCPU, c.CPUManagerPolicyOptions); diff != "" {
				t.Errorf("cpuManagerPolicyOptions (-want,+got):\n%s", diff)
			}
			if tc.wantTopology == nil {
				tc.wantTopology = map[string]string{}
			}
			if diff := cmp.Diff(tc.wantTopology, c.TopologyManagerPolicyOptions); diff != "" {
				t.Errorf("topologyManagerPolicyOptions (-want,+got):\n%s", diff)
			}
			data, err := k.Write(g)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), tc.wantComment) || tc.wantNot != "" && strings.Contains(string(data), tc.wantNot) {
				t.Errorf("want %q and not %q in\n%s", tc.wantComment, tc.wantNot, data)
			}
		})
	}
}

// TestKubeletCPUZero: CPU 0 can be reserved: on a small machine the list of CPUs is "0", which is no zero
// value.
func TestKubeletCPUZero(t *testing.T) {
	g, err := nvtopo.NewGraph(nil, []nvtopo.NUMANode{{ID: 0, CPUs: nvtopo.NewCPUSet(0, 1), Memory: 16 * gib}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := aKubelet(nil).Write(g)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"reservedSystemCPUs: \"0\"\n", "numaNode: 0\n"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %q in\n%s", want, data)
		}
	}
}

func TestKubeletUnequalMemory(t *testing.T) {
	g := graphOf(t, "dgx1-v100")
	g.NUMANodes[0].Memory, g.NUMANodes[1].Memory = 30*gib, 10*gib
	for name, tc := range map[string]struct {
		total string
		want  map[int32]string
	}{
		"by their memory":                 {"4Gi", map[int32]string{0: "3Gi", 1: "1Gi"}},
		"what is over goes to the last":   {"5Mi", map[int32]string{0: "3Mi", 1: "2Mi"}},
		"a node that would get nothing":   {"1Mi", map[int32]string{1: "1Mi"}},
		"nearly all that the machine has": {"36Gi", map[int32]string{0: "27Gi", 1: "9Gi"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := aKubelet(func(k *Kubelet) {
				k.KubeReserved, k.SystemReserved, k.EvictionHard = resource.MustParse(tc.total), resource.Quantity{}, resource.Quantity{}
			}).Config(g)
			if err != nil {
				t.Fatal(err)
			}
			got := map[int32]string{}
			for _, r := range c.ReservedMemory {
				got[r.NumaNode] = r.Limits.Memory().String()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want,+got):\n%s", diff)
			}
		})
	}
}

func TestBadKubelets(t *testing.T) {
	bare := graphOf(t, "dgx1-v100")
	bare.NUMANodes = nil
	tests := map[string]struct {
		change func(*Kubelet)
		graph  *nvtopo.Graph
		want   string
		known  bool
	}{
		"a policy nobody has":          {change: func(k *Kubelet) { k.Policy = "strict" }, want: `policy "strict"`, known: true},
		"no policy":                    {change: func(k *Kubelet) { k.Policy = "" }, want: `policy ""`, known: true},
		"a scope nobody has":           {change: func(k *Kubelet) { k.Scope = "node" }, want: `scope "node"`, known: true},
		"a memory manager nobody has":  {change: func(k *Kubelet) { k.MemoryManager = "static" }, want: `memory manager "static"`, known: true},
		"no core for the system":       {change: func(k *Kubelet) { k.ReservedCores = 0 }, want: "0 reserved cores", known: true},
		"all cores for the system":     {change: func(k *Kubelet) { k.ReservedCores = 20 }, want: "NUMA node 0 has only the CPUs", known: true},
		"no period":                    {change: func(k *Kubelet) { k.ReconcilePeriod = 0 }, want: "reconcile period", known: true},
		"memory below nothing":         {change: func(k *Kubelet) { k.KubeReserved = resource.MustParse("-1Gi") }, want: "-1Gi", known: true},
		"memory that is not in Mi":     {change: func(k *Kubelet) { k.KubeReserved = resource.MustParse("1G") }, want: "whole Mi", known: true},
		"more memory than there is":    {change: func(k *Kubelet) { k.KubeReserved = resource.MustParse("100Ti") }, want: "the machine has only", known: true},
		"a machine without NUMA nodes": {graph: bare, want: "--numactl"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := tc.graph
			if g == nil {
				g = graphOf(t, "dgx1-v100")
			}
			_, err := aKubelet(tc.change).Write(g)
			if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, ErrNotKnown) == tc.known {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
