// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

// The tests in this file are about kubelet: each checks one assumption of the node agent on kubelet's own
// code and with a plugin with scripted answers. One that fails after an update of kubelet names the
// assumption that no longer holds.

const gpu = "nvidia.com/gpu"

// tries is large enough that a random choice does not look constant by chance: the least varied one here
// has 4 outcomes, 4^-19 of showing a single one.
const tries = 20

// node is a kubelet with one scripted plugin.
type node struct {
	*devicemanager.Manager
	plugin *devicemanager.Plugin
}

// answer returns a script that always prefers ids.
func answer(ids ...string) func([]string, []string, int) ([]string, error) {
	return func([]string, []string, int) ([]string, error) { return ids, nil }
}

// lowest prefers the devices that must be included and then the lowest numbers.
func lowest(available, must []string, size int) ([]string, error) {
	out := slices.Clone(must)
	for _, id := range available {
		if len(out) < size && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out, nil
}

func startNode(t *testing.T, o devicemanager.Options, p devicemanager.PluginOptions) node {
	t.Helper()
	n := node{Manager: devicemanager.Start(t, o)}
	p.Resource = gpu
	if p.Devices == nil {
		p.Devices = devicemanager.Devices("G", 8, 0)
	}
	n.plugin = devicemanager.StartPlugin(t, p)
	n.WaitAllocatable(t, gpu, int64(len(p.Devices)))
	return n
}

func (n node) mustAdmit(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, p := range pods {
		if refusal := n.Admit(p); refusal != nil {
			t.Fatalf("pod %s was refused: %v", p.Name, refusal)
		}
	}
}

// app returns pod number i with one container that requests n devices.
func app(i, n int) *v1.Pod {
	return devicemanager.Pod(fmt.Sprintf("pod-%d", i), i, devicemanager.Container("app", gpu, n))
}

// outcomes admits new pods repeatedly, each alone on the node, and counts kubelet's records of one
// container.
func (n node) outcomes(t *testing.T, container string, pod func(i int) *v1.Pod) map[string]int {
	t.Helper()
	out := map[string]int{}
	for i := range tries {
		p := pod(i)
		n.mustAdmit(t, p)
		out[strings.Join(n.Recorded(t, p.UID, container), ",")]++
		n.Remove(p)
	}
	return out
}

func rpcs(calls []devicemanager.Call) []string {
	out := []string{}
	for _, c := range calls {
		out = append(out, c.RPC)
	}
	return out
}

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func partOf(part, whole []string) bool {
	return !slices.ContainsFunc(part, func(id string) bool { return !slices.Contains(whole, id) })
}

// TestPreferredDevices checks that kubelet takes the preferred devices.
func TestPreferredDevices(t *testing.T) {
	t.Run("a preferred answer of exactly the size is recorded, whatever kubelet's own order", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: answer("G0", "G3")})
		got := n.outcomes(t, "app", func(i int) *v1.Pod { return app(i, 2) })
		diff(t, "records", map[string]int{"G0,G3": tries}, got)
	})
	t.Run("it is asked once a container, with everything free and nothing that must be taken", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest})
		n.mustAdmit(t, app(0, 3))
		n.plugin.Calls()
		n.mustAdmit(t, app(1, 2))
		want := []devicemanager.Call{
			{RPC: "GetPreferredAllocation", Available: []string{"G3", "G4", "G5", "G6", "G7"}, Size: 2},
			{RPC: "Allocate", IDs: []string{"G3", "G4"}},
		}
		got := n.plugin.Calls()
		slices.Sort(got[1].IDs)
		diff(t, "calls", want, got)
	})
	t.Run("a burst is asked about in the order of creation", func(t *testing.T) {
		var sizes []int
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{
			Preferred: func(available, must []string, size int) ([]string, error) {
				sizes = append(sizes, size)
				return lowest(available, must, size)
			},
		})
		if refused := n.AdmitAll(app(3, 1), app(1, 2), app(0, 4)); len(refused) > 0 {
			t.Fatalf("refused: %v", refused)
		}
		diff(t, "sizes asked for", []int{4, 2, 1}, sizes)
	})
	t.Run("an answer that is too large is sampled at random", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: answer("G0", "G1", "G2", "G3")})
		got := n.outcomes(t, "app", func(i int) *v1.Pod { return app(i, 2) })
		if len(got) < 2 {
			t.Errorf("%d pods all got %v, want different ones of the four preferred", tries, got)
		}
		for ids := range got {
			if !partOf(strings.Split(ids, ","), []string{"G0", "G1", "G2", "G3"}) {
				t.Errorf("recorded %s, not of the preferred", ids)
			}
		}
	})
	t.Run("an answer that is too short is silently filled up at random", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: answer("G5")})
		got := n.outcomes(t, "app", func(i int) *v1.Pod { return app(i, 2) })
		if len(got) < 2 {
			t.Errorf("%d pods all got %v, want different ones", tries, got)
		}
		for ids := range got {
			if !strings.Contains(ids, "G5") {
				t.Errorf("recorded %s without the preferred G5", ids)
			}
		}
	})
	t.Run("devices that are unknown, unhealthy or taken are silently replaced at random", func(t *testing.T) {
		devices := devicemanager.Devices("G", 8, 0)
		devices[1].Health = pluginapi.Unhealthy
		prefer := []string{"G0"}
		n := node{Manager: devicemanager.Start(t, devicemanager.Options{})}
		n.plugin = devicemanager.StartPlugin(t, devicemanager.PluginOptions{
			Resource: gpu, Devices: devices,
			Preferred: func([]string, []string, int) ([]string, error) { return prefer, nil },
		})
		n.WaitAllocatable(t, gpu, 7)
		n.mustAdmit(t, app(100, 1))
		prefer = []string{"G0", "G1", "nonsense"}
		got := n.outcomes(t, "app", func(i int) *v1.Pod { return app(i, 3) })
		if len(got) < 2 {
			t.Errorf("%d pods all got %v, want different ones", tries, got)
		}
		for ids := range got {
			if strings.Contains(ids, "G0") || strings.Contains(ids, "G1") {
				t.Errorf("recorded %s, which holds a taken or unhealthy device", ids)
			}
		}
	})
	t.Run("an error refuses the pod and leaves nothing taken", func(t *testing.T) {
		fail := true
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{
			Preferred: func(available, must []string, size int) ([]string, error) {
				if fail {
					return nil, errors.New("no such pair")
				}
				return lowest(available, must, size)
			},
		})
		refusal := n.Admit(app(0, 2))
		if refusal == nil || refusal.Reason != "UnexpectedAdmissionError" || !strings.Contains(refusal.Message, "no such pair") {
			t.Fatalf("refusal %v, want UnexpectedAdmissionError with the plugin's message", refusal)
		}
		fail = false
		n.mustAdmit(t, app(1, 8))
	})
	t.Run("an error of Allocate refuses the pod and leaves nothing taken", func(t *testing.T) {
		fail := true
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: lowest, Allocate: func([]string) error {
			if fail {
				return errors.New("held by another")
			}
			return nil
		}})
		refusal := n.Admit(app(0, 2))
		if refusal == nil || refusal.Reason != "UnexpectedAdmissionError" || !strings.Contains(refusal.Message, "held by another") {
			t.Fatalf("refusal %v, want UnexpectedAdmissionError with the plugin's message", refusal)
		}
		fail = false
		n.mustAdmit(t, app(1, 8))
	})
	t.Run("Allocate hears the devices in no particular order", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{Preferred: answer("G0", "G1", "G2", "G3")})
		orders := map[string]bool{}
		for i := range tries {
			p := app(i, 4)
			n.mustAdmit(t, p)
			n.Remove(p)
		}
		for _, c := range n.plugin.Calls() {
			if c.RPC == "Allocate" {
				orders[strings.Join(c.IDs, ",")] = true
			}
		}
		if len(orders) < 2 {
			t.Errorf("always the order %v", orders)
		}
	})
	t.Run("without the preferred hook the choice is random", func(t *testing.T) {
		n := startNode(t, devicemanager.Options{}, devicemanager.PluginOptions{})
		if got := n.outcomes(t, "app", func(i int) *v1.Pod { return app(i, 2) }); len(got) < 2 {
			t.Errorf("%d pods all got %v", tries, got)
		}
	})
	t.Run("a pod refused by a later handler was given devices, and they come back with the next pod", func(t *testing.T) {
		late := true
		n := startNode(t, devicemanager.Options{Late: func(*v1.Pod) error {
			if late {
				return errors.New("predicate")
			}
			return nil
		}}, devicemanager.PluginOptions{Preferred: lowest})
		refused := app(0, 8)
		if n.Admit(refused) == nil {
			t.Fatal("admitted")
		}
		diff(t, "record of the refused pod", 8, len(n.Recorded(t, refused.UID, "app")))
		late = false
		n.mustAdmit(t, app(1, 8))
		diff(t, "record of the refused pod afterwards", 0, len(n.Recorded(t, refused.UID, "app")))
	})
}
