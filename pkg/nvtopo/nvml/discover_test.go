// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// matrix prints a graph's link classes row by row.
func matrix(g *nvtopo.Graph) []string {
	var rows []string
	for i := range g.Len() {
		var row []string
		for j := range g.Len() {
			if i == j {
				row = append(row, "X")
				continue
			}
			row = append(row, g.Link(i, j).Class.String())
		}
		rows = append(rows, strings.Join(row, " "))
	}
	return rows
}

// uniform is the matrix in which every pair has one class.
func uniform(n int, class string) []string {
	rows := make([]string, n)
	for i := range n {
		row := make([]string, n)
		for j := range n {
			row[j] = class
		}
		row[i] = "X"
		rows[i] = strings.Join(row, " ")
	}
	return rows
}

func discover(t *testing.T, lib Library, root string, opts Options) (*nvtopo.Graph, []Problem) {
	t.Helper()
	g, problems, err := Discover(t.Context(), lib, root, opts)
	if err != nil {
		t.Fatalf("Discover: %v (problems: %s)", err, texts(problems))
	}
	return g, problems
}

func TestKnownMachineLinks(t *testing.T) {
	dgx1Rows := []string{
		"X NV1 NV1 NV2 NV2 SYS SYS SYS",
		"NV1 X NV2 NV1 SYS NV2 SYS SYS",
		"NV1 NV2 X NV2 SYS SYS NV1 SYS",
		"NV2 NV1 NV2 X SYS SYS SYS NV1",
		"NV2 SYS SYS SYS X NV1 NV1 NV2",
		"SYS NV2 SYS SYS NV1 X NV2 NV1",
		"SYS SYS NV1 SYS NV1 NV2 X NV2",
		"SYS SYS SYS NV1 NV2 NV1 NV2 X",
	}
	tests := map[string]struct {
		lib          func() *fakeLib
		wantMatrix   []string
		wantSwitched bool
		wantGBps     float64 // of the pair 0-1
		wantProblems []string
	}{
		"DGX-1 with V100: direct links are counted pair by pair": {
			lib: func() *fakeLib {
				l := machine(8, "Tesla V100-SXM2-32GB", 7, 3, halves(8))
				l.directLinks(dgx1V)
				return l
			},
			wantMatrix: dgx1Rows, wantGBps: 25,
		},
		"DGX-1 with a driver that lacks remote type, peer status and fabric": {
			lib: func() *fakeLib {
				l := machine(8, "Tesla V100-SXM2-32GB", 7, 3, halves(8))
				l.directLinks(dgx1V)
				for _, g := range l.gpus {
					for _, m := range []string{"NVLinkRemoteType", "NVLinkPeer", "Fabric", "RowRemap", "Recovery", "MIGEnabled"} {
						g.errs[m] = notSupported(m)
					}
				}
				return l
			},
			wantMatrix: dgx1Rows, wantGBps: 25,
		},
		"HGX H100: links end at four switches with addresses": {
			lib: func() *fakeLib {
				l := machine(8, "NVIDIA H100 80GB HBM3", 9, 5, halves(8))
				l.switchLinks(18, RemoteSwitch, "00000000:05:00.0", "00000000:06:00.0", "00000000:07:00.0", "00000000:08:00.0")
				return l
			},
			wantMatrix: uniform(8, "NV18"), wantSwitched: true, wantGBps: 450,
		},
		"DGX-2: two sets of switches, no common address": {
			lib: func() *fakeLib {
				l := machine(4, "Tesla V100-SXM3-32GB", 7, 3, halves(4))
				l.switchLinks(6, RemoteSwitch, "00000000:34:00.0", "00000000:36:00.0")
				for _, g := range l.gpus[2:] {
					for k := range g.links {
						g.links[k].remote = "00000000:B4:00.0"
					}
				}
				return l
			},
			wantMatrix: uniform(4, "NV6"), wantSwitched: true, wantGBps: 150,
		},
		"HGX B200: the far end is all ones, its type unknown": {
			lib: func() *fakeLib {
				l := machine(8, "NVIDIA B200", 10, 5, halves(8))
				l.switchLinks(18, RemoteUnknown, allOnes)
				return l
			},
			wantMatrix: uniform(8, "NV18"), wantSwitched: true, wantGBps: 900,
		},
		"HGX B200 in a virtual machine whose driver says neither type nor peer": {
			lib: func() *fakeLib {
				l := machine(4, "NVIDIA B200", 10, 5, halves(4))
				l.switchLinks(18, RemoteUnknown, allOnes)
				for _, g := range l.gpus {
					g.errs["NVLinkRemoteType"], g.errs["NVLinkPeer"] = notSupported("NVLinkRemoteType"), notSupported("NVLinkPeer")
				}
				return l
			},
			wantMatrix: uniform(4, "NV18"), wantSwitched: true, wantGBps: 900,
		},
		"GB200 tray: one clique of a rack": {
			lib: func() *fakeLib {
				l := machine(4, "NVIDIA GB200", 10, 5, halves(4))
				l.switchLinks(18, RemoteSwitch, allOnes)
				for _, g := range l.gpus {
					g.fabric = Fabric{State: FabricCompleted, Cluster: [16]byte{0xdc, 0x6e}, Clique: 2, Health: FabricHealthy}
				}
				return l
			},
			wantMatrix: uniform(4, "NV18"), wantSwitched: true, wantGBps: 900,
		},
		"GPUs of two cliques are not joined, whatever their links say": {
			lib: func() *fakeLib {
				l := machine(4, "NVIDIA GB200", 10, 5, halves(4))
				l.switchLinks(18, RemoteSwitch, allOnes)
				for i, g := range l.gpus {
					g.fabric = Fabric{State: FabricCompleted, Clique: uint32(i / 2)}
				}
				return l
			},
			wantMatrix:   []string{"X NV18 SYS SYS", "NV18 X SYS SYS", "SYS SYS X NV18", "SYS SYS NV18 X"},
			wantSwitched: true, wantGBps: 900,
		},
		"Hopper with registration in progress: links are up and carry nothing": {
			lib: func() *fakeLib {
				l := machine(4, "NVIDIA H100 80GB HBM3", 9, 5, halves(4))
				l.switchLinks(18, RemoteSwitch, "00000000:05:00.0")
				l.gpus[3].fabric = Fabric{State: FabricInProgress}
				return l
			},
			wantMatrix:   []string{"X NV18 NV18 SYS", "NV18 X NV18 SYS", "NV18 NV18 X NODE", "SYS SYS NODE X"},
			wantSwitched: true, wantGBps: 450,
			wantProblems: []string{"GPU-03: NVSwitch fabric registration is in progress"},
		},
		"Hopper with a failed registration": {
			lib: func() *fakeLib {
				l := machine(2, "NVIDIA H100 80GB HBM3", 9, 5, halves(4))
				l.switchLinks(18, RemoteSwitch, "00000000:05:00.0")
				l.gpus[0].fabric.Status = &Error{Call: "fabric registration", Text: "Unknown Error"}
				return l
			},
			wantMatrix: uniform(2, "NODE"), wantGBps: 40.8,
			wantProblems: []string{"GPU-00: NVSwitch fabric registration failed: fabric registration: Unknown Error"},
		},
		"Hopper whose fabric state cannot be read is not trusted": {
			lib: func() *fakeLib {
				l := machine(2, "NVIDIA H100 80GB HBM3", 9, 5, halves(4))
				l.switchLinks(18, RemoteSwitch, "00000000:05:00.0")
				l.gpus[0].fabric = Fabric{}
				l.gpus[0].errs["Fabric"] = &Error{Call: "nvmlDeviceGetGpuFabricInfoV", Text: "Unknown Error"}
				return l
			},
			wantMatrix: uniform(2, "NODE"), wantGBps: 40.8,
			wantProblems: []string{
				"GPU-00: fabric state: nvmlDeviceGetGpuFabricInfoV: Unknown Error",
				"GPU-00: NVSwitch fabric registration has not started",
			},
		},
		"an unhealthy fabric counts where the driver vouches for the pair": {
			lib: func() *fakeLib {
				l := machine(3, "NVIDIA GB200", 10, 5, func(int, int) Ancestor { return AncestorSystem })
				l.switchLinks(18, RemoteSwitch, allOnes)
				l.gpus[0].fabric.Health = FabricUnhealthy
				l.gpus[0].peer["GPU-02"] = PeerUnknown
				return l
			},
			wantMatrix:   []string{"X NV18 SYS", "NV18 X NV18", "SYS NV18 X"},
			wantSwitched: true, wantGBps: 900,
			wantProblems: []string{"GPU-00: NVSwitch fabric is unhealthy"},
		},
		"Ampere needs no fabric registration": {
			lib: func() *fakeLib {
				l := machine(4, "NVIDIA A100-SXM4-80GB", 8, 4, halves(4))
				l.switchLinks(12, RemoteSwitch, "00000000:05:00.0")
				return l
			},
			wantMatrix: uniform(4, "NV12"), wantSwitched: true, wantGBps: 300,
		},
		"a switch pair has the fewer of both ends' active links": {
			lib: func() *fakeLib {
				l := machine(3, "NVIDIA A100-SXM4-80GB", 8, 4, halves(2))
				l.switchLinks(12, RemoteSwitch, "00000000:05:00.0")
				for k := range 3 {
					l.gpus[1].links[k].up = false
				}
				l.gpus[2].errs["NVLinkActive5"] = &Error{Call: "nvmlDeviceGetNvLinkState", Text: "Unknown Error"}
				return l
			},
			wantMatrix:   []string{"X NV9 NV11", "NV9 X NV9", "NV11 NV9 X"},
			wantSwitched: true, wantGBps: 225,
			wantProblems: []string{
				"GPU-01: 3 of 12 NVLinks are down",
				"GPU-02: NVLink 5: nvmlDeviceGetNvLinkState: Unknown Error",
				"GPU-02: 1 of 12 NVLinks are down",
			},
		},
		"a bridge seated badly: all links of one end are down": {
			lib: func() *fakeLib {
				l := machine(2, "NVIDIA A100 80GB PCIe", 8, 4, func(int, int) Ancestor { return AncestorHostBridge })
				l.directLinks([][]int{{0, 12}, {12, 0}})
				for k := range l.gpus[1].links {
					l.gpus[1].links[k].up = false
				}
				return l
			},
			wantMatrix: uniform(2, "PHB"), wantGBps: 21.6,
			wantProblems: []string{"GPU-01: 12 of 12 NVLinks are down"},
		},
		"links to POWER9 CPUs are not links to GPUs": {
			lib: func() *fakeLib {
				l := machine(2, "Tesla V100-SXM2-16GB", 7, 3, func(int, int) Ancestor { return AncestorSystem })
				for _, g := range l.gpus {
					for range 3 {
						g.links = append(g.links, fakeLink{up: true, remote: "00000004:00:00.0", kind: RemoteCPU})
					}
					g.peer = map[string]PeerStatus{"GPU-00": PeerOK, "GPU-01": PeerOK}
				}
				return l
			},
			wantMatrix: uniform(2, "SYS"), wantGBps: 6,
		},
		"a pair that the driver refuses has no switch path": {
			lib: func() *fakeLib {
				l := machine(2, "NVIDIA A100-SXM4-80GB", 8, 4, func(int, int) Ancestor { return AncestorMultiple })
				l.switchLinks(12, RemoteSwitch, allOnes)
				l.gpus[0].peer["GPU-01"] = PeerRefused
				return l
			},
			wantMatrix: uniform(2, "PXB"), wantGBps: 22.8,
		},
		"a GPU in MIG mode has no peer links": {
			lib: func() *fakeLib {
				l := machine(3, "NVIDIA A100-SXM4-80GB", 8, 4, func(int, int) Ancestor { return AncestorMultiple })
				l.switchLinks(12, RemoteSwitch, "00000000:05:00.0")
				l.gpus[2].mig = true
				return l
			},
			wantMatrix:   []string{"X NV12 PXB", "NV12 X PXB", "PXB PXB X"},
			wantSwitched: true, wantGBps: 300,
		},
		"no NVLink at all: every PCIe level by name": {
			lib: func() *fakeLib {
				levels := [][]Ancestor{
					{0, AncestorInternal, AncestorSingle, AncestorMultiple},
					{AncestorInternal, 0, AncestorHostBridge, AncestorNode},
					{AncestorSingle, AncestorHostBridge, 0, AncestorSystem},
					{AncestorMultiple, AncestorNode, AncestorSystem, 0},
				}
				return machine(4, "NVIDIA L40S", 8, 4, func(i, j int) Ancestor { return levels[i][j] })
			},
			wantMatrix: []string{"X PIX PIX PXB", "PIX X PHB NODE", "PIX PHB X SYS", "PXB NODE SYS X"},
			wantGBps:   24,
		},
		"a far end of unknown kind counts only when the driver vouches for the pair": {
			lib: func() *fakeLib {
				l := machine(3, "NVIDIA A100-SXM4-80GB", 8, 4, func(int, int) Ancestor { return AncestorNode })
				l.switchLinks(12, RemoteUnknown, "00000000:77:00.0")
				l.gpus[0].peer["GPU-02"] = PeerUnknown
				return l
			},
			wantMatrix:   []string{"X NV12 NODE", "NV12 X NV12", "NODE NV12 X"},
			wantSwitched: true, wantGBps: 300,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			lib := tc.lib()
			s := newTree(t)
			s.twoSockets()
			s.gpusOnSockets(len(lib.gpus))
			g, problems := discover(t, lib, s.root, Options{})
			if diff := cmp.Diff(tc.wantMatrix, matrix(g)); diff != "" {
				t.Errorf("links (-want,+got):\n%s", diff)
			}
			if diff := cmp.Diff(strings.Join(tc.wantProblems, "\n"), strings.TrimSpace(texts(problems))); diff != "" {
				t.Errorf("problems (-want,+got):\n%s", diff)
			}
			l := g.Link(0, 1)
			if got := nvtopo.GBps(l.Bandwidth); got != tc.wantGBps || l.Switched != tc.wantSwitched {
				t.Errorf("link 0-1: %g GB/s switched=%v, want %g GB/s switched=%v", got, l.Switched, tc.wantGBps, tc.wantSwitched)
			}
			if got := lib.references(); got != 0 {
				t.Errorf("%d references on the library are left", got)
			}
		})
	}
}

