// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"encoding/xml"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestNCCLTopologyMachines reads the file back and compares its tree with the graph: the distance of all
// GPUs, their NVLinks, CPUs and near adapters.
func TestNCCLTopologyMachines(t *testing.T) {
	everyMachine(t, func(t *testing.T, g *nvtopo.Graph) {
		t.Helper()
		data, err := NCCLTopology(g, CPUModel{Arch: "x86_64", Vendor: "GenuineIntel", Family: 6, Model: 143})
		if vendor, _, _ := strings.Cut(g.GPUs[0].Model, " "); vendor == "AMD" || vendor == "Ascend" { // NCCL is for NVIDIA's
			if !errors.Is(err, ErrNotKnown) {
				t.Errorf("%s: got %v, want ErrNotKnown", g.GPUs[0].Model, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"<?", "\t", "&"} {
			if strings.Contains(string(data), bad) {
				t.Errorf("NCCL cannot read %q", bad)
			}
		}
		var s ncclSystem
		if err := xml.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		again, err := xml.MarshalIndent(s, "", "  ")
		if err != nil || string(again)+"\n" != string(data) {
			t.Errorf("read and written again (%v): %s", err, cmp.Diff(string(data), string(again)+"\n"))
		}
		r := readTopology(t, g, &s)
		for i := range g.Len() {
			if r.numa[i] != g.GPUs[i].NUMANode {
				t.Errorf("GPU %d is on NUMA node %d, want %d", i, r.numa[i], g.GPUs[i].NUMANode)
			}
			for j := range i {
				if got, want := r.distance(r.gpuPath[i], r.gpuPath[j]), wantDistance(g, i, j); got != want {
					t.Errorf("GPUs %d and %d are at %s, want %s", j, i, got, want)
				}
				if got, want := r.lanes(g, i, j), wantLanes(g, i, j); got != want {
					t.Errorf("GPUs %d and %d have %d NVLinks, want %d", j, i, got, want)
				}
			}
		}
		r.checkAdapters(t, g)
	})
}

// topologyRead is a file read in the order of NCCL.
type topologyRead struct {
	numa    map[int]int      // of each GPU position
	gpuPath map[int][]string // addresses of the processor and switches above it
	gpus    map[int]*ncclGPU
	nicPath map[string][]string
}

func readTopology(t *testing.T, g *nvtopo.Graph, s *ncclSystem) *topologyRead {
	t.Helper()
	r := &topologyRead{map[int]int{}, map[int][]string{}, map[int]*ncclGPU{}, map[string][]string{}}
	addresses := map[string]bool{}
	var walk func(p *ncclPCI, above []string, numa int)
	walk = func(p *ncclPCI, above []string, numa int) {
		if addresses[p.BusID] {
			t.Errorf("address %s is there twice", p.BusID)
		}
		addresses[p.BusID] = true
		if p.GPU != nil {
			r.numa[p.GPU.Rank], r.gpuPath[p.GPU.Rank], r.gpus[p.GPU.Rank] = numa, above, p.GPU
			if !strings.HasSuffix(strings.ToLower(g.GPUs[p.GPU.Rank].PCIBusID), p.BusID) || p.GPU.Dev != g.GPUs[p.GPU.Rank].Index || p.GPU.SM == 0 {
				t.Errorf("GPU %+v at %s", p.GPU, p.BusID)
			}
		}
		if p.NIC != nil {
			for _, n := range p.NIC.Nets {
				r.nicPath[n.Name] = above
			}
		}
		for i := range p.PCI {
			walk(&p.PCI[i], append(slices.Clone(above), p.BusID), numa)
		}
	}
	for i := range s.CPUs {
		c := &s.CPUs[i]
		for j := range g.NUMANodes {
			if g.NUMANodes[j].ID == c.NUMAID {
				if got := cpusOf(t, c.Affinity); got.String() != g.NUMANodes[j].CPUs.String() {
					t.Errorf("NUMA node %d has CPUs %s, want %s", c.NUMAID, got, g.NUMANodes[j].CPUs)
				}
			}
		}
		for j := range c.PCI {
			walk(&c.PCI[j], []string{"cpu " + strconv.Itoa(c.NUMAID)}, c.NUMAID)
		}
	}
	if len(r.gpus) != g.Len() {
		t.Fatalf("%d GPUs, want %d", len(r.gpus), g.Len())
	}
	return r
}

// distance is NCCL's: through one switch, several, the processor, or two processors.
func (r *topologyRead) distance(a, b []string) string {
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	switch {
	case same == 0:
		return "SYS"
	case same == 1:
		return "PHB"
	case same == len(a) && same == len(b):
		return "PIX"
	}
	return "PXB"
}

func wantDistance(g *nvtopo.Graph, i, j int) string {
	switch l := g.Link(i, j).PCIe; {
	case g.GPUs[i].NUMANode != g.GPUs[j].NUMANode:
		return "SYS"
	case l == nvtopo.PCIePIX || l == nvtopo.PCIePXB:
		return l.String()
	}
	return "PHB"
}

// lanes counts the NVLinks of two GPUs; those to switches reach every GPU that has some.
func (r *topologyRead) lanes(g *nvtopo.Graph, i, j int) int {
	switched := func(gpu int) int {
		for _, l := range r.gpus[gpu].NVLinks {
			if l.Class == classNVS {
				return l.Count
			}
		}
		return 0
	}
	for _, l := range r.gpus[i].NVLinks {
		if l.Class == classGPU && strings.HasSuffix(strings.ToLower(g.GPUs[j].PCIBusID), l.Target) {
			return l.Count
		}
	}
	return min(switched(i), switched(j))
}

func wantLanes(g *nvtopo.Graph, i, j int) int {
	if c := g.Link(i, j).Class; c.Kind == nvtopo.KindNVLink {
		return c.Lanes
	}
	return 0
}

// checkAdapters checks that each adapter is at PIX or PXB of its nearest GPU, and no other is.
func (r *topologyRead) checkAdapters(t *testing.T, g *nvtopo.Graph) {
	t.Helper()
	for _, n := range g.NICs {
		best := slices.Min(n.Levels)
		path, there := r.nicPath[n.Name]
		if near := best == nvtopo.PCIePIX || best == nvtopo.PCIePXB; near != there {
			t.Errorf("adapter %s, %s from its nearest GPU: in the file %t", n.Name, best, there)
		}
		if there {
			if got := r.distance(path, r.gpuPath[slices.Index(n.Levels, best)]); got != best.String() {
				t.Errorf("adapter %s is at %s of its nearest GPU, want %s", n.Name, got, best)
			}
		}
	}
}

// cpusOf reads the kernel's cpumap.
func cpusOf(t *testing.T, text string) nvtopo.CPUSet {
	t.Helper()
	words := strings.Split(text, ",")
	var out []int
	for i, w := range words {
		bits, err := strconv.ParseUint(w, 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		for b := range 32 {
			if bits>>b&1 != 0 {
				out = append(out, (len(words)-1-i)*32+b)
			}
		}
	}
	return nvtopo.NewCPUSet(out...)
}

func TestBadNCCLTopologies(t *testing.T) {
	amd := CPUModel{Arch: "x86_64", Vendor: "AuthenticAMD"}
	for name, tc := range map[string]struct {
		cpu     CPUModel
		change  func(*nvtopo.Graph)
		want    string
		unknown bool
	}{
		"no architecture":              {cpu: CPUModel{}, want: `architecture ""`},
		"no vendor":                    {cpu: CPUModel{Arch: "x86_64"}, want: `vendor ""`},
		"Intel without a model":        {cpu: CPUModel{Arch: "x86_64", Vendor: "GenuineIntel", Family: 6}, want: "family and model"},
		"a vendor where there is none": {cpu: CPUModel{Arch: "arm64", Vendor: "AuthenticAMD"}, want: "x86_64, not arm64"},
		"a GPU without an address":     {cpu: amd, change: func(g *nvtopo.Graph) { g.GPUs[3].PCIBusID = "" }, want: "GPU 3", unknown: true},
		"an address that is none":      {cpu: amd, change: func(g *nvtopo.Graph) { g.GPUs[0].PCIBusID = `0000:07:00.0"/>` }, want: "GPU 0", unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := graphOf(t, "dgx-a100")
			if tc.change != nil {
				tc.change(g)
			}
			_, err := NCCLTopology(g, tc.cpu)
			if err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, ErrNotKnown) != tc.unknown {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
