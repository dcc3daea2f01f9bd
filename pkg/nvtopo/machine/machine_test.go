// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// graphOf builds a machine of the catalogue.
func graphOf(t *testing.T, name string) (*Machine, *nvtopo.Graph) {
	t.Helper()
	m, err := Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return m, g
}

// documented is the properties on which docs and demonstrations rely.
var documented = map[string]struct {
	gpus, numaNodes, cpus, nics int
	switched                    bool
	numa                        []int          // of the GPUs
	ring                        map[int]string // class of the best ring's weakest edge, by number of GPUs
}{
	"a100-pcie-4-bridged": {
		gpus: 4, numaNodes: 4, cpus: 96, numa: []int{0, 1, 2, 3},
		ring: map[int]string{2: "NV12", 4: "SYS"},
	},
	"a6000-8-bridged": {
		gpus: 8, numaNodes: 2, cpus: 128, nics: 2, numa: []int{0, 0, 0, 0, 1, 1, 1, 1},
		ring: map[int]string{2: "NV4", 4: "NODE", 8: "SYS"},
	},
	"atlas-800t-a2": {
		gpus: 8, numaNodes: 8, cpus: 192, numa: []int{6, 6, 4, 4, 0, 0, 2, 2},
		ring: map[int]string{2: "HCCS1", 4: "HCCS1", 8: "HCCS1"},
	},
	"dgx-a100": {
		gpus: 8, numaNodes: 8, cpus: 256, nics: 12, switched: true, numa: []int{3, 3, 1, 1, 7, 7, 5, 5},
		ring: map[int]string{2: "NV12", 4: "NV12", 8: "NV12"},
	},
	"dgx-h100": {
		gpus: 8, numaNodes: 2, cpus: 224, nics: 12, switched: true, numa: []int{0, 0, 0, 0, 1, 1, 1, 1},
		ring: map[int]string{2: "NV18", 4: "NV18", 8: "NV18"},
	},
	"dgx1-p100": {
		gpus: 8, numaNodes: 2, cpus: 80, nics: 4, numa: []int{0, 0, 0, 0, 1, 1, 1, 1},
		ring: map[int]string{2: "NV1", 4: "NV1", 8: "NV1"},
	},
	"dgx1-v100": {
		gpus: 8, numaNodes: 2, cpus: 80, nics: 4, numa: []int{0, 0, 0, 0, 1, 1, 1, 1},
		ring: map[int]string{2: "NV2", 4: "NV1", 8: "NV2"},
	},
	"dgx2": {
		gpus: 16, numaNodes: 2, cpus: 96, nics: 4, switched: true,
		numa: []int{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1},
		ring: map[int]string{2: "NV6", 4: "NV6", 8: "NV6"},
	},
	"gb200-tray": {
		gpus: 4, numaNodes: 2, cpus: 144, nics: 8, switched: true, numa: []int{0, 0, 1, 1},
		ring: map[int]string{2: "NV18", 4: "NV18"},
	},
	"h200-nvl-8": {
		gpus: 8, numaNodes: 2, cpus: 256, numa: []int{0, 0, 0, 0, 1, 1, 1, 1},
		ring: map[int]string{2: "NV6", 4: "NV6", 8: "SYS"},
	},
	"hgx-a100-4": {
		gpus: 4, numaNodes: 4, cpus: 128, numa: []int{3, 2, 1, 0},
		ring: map[int]string{2: "NV4", 4: "NV4"},
	},
	"hgx-a100-8": {
		gpus: 8, numaNodes: 2, cpus: 128, nics: 2, switched: true, numa: []int{0, 0, 0, 0, 1, 1, 1, 1},
		ring: map[int]string{2: "NV12", 4: "NV12", 8: "NV12"},
	},
	"hgx-b200": {
		gpus: 8, numaNodes: 2, cpus: 224, nics: 16, switched: true, numa: []int{0, 0, 0, 0, 1, 1, 1, 1},
		ring: map[int]string{2: "NV18", 4: "NV18", 8: "NV18"},
	},
	"hgx-h200": {
		gpus: 8, numaNodes: 2, cpus: 224, nics: 12, switched: true, numa: []int{0, 0, 0, 0, 1, 1, 1, 1},
		ring: map[int]string{2: "NV18", 4: "NV18", 8: "NV18"},
	},
	"l40s-8": {
		gpus: 8, numaNodes: 2, cpus: 128, numa: []int{0, 0, 0, 0, 1, 1, 1, 1},
		ring: map[int]string{2: "PIX", 4: "NODE", 8: "SYS"},
	},
	"mi250x-8": {
		gpus: 8, numaNodes: 4, cpus: 128, numa: []int{3, 3, 1, 1, 0, 0, 2, 2},
		ring: map[int]string{2: "XGMI4", 4: "XGMI1", 8: "XGMI1"},
	},
	"power9-v100-4": {
		gpus: 4, numaNodes: 2, cpus: 128, numa: []int{0, 0, 8, 8},
		ring: map[int]string{2: "NV3", 4: "SYS"},
	},
	"rtx4090-8": {
		gpus: 8, numaNodes: 2, cpus: 224, nics: 2, numa: []int{0, 0, 0, 0, 1, 1, 1, 1},
		ring: map[int]string{2: "SYS", 4: "SYS", 8: "SYS"},
	},
	"v100-pcie-8": {
		gpus: 8, numaNodes: 2, cpus: 80, numa: []int{0, 0, 0, 0, 1, 1, 1, 1},
		ring: map[int]string{2: "PIX", 4: "PHB", 8: "SYS"},
	},
}