// TestSwitchPCIClass: the PCI class distinguishes a switch from a hidden GPU when the driver has no
// remote type.
func TestSwitchPCIClass(t *testing.T) {
	for vendor, want := range map[string]string{"0x10de": "NV12", "0x1014": "NODE"} {
		t.Run(vendor, func(t *testing.T) {
			lib := machine(2, "NVIDIA A100-SXM4-80GB", 8, 4, func(int, int) Ancestor { return AncestorNode })
			lib.switchLinks(12, RemoteUnknown, "00000000:05:00.0")
			for _, g := range lib.gpus {
				g.errs["NVLinkRemoteType"] = notSupported("NVLinkRemoteType")
				g.errs["NVLinkPeer"] = notSupported("NVLinkPeer")
			}
			s := newTree(t)
			s.twoSockets()
			s.gpusOnSockets(2)
			dir := s.pci("pci0000:00/0000:00:01.0/0000:05:00.0", 0, "")
			s.file(dir+"/class", "0x068000")
			s.file(dir+"/vendor", vendor)
			g, _ := discover(t, lib, s.root, Options{})
			if got := g.Link(0, 1).Class.String(); got != want {
				t.Errorf("class = %s, want %s", got, want)
			}
		})
	}
}

func TestSysfsNodes(t *testing.T) {
	lib := machine(2, "NVIDIA L40S", 8, 0, func(int, int) Ancestor { return AncestorSystem })
	lib.gpus[0].bus = "0000000F:01:00.0" // a domain above 0, upper case
	for _, g := range lib.gpus {
		g.errs["MaxPCIeGen"] = notSupported("MaxPCIeGen")
	}
	s := newTree(t)
	s.twoSockets()
	for path, numa := range map[string]int{"pci000f:00/000f:00:00.0/000f:01:00.0": 1, "pci0000:10/0000:10:01.0/0000:11:00.0": 0} {
		s.file(s.pci(path, numa, "2-3")+"/max_link_speed", "32.0 GT/s PCIe")
	}
	g, problems := discover(t, lib, s.root, Options{})
	if len(problems) != 0 {
		t.Errorf("problems: %s", texts(problems))
	}
	wantGPU := nvtopo.GPU{
		UUID: "GPU-00", Index: 0, PCIBusID: "000f:01:00.0", Model: "NVIDIA L40S", Memory: 80 << 30, NUMANode: 1, CPUs: nvtopo.CPUSet{2, 3},
	}
	if diff := cmp.Diff(wantGPU, g.GPUs[0]); diff != "" {
		t.Errorf("GPU 0 (-want,+got):\n%s", diff)
	}
	wantNode := nvtopo.NUMANode{
		ID: 1, CPUs: nvtopo.NewCPUSet(4, 5, 6, 7, 12, 13, 14, 15), Memory: 1 << 30, Distances: []int{21, 10},
		Siblings: []nvtopo.CPUSet{{4, 12}, {5, 13}, {6, 14}, {7, 15}},
	}
	if diff := cmp.Diff(wantNode, g.NUMANodes[1]); diff != "" {
		t.Errorf("NUMA node 1 (-want,+got):\n%s", diff)
	}
	if got, want := nvtopo.GBps(g.Link(0, 1).Bandwidth), 22.0; got != want {
		t.Errorf("SYS at the generation sysfs states: %g GB/s, want %g", got, want)
	}
}

