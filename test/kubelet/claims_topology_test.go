// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

// TestDeviceAlignment checks how kubelet aligns devices to NUMA nodes.
func TestDeviceAlignment(t *testing.T) {
	// Four devices on each of two NUMA nodes.
	start := func(t *testing.T, policy string, preferred func([]string, []string, int) ([]string, error)) node {
		t.Helper()
		return startNode(t, devicemanager.Options{NUMANodes: 2, Policy: policy}, devicemanager.PluginOptions{
			Devices: devicemanager.Devices("G", 8, 2), Preferred: preferred,
		})
	}
	t.Run("under policy none the NUMA nodes of devices do not narrow the question", func(t *testing.T) {
		n := start(t, "none", answer("G0", "G7"))
		p := app(0, 2)
		n.mustAdmit(t, p)
		diff(t, "record", []string{"G0", "G7"}, n.Recorded(t, p.UID, "app"))
		diff(t, "available", 8, len(n.plugin.Calls()[0].Available))
	})
	t.Run("when fewer are needed than are aligned, only the aligned are offered", func(t *testing.T) {
		n := start(t, "best-effort", answer("G1", "G3"))
		p := app(0, 2)
		n.mustAdmit(t, p)
		diff(t, "record", []string{"G1", "G3"}, n.Recorded(t, p.UID, "app"))
		diff(t, "available", []string{"G0", "G1", "G2", "G3"}, n.plugin.Calls()[0].Available)
	})
	t.Run("an answer outside the aligned devices is replaced at random by aligned ones", func(t *testing.T) {
		n := start(t, "best-effort", answer("G6", "G7"))
		got := n.outcomes(t, "app", func(i int) *v1.Pod { return app(i, 2) })
		if len(got) < 2 {
			t.Errorf("always %v", got)
		}
		for ids := range got {
			if ids > "G3" {
				t.Errorf("recorded %s, not on NUMA node 0", ids)
			}
		}
	})
	t.Run("when exactly as many are needed as are aligned, they are taken unasked", func(t *testing.T) {
		n := start(t, "best-effort", answer("G4", "G5", "G6", "G7"))
		p := app(0, 4)
		n.mustAdmit(t, p)
		diff(t, "record", []string{"G0", "G1", "G2", "G3"}, n.Recorded(t, p.UID, "app"))
		diff(t, "calls", []string{"Allocate"}, rpcs(n.plugin.Calls()))
	})
	t.Run("a request that needs both NUMA nodes is offered every device", func(t *testing.T) {
		n := start(t, "best-effort", answer("G0", "G1", "G2", "G4", "G5", "G6"))
		p := app(0, 6)
		n.mustAdmit(t, p)
		diff(t, "record", []string{"G0", "G1", "G2", "G4", "G5", "G6"}, n.Recorded(t, p.UID, "app"))
		calls := n.plugin.Calls()
		diff(t, "available", 8, len(calls[0].Available))
		diff(t, "must", 0, len(calls[0].Must))
	})
	t.Run("of equal NUMA nodes the lowest is taken, whatever is preferred", func(t *testing.T) {
		n := start(t, "single-numa-node", answer("G4"))
		p := app(0, 1)
		n.mustAdmit(t, p)
		if got := n.Recorded(t, p.UID, "app"); got[0] > "G3" {
			t.Errorf("recorded %v, want one of NUMA node 0", got)
		}
	})
	t.Run("single-numa-node refuses what no NUMA node can hold", func(t *testing.T) {
		n := start(t, "single-numa-node", lowest)
		refusal := n.Admit(app(0, 5))
		if refusal == nil || refusal.Reason != "TopologyAffinityError" {
			t.Errorf("refusal %v, want TopologyAffinityError", refusal)
		}
		diff(t, "calls", []string{}, rpcs(n.plugin.Calls()))
	})
	t.Run("single-numa-node takes the free NUMA node when the other is short", func(t *testing.T) {
		n := start(t, "single-numa-node", lowest)
		n.mustAdmit(t, app(0, 2), app(1, 1))
		p := app(2, 2)
		n.mustAdmit(t, p)
		diff(t, "record", []string{"G4", "G5"}, n.Recorded(t, p.UID, "app"))
	})
	t.Run("pod scope gives all containers one hint and asks for each of them", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{NUMANodes: 2, Policy: "single-numa-node", Scope: "pod"}, devicemanager.PluginOptions{
			Devices: devicemanager.Devices("G", 8, 2), Preferred: lowest,
		})
		p := devicemanager.Pod("two", 0, devicemanager.Container("a", gpu, 1), devicemanager.Container("b", gpu, 3))
		n.mustAdmit(t, p)
		diff(t, "container a", []string{"G0"}, n.Recorded(t, p.UID, "a"))
		diff(t, "container b", []string{"G1", "G2", "G3"}, n.Recorded(t, p.UID, "b"))
		diff(t, "calls, the second container taking what is left unasked",
			[]string{"GetPreferredAllocation", "Allocate", "Allocate"}, rpcs(n.plugin.Calls()))
	})
	t.Run("devices without NUMA nodes get no hint, so stripping them frees the choice under every policy", func(t *testing.T) {
		for _, policy := range []string{"best-effort", "restricted", "single-numa-node"} {
			n := startNode(t, devicemanager.Options{NUMANodes: 2, Policy: policy}, devicemanager.PluginOptions{Preferred: answer("G0", "G7")})
			p := app(0, 2)
			n.mustAdmit(t, p)
			diff(t, policy, []string{"G0", "G7"}, n.Recorded(t, p.UID, "app"))
			n.plugin.Stop()
			n.Stop()
		}
	})
}

