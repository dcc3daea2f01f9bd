// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/visible"
)

func seeing(values ...string) *api.Container {
	c := &api.Container{Env: []string{"PATH=/bin"}}
	for _, v := range values {
		c.Env = append(c.Env, visible.VisibleDevices+"="+v, "OTHER=1")
	}
	return c
}

func mounting(paths ...string) *api.Container {
	c := &api.Container{}
	for _, p := range paths {
		c.Mounts = append(c.Mounts, &api.Mount{Source: "/dev/null", Destination: p})
	}
	return c
}

func injecting(names ...string) *api.Container {
	c := &api.Container{}
	for _, n := range names {
		c.CDIDevices = append(c.CDIDevices, &api.CDIDevice{Name: n})
	}
	return c
}

func TestEscapes(t *testing.T) {
	annotated := func(value string, env ...string) *api.Container {
		c := seeing(env...)
		c.Annotations = map[string]string{"cdi.k8s.io/nvidia-device-plugin_1": value, "other": "nvidia.com/gpu=7"}
		return c
	}
	one := []kubelet.Record{record("train", "GPU-3")}
	mig := []kubelet.Record{{PodUID: testPod, Container: "train", Resource: "nvidia.com/mig-1g.10gb", IDs: []string{"MIG-aa"}}}
	whole := []kubelet.Record{record("train", "GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4", "GPU-5", "GPU-6", "GPU-7", "GPU-x")}
	for name, tc := range map[string]struct {
		container *api.Container
		held      []kubelet.Record
		unknown   bool     // the graph is not known
		want      []string // asked for, nil if nothing escapes
	}{
		"asks for nothing":                             {container: &api.Container{}, held: one},
		"asks for what it was given":                   {container: seeing("GPU-3"), held: one},
		"asks by index for what it was given":          {container: seeing("3"), held: one},
		"asks in another case":                         {container: seeing("gpu-3"), held: one},
		"asks for another GPU":                         {container: seeing("GPU-4"), held: one, want: []string{"GPU-4"}},
		"asks by index for another GPU":                {container: seeing("4"), held: one, want: []string{"GPU-4"}},
		"asks for one more":                            {container: seeing("GPU-3, GPU-4"), held: one, want: []string{"GPU-3", "GPU-4"}},
		"asks for all":                                 {container: seeing("all"), held: one, want: whole[0].IDs},
		"asks for all and was given all":               {container: seeing("all"), held: whole},
		"asks for all on an unknown machine":           {container: seeing("all"), held: one, unknown: true},
		"has none and asks for all":                    {container: seeing("all"), want: whole[0].IDs},
		"has none and asks on an unknown machine":      {container: seeing("all"), unknown: true, want: []string{"all"}},
		"has none and asks for one":                    {container: seeing("GPU-0"), want: []string{"GPU-0"}},
		"void asks for nothing":                        {container: seeing("void")},
		"void beside others asks for nothing":          {container: seeing("all,void")},
		"none asks for nothing":                        {container: seeing("none")},
		"empty asks for nothing":                       {container: seeing("")},
		"the last of duplicates counts":                {container: seeing("all", "GPU-3"), held: one},
		"the last of duplicates counts, to its harm":   {container: seeing("GPU-3", "all"), held: one, want: whole[0].IDs},
		"void at last after the image's all":           {container: seeing("all", "void")},
		"an old CUDA image means all":                  {container: &api.Container{Env: []string{"CUDA_VERSION=8.0"}}, want: whole[0].IDs},
		"a CUDA image that requires is no old one":     {container: &api.Container{Env: []string{"CUDA_VERSION=12.0", "NVIDIA_REQUIRE_CUDA=cuda>=12"}}},
		"a share of a GPU":                             {container: seeing("GPU-3"), held: []kubelet.Record{record("train", "GPU-3::1")}},
		"an index of no GPU":                           {container: seeing("17"), held: one, want: []string{"17"}},
		"an index on an unknown machine is not judged": {container: seeing("0"), held: one, unknown: true},
		"another UUID on an unknown machine":           {container: seeing("GPU-4"), held: one, unknown: true, want: []string{"GPU-4"}},
		"its MIG device":                               {container: seeing("MIG-aa"), held: mig},
		"another MIG device":                           {container: seeing("MIG-bb"), held: mig, want: []string{"MIG-bb"}},
		"a MIG device by number is not judged":         {container: seeing("0:1"), held: mig},
		"a MIG device by number, and none given":       {container: seeing("0:1"), want: []string{"0:1"}},
		"mounts of what it was given":                  {container: mounting(deviceMounts + "/GPU-3"), held: one},
		"mounts of another":                            {container: mounting(deviceMounts+"/GPU-3", "/run/nvidia-container-devices/GPU-4"), held: one, want: []string{"GPU-3", "GPU-4"}},
		"mounts of all":                                {container: mounting(deviceMounts + "/all"), held: one, want: whole[0].IDs},
		"mounts of a CDI device":                       {container: mounting(deviceMounts + "/cdi/runtime.nvidia.com/gpu/4"), held: one, want: []string{"GPU-4"}},
		"mounts of channels":                           {container: mounting(deviceMounts+"/imex/0", "/data", deviceMounts), held: one},
		"a mount of something real is no wish":         {container: &api.Container{Mounts: []*api.Mount{{Source: "/data", Destination: deviceMounts + "/GPU-4"}}}, held: one},
		"the variable points at the mounts": {
			container: &api.Container{Env: []string{visible.VisibleDevices + "=all", visible.VisibleDevices + "=" + deviceMounts}, Mounts: mounting(deviceMounts + "/GPU-3").Mounts}, held: one,
		},
		"CDI devices it was given":          {container: injecting("k8s.device-plugin.nvidia.com/gpu=GPU-3"), held: one},
		"CDI devices of another":            {container: injecting("nvidia.com/gpu=gpu4"), held: one, want: []string{"GPU-4"}},
		"CDI devices that are all":          {container: injecting("management.nvidia.com/gpu=all"), held: one, want: whole[0].IDs},
		"CDI devices of others":             {container: injecting("vendor.com/gpu=all", "nvidia.com/gds=all", "notnvidia.com/gpu=1", "nonsense"), held: one},
		"CDI annotations":                   {container: annotated("nvidia.com/gpu=GPU-3,nvidia.com/gpu=4"), held: one, want: []string{"GPU-3", "GPU-4"}},
		"CDI annotations win over a wish":   {container: annotated("nvidia.com/gpu=GPU-3", "all"), held: one},
		"others' annotations win over none": {container: annotated("vendor.com/gpu=0", "4"), held: one, want: []string{"GPU-4"}},
		"CDI names in the variable":         {container: seeing("nvidia.com/gpu=4"), held: one, want: []string{"GPU-4"}},
	} {
		t.Run(name, func(t *testing.T) {
			topology := machine()
			if tc.unknown {
				topology = nil
			}
			w := askedFor(tc.container)
			asked, given, escaped := judge(w, tc.held, topology)
			if escaped != (tc.want != nil) {
				t.Fatalf("escaped: %v, asked for %v, given %v; want %v", escaped, asked, given, tc.want)
			}
			if diff := cmp.Diff(tc.want, asked); escaped && diff != "" {
				t.Errorf("asked for (-want +got):\n%s", diff)
			}
			if escaped && len(w.ways) == 0 {
				t.Error("no word of how it asks")
			}
		})
	}
}

