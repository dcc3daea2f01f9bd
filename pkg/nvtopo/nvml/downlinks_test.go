// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// down are links that the driver calls disabled.
func down(n int) []fakeLink { return make([]fakeLink, n) }

// disable makes links of a GPU disabled.
func (g *fakeGPU) disable(links ...int) {
	for _, l := range links {
		g.links[l].up = false
	}
}

// TestNonexistentLinks: links that do not exist are not down.
func TestNonexistentLinks(t *testing.T) {
	pcie := func(name string, major, n int) *fakeLib {
		return machine(n, name, major, 4, func(int, int) Ancestor { return AncestorSystem })
	}
	tests := map[string]struct {
		lib  func() *fakeLib
		want []string
	}{
		"numbers beyond the GPU's are disabled": {
			lib: func() *fakeLib {
				l := pcie("NVIDIA H100 80GB HBM3", 9, 2)
				l.switchLinks(18, RemoteSwitch, allOnes)
				for _, g := range l.gpus {
					g.links = append(g.links, down(18)...)
				}
				return l
			},
		},
		"no bridge is plugged in (a100-pcie40-2gpu-no-bridge)": {
			lib: func() *fakeLib {
				l := pcie("NVIDIA A100-PCIE-40GB", 8, 2)
				for _, g := range l.gpus {
					g.links = down(12)
				}
				return l
			},
		},
		"a GPU stands beside a bridged pair (a6000-3gpu-nv4-plus-single)": {
			lib: func() *fakeLib {
				l := pcie("NVIDIA RTX A6000", 8, 3)
				l.directLinks([][]int{{0, 4, 0}, {4, 0, 0}, {0, 0, 0}})
				l.gpus[2].links = down(4)
				return l
			},
		},
		"a bridge joins some of the links": {
			lib: func() *fakeLib {
				l := pcie("NVIDIA A100 80GB PCIe", 8, 2)
				l.directLinks([][]int{{0, 4}, {4, 0}})
				for _, g := range l.gpus {
					g.links = append(g.links, down(8)...)
				}
				return l
			},
		},
		"the only GPU of a virtual machine has nobody to be linked with": {
			lib: func() *fakeLib {
				l := pcie("NVIDIA A100-SXM4-80GB", 8, 1)
				l.gpus[0].links = down(12)
				return l
			},
		},
		"two links of one GPU are down (azure-v100-2-inactive-links)": {
			lib: func() *fakeLib {
				l := pcie("Tesla V100-SXM2-32GB", 7, 8)
				l.directLinks(dgx1V)
				l.gpus[3].disable(3, 5)
				return l
			},
			want: []string{"GPU-03: 2 of 6 NVLinks are down"},
		},
		"all links of one GPU to switches are down": {
			lib: func() *fakeLib {
				l := pcie("NVIDIA H100 80GB HBM3", 9, 3)
				l.switchLinks(18, RemoteSwitch, allOnes)
				l.gpus[1].links = down(36)
				return l
			},
			want: []string{"GPU-01: 18 of 18 NVLinks are down"},
		},
		"nobody's links are up on a board of switches without a fabric manager": {
			lib: func() *fakeLib {
				l := pcie("NVIDIA A100-SXM4-80GB", 8, 2)
				for _, g := range l.gpus {
					g.links = down(12)
				}
				return l
			},
			want: []string{"GPU-00: 12 of 12 NVLinks are down", "GPU-01: 12 of 12 NVLinks are down"},
		},
		"nobody's links are up where the fabric is registered": {
			lib: func() *fakeLib {
				l := pcie("NVIDIA B200", 10, 2)
				for _, g := range l.gpus {
					g.links, g.fabric = down(18), Fabric{State: FabricCompleted}
				}
				return l
			},
			want: []string{"GPU-00: 18 of 18 NVLinks are down", "GPU-01: 18 of 18 NVLinks are down"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			lib, s := tc.lib(), newTree(t)
			s.twoSockets()
			s.gpusOnSockets(len(lib.gpus))
			_, problems := discover(t, lib, s.root, Options{})
			if diff := cmp.Diff(strings.Join(tc.want, "\n"), strings.TrimSpace(texts(problems))); diff != "" {
				t.Errorf("problems (-want,+got):\n%s", diff)
			}
		})
	}
}

// TestMissingLink: a link that was up is reported missing even if no other GPU has it.
func TestMissingLink(t *testing.T) {
	lib := machine(2, "NVIDIA A100 80GB PCIe", 8, 4, func(int, int) Ancestor { return AncestorSystem })
	lib.directLinks([][]int{{0, 4}, {4, 0}})
	s := newTree(t)
	s.twoSockets()
	s.gpusOnSockets(2)
	d := New(lib, s.root, Options{})
	if _, problems, err := d.Graph(t.Context()); err != nil || len(problems) > 0 {
		t.Fatalf("error %v, problems %s", err, texts(problems))
	}
	for _, g := range lib.gpus {
		g.disable(0, 1, 2, 3)
	}
	for range 2 {
		_, problems, err := d.Graph(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := "GPU-00: 4 of 4 NVLinks are down\nGPU-01: 4 of 4 NVLinks are down"
		if diff := cmp.Diff(want, strings.TrimSpace(texts(problems))); diff != "" {
			t.Errorf("problems (-want,+got):\n%s", diff)
		}
	}
}
