// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestEffectiveRequest: the effective request follows the framework's rule.
func TestEffectiveRequest(t *testing.T) {
	tests := map[string]struct {
		init, app []v1.Container
		want      int
	}{
		"app containers add up":                          {app: []v1.Container{testobj.Container("a", 2), testobj.Container("b", 1)}, want: 3},
		"an init container that asks for more decides":   {init: []v1.Container{testobj.Container("i", 4)}, app: []v1.Container{testobj.Container("a", 2)}, want: 4},
		"init containers do not add up":                  {init: []v1.Container{testobj.Container("i", 2), testobj.Container("j", 3)}, app: []v1.Container{testobj.Container("a", 2)}, want: 3},
		"a sidecar runs beside the app":                  {init: []v1.Container{testobj.Sidecar("s", 1)}, app: []v1.Container{testobj.Container("a", 2)}, want: 3},
		"an init container after a sidecar runs with it": {init: []v1.Container{testobj.Sidecar("s", 2), testobj.Container("i", 3)}, app: []v1.Container{testobj.Container("a", 1)}, want: 5},
		"an init container before a sidecar does not":    {init: []v1.Container{testobj.Container("i", 3), testobj.Sidecar("s", 2)}, app: []v1.Container{testobj.Container("a", 1)}, want: 3},
		"no GPUs": {app: []v1.Container{testobj.Container("a", 0)}, want: 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := Parse(testobj.Pod("p").InitContainers(tc.init...).Containers(tc.app...).Obj(), testOptions())
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for _, x := range r.Resources {
				got += x.Count
			}
			if got != tc.want {
				t.Errorf("effective request %d, want %d", got, tc.want)
			}
		})
	}
}

// TestStrictAnnotations: annotations are read strictly.
func TestStrictAnnotations(t *testing.T) {
	tests := map[string]struct {
		annotations map[string]string
		want        nvtopo.Constraint
		wantAff     Affinity
		wantErr     string
	}{
		"nothing set": {want: nvtopo.Constraint{Policy: nvtopo.PolicyBestEffort}},
		"every input": {
			annotations: map[string]string{
				TopologyPolicyKey: "restricted", NUMAAffinityKey: "required", MinLinkKey: "NV2", MinBandwidthKey: "22.8",
				AllowMixedModelsKey: "true", GPUModelKey: "NVIDIA-H100-80GB-HBM3, A100", MinGPUMemoryKey: "40Gi",
			},
			want: nvtopo.Constraint{
				Policy: nvtopo.PolicyRestricted, MinLink: nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 2},
				MinBandwidth: 22_800_000, AllowMixedModels: true,
			},
			wantAff: AffinityRequired,
		},
		"the alias of the policy value": {annotations: map[string]string{TopologyPolicyKey: "single-numa"}, want: nvtopo.Constraint{Policy: nvtopo.PolicySingleNUMANode}},
		"the aliases of the keys": {
			annotations: map[string]string{"scheduling.k8s.io/topology-policy": "none", "scheduling.k8s.io/numa-affinity": "preferred"},
			want:        nvtopo.Constraint{Policy: nvtopo.PolicyNone}, wantAff: AffinityPreferred,
		},
		"our key wins over an alias": {
			annotations: map[string]string{TopologyPolicyKey: "restricted", "topology.kubernetes.io/policy": "none"},
			want:        nvtopo.Constraint{Policy: nvtopo.PolicyRestricted},
		},
		"HAMi's topology-aware is best-effort": {
			annotations: map[string]string{"hami.io/gpu-scheduler-policy": "topology-aware"}, want: nvtopo.Constraint{Policy: nvtopo.PolicyBestEffort},
		},
		"an unknown policy names its key":   {annotations: map[string]string{TopologyPolicyKey: "strict"}, wantErr: TopologyPolicyKey},
		"an unknown alias value names it":   {annotations: map[string]string{"topology.kubernetes.io/policy": "x"}, wantErr: "topology.kubernetes.io/policy"},
		"an unknown affinity names its key": {annotations: map[string]string{NUMAAffinityKey: "yes"}, wantErr: NUMAAffinityKey},
		"an unknown link class":             {annotations: map[string]string{MinLinkKey: "NV0"}, wantErr: MinLinkKey},
		"a negative bandwidth":              {annotations: map[string]string{MinBandwidthKey: "-1"}, wantErr: MinBandwidthKey},
		"a bandwidth that is no number":     {annotations: map[string]string{MinBandwidthKey: "NaN"}, wantErr: MinBandwidthKey},
		"an absurd bandwidth":               {annotations: map[string]string{MinBandwidthKey: "1e300"}, wantErr: MinBandwidthKey},
		"a boolean that is none":            {annotations: map[string]string{AllowMixedModelsKey: "maybe"}, wantErr: AllowMixedModelsKey},
		"movable that is neither":           {annotations: map[string]string{MovableKey: "sometimes"}, wantErr: MovableKey},
		"an empty model":                    {annotations: map[string]string{GPUModelKey: "H100,,A100"}, wantErr: GPUModelKey},
		"memory of nothing":                 {annotations: map[string]string{MinGPUMemoryKey: "0"}, wantErr: MinGPUMemoryKey},
		"a message of nothing":              {annotations: map[string]string{MessageSizeKey: "0"}, wantErr: MessageSizeKey},
		"a message that is no size":         {annotations: map[string]string{MessageSizeKey: "64KB"}, wantErr: MessageSizeKey},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := Parse(testobj.Pod("p").GPUs(1).Annotations(tc.annotations).Obj(), testOptions())
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one that names %s", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, r.Constraint); diff != "" {
				t.Errorf("constraint (-want,+got):\n%s", diff)
			}
			if r.Affinity != tc.wantAff {
				t.Errorf("affinity %d, want %d", r.Affinity, tc.wantAff)
			}
		})
	}
}