func TestCatalogue(t *testing.T) {
	if got := len(Names()); got != len(documented) {
		t.Errorf("%d machines in the catalogue, %d documented", got, len(documented))
	}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			want, ok := documented[name]
			if !ok {
				t.Fatal("machine is not documented")
			}
			m, g := graphOf(t, name)
			if m.Description == "" || m.Source == "" {
				t.Error("no description or no source")
			}
			if g.Len() != want.gpus || len(g.NUMANodes) != want.numaNodes || len(g.NICs) != want.nics {
				t.Errorf("%d GPUs, %d NUMA nodes, %d adapters; want %d, %d, %d",
					g.Len(), len(g.NUMANodes), len(g.NICs), want.gpus, want.numaNodes, want.nics)
			}
			var numa []int
			buses := map[string]bool{}
			for i := range g.GPUs {
				numa = append(numa, g.GPUs[i].NUMANode)
				buses[g.GPUs[i].PCIBusID] = true
				if !regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`).MatchString(g.GPUs[i].PCIBusID) {
					t.Errorf("bus id %q", g.GPUs[i].PCIBusID)
				}
			}
			if d := cmp.Diff(want.numa, numa); d != "" {
				t.Errorf("NUMA nodes of the GPUs (-want +got):\n%s", d)
			}
			if len(buses) != g.Len() {
				t.Errorf("%d bus ids for %d GPUs", len(buses), g.Len())
			}
			checkLinks(t, g, want.switched)
			checkCPUs(t, m, g, want.cpus)
			for k, class := range want.ring {
				if got := bestRing(g, k).Class.String(); got != class {
					t.Errorf("best ring of %d GPUs: weakest edge %s, want %s", k, got, class)
				}
			}
		})
	}
}

// checkLinks compares both directions and the constants that all links share.
func checkLinks(t *testing.T, g *nvtopo.Graph, switched bool) {
	t.Helper()
	for i := range g.Len() {
		for j := range i {
			l := g.Link(i, j)
			if l != g.Link(j, i) || l.Bandwidth <= 0 || l.Latency <= 0 {
				t.Errorf("link of %d and %d: %+v and %+v", i, j, l, g.Link(j, i))
			}
			if l.Switched != switched {
				t.Errorf("link of %d and %d: switched %t, want %t", i, j, l.Switched, switched)
			}
			if !l.Class.IsFabric() && l.PCIe != l.Class.PCIe {
				t.Errorf("link of %d and %d: class %s, PCIe level %s", i, j, l.Class, l.PCIe)
			}
		}
	}
}

// checkCPUs checks that NUMA nodes share no CPU, that cores lie inside a node,
// and that the SLIT is a distance.
func checkCPUs(t *testing.T, m *Machine, g *nvtopo.Graph, want int) {
	t.Helper()
	seen := map[int]int{}
	for _, n := range g.NUMANodes {
		if n.Memory <= 0 {
			t.Errorf("NUMA node %d has no memory", n.ID)
		}
		var inCores nvtopo.CPUSet
		for _, core := range n.Siblings {
			if len(core) != m.ThreadsPerCore {
				t.Errorf("core %s of NUMA node %d: want %d threads", core, n.ID, m.ThreadsPerCore)
			}
			inCores = append(inCores, core...)
		}
		if d := cmp.Diff(n.CPUs, nvtopo.NewCPUSet(inCores...)); d != "" || len(inCores) != len(n.CPUs) {
			t.Errorf("cores of NUMA node %d are not its CPUs (-CPUs +cores):\n%s", n.ID, d)
		}
		for _, c := range n.CPUs {
			if other, twice := seen[c]; twice {
				t.Errorf("CPU %d is on NUMA nodes %d and %d", c, other, n.ID)
			}
			seen[c] = n.ID
		}
	}
	if len(seen) != want {
		t.Errorf("%d CPUs, want %d", len(seen), want)
	}
	for _, a := range g.NUMANodes {
		for _, b := range g.NUMANodes {
			d := g.NUMADistance(a.ID, b.ID)
			if d != g.NUMADistance(b.ID, a.ID) || (a.ID == b.ID) != (d == nvtopo.LocalDistance) {
				t.Errorf("distance of NUMA nodes %d and %d: %d and %d", a.ID, b.ID, d, g.NUMADistance(b.ID, a.ID))
			}
		}
	}
}

// bestRing tries every ring of every k GPUs and returns the weakest edge of the
// strongest. A depth-first search that drops paths no better than the best found
// stays fast where many rings are equal.
func bestRing(g *nvtopo.Graph, k int) nvtopo.Link {
	var best nvtopo.Link
	weaker := func(a, b nvtopo.Link) nvtopo.Link {
		if b.Bandwidth < a.Bandwidth {
			return b
		}
		return a
	}
	var extend func(path []int, weakest nvtopo.Link)
	extend = func(path []int, weakest nvtopo.Link) {
		if weakest.Bandwidth <= best.Bandwidth {
			return
		}
		if len(path) == k {
			if ring := weaker(weakest, g.Link(path[k-1], path[0])); ring.Bandwidth > best.Bandwidth {
				best = ring
			}
			return
		}
		for next := path[0] + 1; next < g.Len(); next++ {
			if !slices.Contains(path, next) {
				extend(append(slices.Clone(path), next), weaker(weakest, g.Link(path[len(path)-1], next)))
			}
		}
	}
	for first := range g.Len() {
		extend([]int{first}, nvtopo.Link{Bandwidth: 1 << 62})
	}
	return best
}

func TestLookupUnknown(t *testing.T) {
	_, err := Lookup("dgx-9000")
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range Names() {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("error %q does not list %s", err, name)
		}
	}
	if _, err := Lookup("../machine"); err == nil {
		t.Error("no error for a path")
	}
}

func TestUUIDs(t *testing.T) {
	form := regexp.MustCompile(`^GPU-[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]string{}
	for _, name := range Names() {
		m, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, node := range []string{"", "node-1", "node-2", "node-11"} {
			g, err := m.GraphFor(node)
			if err != nil {
				t.Fatal(err)
			}
			again, err := m.GraphFor(node)
			if err != nil {
				t.Fatal(err)
			}
			for i := range g.GPUs {
				u := g.GPUs[i].UUID
				if !form.MatchString(u) {
					t.Errorf("UUID %q is not of the form %s", u, form)
				}
				if other, twice := seen[u]; twice {
					t.Errorf("UUID %s of %s on %q is also that of %s", u, name, node, other)
				}
				seen[u] = name + " on " + node
				if again.GPUs[i].UUID != u {
					t.Errorf("UUID of GPU %d of %s on %q: %s, then %s", i, name, node, u, again.GPUs[i].UUID)
				}
			}
		}
	}
}

// TestUUIDStability: a UUID is stable. It pins one UUID: published examples and golden files name
// them.
func TestUUIDStability(t *testing.T) {
	_, g := graphOf(t, "dgx-a100")
	const want = "GPU-4eaed189-355a-84fd-9362-b92a33356d0e"
	if got := g.GPUs[0].UUID; got != want {
		t.Errorf("UUID of GPU 0 of dgx-a100 is %s, was %s", got, want)
	}
}

func TestMalformedMachine(t *testing.T) {
	valid := func() *Machine {
		return &Machine{
			Name: "test", Model: "NVIDIA A100-SXM4-80GB", PCIeGen: 4, ThreadsPerCore: 1,
			GPUs:      []GPU{{PCIBusID: "0000:01:00.0"}, {PCIBusID: "0000:02:00.0"}},
			NUMANodes: []NUMANode{{CPUs: "0-3", MemoryGiB: 1}},
			Links:     []string{"X NV4", "NV4 X"}, PCIe: []string{"X PIX", "PIX X"},
			NICs: []NIC{{Name: "mlx5_0", Levels: "PIX PIX"}},
		}
	}
	if _, err := valid().Graph(); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change func(*Machine)
		want   string
	}{
		"GPU on an unknown NUMA node": {func(m *Machine) { m.GPUs[1].NUMANode = 7 }, "GPU 1 is on NUMA node 7"},
		"unreadable CPUs":             {func(m *Machine) { m.NUMANodes[0].CPUs = "a" }, "NUMA node 0"},
		"too few rows":                {func(m *Machine) { m.Links = m.Links[:1] }, "links: 1 rows for 2 GPUs"},
		"no X on the diagonal":        {func(m *Machine) { m.Links[0] = "NV4 X" }, "links: row 0"},
		"unknown class":               {func(m *Machine) { m.Links[0] = "X ABC" }, "ABC"},
		"unknown PCIe level":          {func(m *Machine) { m.PCIe[0] = "X ABC" }, "ABC"},
		"asymmetric links":            {func(m *Machine) { m.Links[0] = "X NV2" }, "not symmetric"},
		"class against PCIe level":    {func(m *Machine) { m.Links = []string{"X SYS", "SYS X"} }, "link SYS, but PCIe level PIX"},
		"hops that are no number":     {func(m *Machine) { m.Hops = []string{"X a", "1 X"} }, `hops of GPUs 0 and 1: "a"`},
		"no hops at all":              {func(m *Machine) { m.Hops = []string{"X 0", "1 X"} }, `hops of GPUs 0 and 1: "0"`},
		"hops that are asymmetric":    {func(m *Machine) { m.Hops = []string{"X 2", "1 X"} }, "not symmetric"},
		"adapter with one level":      {func(m *Machine) { m.NICs[0].Levels = "PIX" }, "1 levels for 2 GPUs"},
		"adapter with a wrong level":  {func(m *Machine) { m.NICs[0].Levels = "PIX NV1" }, "adapter mlx5_0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := valid()
			tc.change(m)
			if _, err := m.Graph(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
}