// TestEscapeText: an escape is printed as a sentence.
func TestEscapeText(t *testing.T) {
	e := Escape{Asked: []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}, Ways: []string{visible.ByEnvironment}}
	want := "asks for a, b, c, d, e, f, g, h and 2 more (environment NVIDIA_VISIBLE_DEVICES); kubelet gave it none"
	if got := e.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	e.Given = []string{"z"}
	if got := e.String(); !strings.HasSuffix(got, "kubelet gave it z") {
		t.Errorf("%q does not end in what was given", got)
	}
}

// FuzzAsked: whatever a container holds, only the last value of the variable
// counts, and one that was given everything never escapes.
func FuzzAsked(f *testing.F) {
	f.Add("all", "GPU-3,GPU-4", deviceMounts+"/GPU-1", "nvidia.com/gpu=0")
	f.Add("", "void,0", "/run/nvidia-container-devices/cdi/nvidia.com/gpu/all", "nvidia.com/mig=mig0:1")
	f.Fuzz(func(t *testing.T, first, last, mount, device string) {
		env := []string{visible.VisibleDevices + "=" + first, visible.VisibleDevices + "=" + last}
		both, way := visible.FromEnvironment(env)
		alone, _ := visible.FromEnvironment(env[1:])
		if !slices.Equal(both, alone) || way != visible.ByEnvironment {
			t.Errorf("%q is read as %v, its last value alone as %v", env, both, alone)
		}
		c := mounting(mount)
		c.Env, c.CDIDevices = env, injecting(device).CDIDevices
		w := askedFor(c)
		asked, _, escaped := judge(w, nil, machine())
		if escaped != (len(asked) > 0) || escaped == w.empty() {
			t.Errorf("without GPUs, %+v asks for %v, escaped %v", w, asked, escaped)
		}
		if _, _, again := judge(w, []kubelet.Record{record("c", asked...)}, machine()); again && !slices.ContainsFunc(asked, func(id string) bool { return strings.Contains(id, replicaMark) }) {
			t.Errorf("%+v escapes although it was given %v", w, asked)
		}
	})
}