// TestImmovablePods: pods that must not be moved.
func TestImmovablePods(t *testing.T) {
	for value, want := range map[string]bool{"": false, "true": false, "1": false, "false": true, "F": true} {
		pod := testobj.Pod("p").GPUs(1).Obj()
		if value != "" {
			pod.Annotations[MovableKey] = value
		}
		plain, err := Parse(testobj.Pod("p").GPUs(1).Obj(), testOptions())
		if err != nil {
			t.Fatal(err)
		}
		r, err := Parse(pod, testOptions())
		if err != nil {
			t.Fatal(err)
		}
		if r.Immovable != want {
			t.Errorf("%s=%q: immovable %t, want %t", MovableKey, value, r.Immovable, want)
		}
		if r.Signature() != plain.Signature() {
			t.Errorf("%s=%q: nodes answer the pod differently", MovableKey, value)
		}
	}
}

// TestOutputReaders: pods that read output annotations of the scheduler are recognised.
func TestOutputReaders(t *testing.T) {
	env := func(path string) *v1.Pod {
		p := testobj.Pod("p").GPUs(1).Obj()
		p.Spec.Containers[0].Env = []v1.EnvVar{{ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}}}
		return p
	}
	volume := testobj.Pod("p").GPUs(1).Obj()
	volume.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{
		Items: []v1.DownwardAPIVolumeFile{{FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['nvtopo.dev/cpuset']"}}},
	}}}}
	tests := map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"an alias in the environment":       {env("metadata.annotations['scheduling.k8s.io/gpu-ids']"), true},
		"a container's own key":             {env("metadata.annotations['nvtopo.dev/gpu-ids.main']"), true},
		"a volume":                          {volume, true},
		"somebody else's annotation":        {env("metadata.annotations['example.com/x']"), false},
		"another field":                     {env("metadata.name"), false},
		"an input of ours is not an output": {env("metadata.annotations['nvtopo.dev/min-link']"), false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := Parse(tc.pod, testOptions())
			if err != nil {
				t.Fatal(err)
			}
			if r.TrustsOutput != tc.want {
				t.Errorf("TrustsOutput %t, want %t", r.TrustsOutput, tc.want)
			}
		})
	}
}