func TestDeviceNUMANode(t *testing.T) {
	tests := map[string]struct {
		nodes func(s tree)
		numa  int
		want  int
	}{
		"-1 on a machine of two nodes is unknown": {
			nodes: func(s tree) { s.twoSockets() }, numa: -1, want: nvtopo.UnknownNUMA,
		},
		"-1 on a machine with CPUs on one node only is that node": {
			nodes: func(s tree) {
				s.file("devices/system/node/online", "0-1")
				s.numa(0, "", "10 20", 1)
				s.numa(1, "0-3", "20 10", 1)
			}, numa: -1, want: 1,
		},
		"-1 without NUMA support is node 0": {
			nodes: func(s tree) { s.file("devices/system/cpu/online", "0-3") }, numa: -1, want: 0,
		},
		"a memory-only node maps to the nearest one with CPUs": {
			nodes: func(s tree) {
				s.file("devices/system/node/online", "0-2")
				s.numa(0, "0-3", "10 40 80", 1)
				s.numa(1, "4-7", "40 10 120", 1)
				s.numa(2, "", "80 120 10", 1)
			}, numa: 2, want: 0,
		},
		"a memory-only node between two is unknown": {
			nodes: func(s tree) {
				s.file("devices/system/node/online", "0-2")
				s.numa(0, "0-3", "10 40 80", 1)
				s.numa(1, "4-7", "40 10 80", 1)
				s.numa(2, "", "80 80 10", 1)
			}, numa: 2, want: nvtopo.UnknownNUMA,
		},
		"a node the kernel does not list is unknown": {
			nodes: func(s tree) { s.twoSockets() }, numa: 7, want: nvtopo.UnknownNUMA,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newTree(t)
			tc.nodes(s)
			s.pci("pci0000:10/0000:10:01.0/0000:10:00.0", tc.numa, "0-3")
			g, _ := discover(t, machine(1, "NVIDIA L4", 8, 4, nil), s.root, Options{})
			if got := g.GPUs[0].NUMANode; got != tc.want {
				t.Errorf("NUMA node = %d, want %d", got, tc.want)
			}
			if tc.want == nvtopo.UnknownNUMA && len(g.GPUs[0].CPUs) != 0 {
				t.Errorf("CPUs = %s for a GPU on an unknown node", g.GPUs[0].CPUs)
			}
		})
	}
}

