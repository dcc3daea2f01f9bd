// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
)

// TestKubeletVersions: where NUMA node 1 has all GPUs and node 0 all free CPUs, best-effort kubelets
// before 1.36 align a container with node 0, and others with node 1. Only the two kinds differ in
// their settings.
func TestKubeletVersions(t *testing.T) {
	before, since := []int{0}, []int{1}
	tests := map[string]struct {
		version   string
		wantNodes []int
	}{
		"an older agent tells none":          {version: "", wantNodes: before},
		"1.34":                               {version: "v1.34.4", wantNodes: before},
		"1.35 of a distribution":             {version: "v1.35.8+k3s1", wantNodes: before},
		"the first that has the change":      {version: "v1.36.0", wantNodes: since},
		"1.37 of a cloud":                    {version: "v1.37.2-gke.1000", wantNodes: since},
		"another major version":              {version: "v2.0.0", wantNodes: since},
		"a word that is no version's number": {version: "latest", wantNodes: before},
	}
	settings := map[string]bool{}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := testNode(t, true)
			g := *n.NUMA
			g.GPUs = slices.Clone(g.GPUs)
			for i := range g.GPUs {
				g.GPUs[i].NUMANode = 1
			}
			n.NUMA, n.Accels[0].Graph, n.StaticCPUs = &g, &g, true
			spec := &v1alpha1.Kubelet{
				Version: tc.version, TopologyManagerPolicy: "best-effort", CPUManagerPolicy: "static",
				ExclusiveCPUs: g.NUMANodes[1].CPUs.String(),
			}
			k, err := NewKubelet(n, spec)
			if err != nil || k == nil {
				t.Fatalf("kubelet %v, error %v", k, err)
			}
			settings[SettingsOf(spec)] = true
			c := kubeletadmission.Container{CPUs: 2}
			c.Devices[0] = 1
			state := k.account
			state.Free[0] = nvtopo.FullMask(len(g.GPUs))
			hint, ok := k.Machine.HintOf(&state, kubeletadmission.NewPod([]kubeletadmission.Container{c}), 0)
			if diff := cmp.Diff(tc.wantNodes, k.Machine.Nodes(hint.Nodes)); !ok || diff != "" {
				t.Errorf("admitted %t, nodes (-want +got):\n%s", ok, diff)
			}
		})
	}
	if len(settings) != 2 {
		t.Errorf("%d kinds of settings, want 2: %v", len(settings), settings)
	}
}