// TestInitContainerDevices checks that kubelet passes devices of init containers on to later containers.
func TestInitContainerDevices(t *testing.T) {
	pod := func(i, first, then int) *v1.Pod {
		return devicemanager.WithInit(app(i, then), devicemanager.Container("init", gpu, first))
	}
	t.Run("when the init container had more, the app's are drawn from them at random and nobody is asked", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
		got := n.outcomes(t, "app", func(i int) *v1.Pod { return pod(i, 4, 2) })
		if len(got) < 2 {
			t.Errorf("%d pods all got %v", tries, got)
		}
		for ids := range got {
			if ids > "G3" {
				t.Errorf("the app got %s, not of the init container's", ids)
			}
		}
		diff(t, "calls of one pod", []string{"GetPreferredAllocation", "Allocate", "Allocate"}, rpcs(n.plugin.Calls()[:3]))
	})
	t.Run("when it had as many, the app gets the same and nobody is asked", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: answer("G2", "G6")})
		p := pod(0, 2, 2)
		n.mustAdmit(t, p)
		diff(t, "init", []string{"G2", "G6"}, n.Recorded(t, p.UID, "init"))
		diff(t, "app", []string{"G2", "G6"}, n.Recorded(t, p.UID, "app"))
		diff(t, "calls", []string{"GetPreferredAllocation", "Allocate", "Allocate"}, rpcs(n.plugin.Calls()))
	})
	t.Run("when it had fewer, the question says that they must be included", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
		p := pod(0, 2, 4)
		n.mustAdmit(t, p)
		calls := n.plugin.Calls()
		diff(t, "calls", []string{"GetPreferredAllocation", "Allocate", "GetPreferredAllocation", "Allocate"}, rpcs(calls))
		calls[2].IDs = nil
		diff(t, "second question", devicemanager.Call{
			RPC: "GetPreferredAllocation", Must: []string{"G0", "G1"}, Size: 4,
			Available: []string{"G0", "G1", "G2", "G3", "G4", "G5", "G6", "G7"}, // devices that must be included are available too
		}, calls[2])
	})
	t.Run("an answer that leaves out what must be included gets it all the same", func(t *testing.T) {
		answers := [][]string{{"G0", "G1"}, {"G4", "G5", "G6", "G7"}}
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{
			Preferred: func([]string, []string, int) ([]string, error) {
				a := answers[0]
				answers = answers[1:]
				return a, nil
			},
		})
		p := pod(0, 2, 4)
		n.mustAdmit(t, p)
		got := n.Recorded(t, p.UID, "app")
		if len(got) != 4 || !partOf([]string{"G0", "G1"}, got) || !partOf(got[2:], []string{"G4", "G5", "G6", "G7"}) {
			t.Errorf("recorded %v, want G0, G1 and two of the preferred", got)
		}
	})
	t.Run("what the app does not take stays the pod's until it ends", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
		n.mustAdmit(t, pod(0, 6, 1))
		if n.Admit(app(1, 3)) == nil {
			t.Error("3 devices were given although the first pod's init container holds 6 of 8")
		}
		n.mustAdmit(t, app(2, 2))
	})
	t.Run("a later init container takes the earlier one's first", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
		p := devicemanager.WithInit(app(0, 4), devicemanager.Container("one", gpu, 2), devicemanager.Container("two", gpu, 4))
		n.mustAdmit(t, p)
		diff(t, "one", []string{"G0", "G1"}, n.Recorded(t, p.UID, "one"))
		diff(t, "two", []string{"G0", "G1", "G2", "G3"}, n.Recorded(t, p.UID, "two"))
		diff(t, "app", []string{"G0", "G1", "G2", "G3"}, n.Recorded(t, p.UID, "app"))
	})
	t.Run("a sidecar keeps its devices from the app", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
		p := devicemanager.WithInit(app(0, 2), devicemanager.Sidecar("sidecar", gpu, 2))
		n.mustAdmit(t, p)
		diff(t, "sidecar", []string{"G0", "G1"}, n.Recorded(t, p.UID, "sidecar"))
		diff(t, "app", []string{"G2", "G3"}, n.Recorded(t, p.UID, "app"))
	})
	t.Run("a sidecar too draws first from the init containers before it", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
		p := devicemanager.WithInit(app(0, 2), devicemanager.Container("init", gpu, 2), devicemanager.Sidecar("sidecar", gpu, 2))
		n.mustAdmit(t, p)
		diff(t, "sidecar", []string{"G0", "G1"}, n.Recorded(t, p.UID, "sidecar"))
		diff(t, "app", []string{"G2", "G3"}, n.Recorded(t, p.UID, "app"))
	})
	t.Run("of two app containers only the first is drawn from the init container's, the rest of them left over", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
		p := devicemanager.WithInit(devicemanager.Pod("two", 0,
			devicemanager.Container("a", gpu, 1), devicemanager.Container("b", gpu, 1)), devicemanager.Container("init", gpu, 2))
		n.mustAdmit(t, p)
		both := slices.Concat(n.Recorded(t, p.UID, "a"), n.Recorded(t, p.UID, "b"))
		slices.Sort(both)
		diff(t, "both app containers", []string{"G0", "G1"}, both)
		diff(t, "calls", []string{"GetPreferredAllocation", "Allocate", "Allocate", "Allocate"}, rpcs(n.plugin.Calls()))
	})
}