func TestNICLevels(t *testing.T) {
	lib := machine(2, "NVIDIA H100 PCIe", 9, 5, func(int, int) Ancestor { return AncestorSystem })
	s := newTree(t)
	s.twoSockets()
	const rp = "pci0000:00/0000:00:01.0/0000:01:00.0/"
	s.pci(rp+"0000:02:00.0/0000:10:00.0", 0, "0-3,8-11") // GPU 0
	s.pci("pci0000:90/0000:90:01.0/0000:11:00.0", 1, "4-7")
	for name, d := range map[string]struct {
		path string
		numa int
	}{
		"mlx5_0": {rp + "0000:02:01.0/0000:20:00.0", 0},
		"mlx5_1": {rp + "0000:02:02.0/0000:03:00.0/0000:04:00.0/0000:21:00.0", 0},
		"mlx5_2": {"pci0000:00/0000:00:02.0/0000:22:00.0", 0},
		"mlx5_3": {"pci0000:40/0000:40:01.0/0000:23:00.0", 0},
		"mlx5_4": {"pci0000:50/0000:50:01.0/0000:24:00.0", -1},
	} {
		s.pci(d.path, d.numa, "")
		s.rdma(name, d.path)
	}
	s.file("class/infiniband/rxe0/node_type", "1: CA") // soft RoCE: no PCI device
	g, _ := discover(t, lib, s.root, Options{})
	var got []string
	for _, n := range g.NICs {
		got = append(got, fmt.Sprintf("%s node %d: %s %s", n.Name, n.NUMANode, n.Levels[0], n.Levels[1]))
	}
	want := []string{
		"mlx5_0 node 0: PIX SYS", "mlx5_1 node 0: PXB SYS", "mlx5_2 node 0: PHB SYS", "mlx5_3 node 0: NODE SYS", "mlx5_4 node -1:  ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("NICs (-want,+got):\n%s", diff)
	}
}

