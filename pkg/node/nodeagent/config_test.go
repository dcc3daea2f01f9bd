// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
)

func TestConfigDefaults(t *testing.T) {
	got, err := Config{Node: "n1", KubeletDir: "/data/kubelet"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Node: "n1", Namespace: "nvtopo-system", Mode: Repair, Topology: PassTopology, NRI: NRIOff, KubeletDir: "/data/kubelet",
		// kubelet's folder moves the one socket and not the other.
		PluginDir: "/var/lib/kubelet/device-plugins", PodResourcesSocket: "/data/kubelet/pod-resources/kubelet.sock",
		StateDir: "/var/lib/nvtopo", NRISocket: "/var/run/nri/nri.sock", SysfsRoot: "/sys",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want,+got):\n%s", diff)
	}
}

// TestConfigErrors: config mistakes are refused.
func TestConfigErrors(t *testing.T) {
	tests := map[string]struct {
		cfg  Config
		want string
	}{
		"no node":            {cfg: Config{}, want: "name is empty"},
		"a bad node name":    {cfg: Config{Node: "N_1"}, want: `node name "N_1"`},
		"an unknown mode":    {cfg: Config{Node: "n", Mode: "x"}, want: `mode "x": want repair or strict`},
		"an unknown nri":     {cfg: Config{Node: "n", NRI: "x"}, want: `nri "x": want off, report or pin`},
		"topology of nobody": {cfg: Config{Node: "n", Topology: "x"}, want: `topology "x": want pass or strip`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := tc.cfg.withDefaults(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want it to contain %q", err, tc.want)
			}
		})
	}
}

// TestMalformedTopology: a malformed topology leaves the last good one.
func TestMalformedTopology(t *testing.T) {
	m, err := machine.Lookup("dgx-h100")
	if err != nil {
		t.Fatal(err)
	}
	graph, err := m.GraphFor("n1")
	if err != nil {
		t.Fatal(err)
	}
	g, err := newNodeGraph(&rest.Config{}, "n1", func() {})
	if err != nil {
		t.Fatal(err)
	}
	if g.Tables(v1alpha1.DefaultResource) != nil || g.object() != nil {
		t.Error("something is known before the object was read")
	}
	good := v1alpha1.FromGraph("n1", v1alpha1.DefaultResource, graph)
	if err := g.take(good); err != nil {
		t.Fatal(err)
	}
	bad := good.DeepCopy()
	bad.Spec.LinkKinds[0].Class = "carrier pigeon"
	if err := g.take(bad); err == nil || !strings.Contains(err.Error(), "n1") || !strings.Contains(err.Error(), "carrier pigeon") {
		t.Errorf("error %v, want one that names the object and the value", err)
	}
	if got := g.Tables(v1alpha1.DefaultResource); got == nil || got.Graph().Len() != 8 || g.object() != good {
		t.Errorf("the last good graph is gone: %v", got)
	}
}