// TestSysfsPCIeLevel: the PCIe level is taken from sysfs when the driver reports none.
func TestSysfsPCIeLevel(t *testing.T) {
	lib := machine(2, "NVIDIA L40S", 8, 4, func(int, int) Ancestor { return 0 })
	for _, g := range lib.gpus {
		g.errs["CommonAncestor"] = notSupported("CommonAncestor")
	}
	s := newTree(t)
	s.twoSockets()
	s.gpusOnSockets(2)
	g, problems := discover(t, lib, s.root, Options{})
	if got := g.Link(0, 1).Class.String(); got != "SYS" || len(problems) != 0 {
		t.Errorf("class %s, problems %s; want SYS by the NUMA nodes and no problem", got, texts(problems))
	}
	// Without sysfs either the worst class stands, and is reported.
	bare := newTree(t)
	bare.twoSockets()
	g, problems = discover(t, lib, bare.root, Options{})
	if got := g.Link(0, 1).Class.String(); got != "SYS" || !strings.Contains(texts(problems), "PCIe path to GPU-01 is not known") {
		t.Errorf("class %s, problems %s; want SYS and a problem", got, texts(problems))
	}
}

// TestDiscoverErrors: Discover fails only when nothing can be said.
func TestDiscoverErrors(t *testing.T) {
	s := newTree(t)
	s.twoSockets()
	none := &fakeLib{initErr: &Error{Call: "nvmlInit", Kind: KindNoDriver, Text: "Driver Not Loaded"}}
	_, _, err := Discover(t.Context(), none, s.root, Options{})
	if !IsNoDriver(err) {
		t.Errorf("error %v, want one of kind no driver", err)
	}
	if _, _, err := Discover(t.Context(), machine(1, "x", 8, 4, nil), t.TempDir(), Options{}); err == nil {
		t.Error("a machine without sysfs was read")
	}
	g, _ := discover(t, &fakeLib{}, s.root, Options{})
	if g.Len() != 0 || len(g.NUMANodes) != 2 {
		t.Errorf("a node without GPUs: %d GPUs, %d NUMA nodes", g.Len(), len(g.NUMANodes))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if _, _, err := Discover(ctx, machine(1, "x", 8, 4, nil), s.root, Options{}); err == nil {
		t.Error("discovery went on after its context had ended")
	}
}
