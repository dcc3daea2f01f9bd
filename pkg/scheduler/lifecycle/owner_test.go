// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"testing"

	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
)

// TestOwner: one plugin filters, reserves and writes for a pod, in any order of plugins.
func TestOwner(t *testing.T) {
	both := []string{topology.Name, numa.Name}
	required := map[string]string{podrequest.NUMAAffinityKey: "required"}
	for name, tc := range map[string]struct {
		plugins     []string
		gpus        int
		annotations map[string]string
		want        string
	}{
		"a pod with GPUs":                                    {plugins: both, gpus: 1, want: topology.Name},
		"a pod with GPUs and a NUMA policy":                  {plugins: both, gpus: 1, annotations: required, want: topology.Name},
		"a pod with a NUMA policy and no GPU":                {plugins: both, annotations: required, want: numa.Name},
		"a pod that asks for nothing":                        {plugins: both, want: topology.Name},
		"TopologyAware alone, a NUMA policy and no GPU":      {plugins: both[:1], annotations: required, want: topology.Name},
		"NUMAAffinity alone, a pod with GPUs":                {plugins: both[1:], gpus: 1, want: numa.Name},
		"NUMAAffinity alone, a pod that asks for nothing":    {plugins: both[1:], want: numa.Name},
		"NUMAAffinity alone, a pod with a policy and no GPU": {plugins: both[1:], annotations: required, want: numa.Name},
	} {
		t.Run(name, func(t *testing.T) {
			for _, plugins := range [][]string{tc.plugins, reversed(tc.plugins)} {
				e, state := newTestEnv(t, "PreBind", plugins...), framework.NewCycleState()
				if _, status, _ := e.fw.RunPreFilterPlugins(t.Context(), state, e.pod("p", tc.gpus, tc.annotations)); !status.IsSuccess() {
					t.Fatal(status)
				}
				if got := lifecycle.ReadCycle(state).Owner; got != tc.want {
					t.Errorf("with %v: owner %s, want %s", plugins, got, tc.want)
				}
			}
		})
	}
}

func reversed(names []string) []string {
	out := make([]string, 0, len(names))
	for i := range names {
		out = append(out, names[len(names)-1-i])
	}
	return out
}

// TestExtensionPoints: a profile that leaves the owner of pods out of an extension point does not start.
func TestExtensionPoints(t *testing.T) {
	without := func(name string) schedconfig.PluginSet {
		return schedconfig.PluginSet{Disabled: []schedconfig.Plugin{{Name: name}}}
	}
	for name, tc := range map[string]struct {
		disable func(*schedconfig.Plugins)
		plugin  string
		want    string
	}{
		"all points":     {func(*schedconfig.Plugins) {}, topology.Name, ""},
		"not for scores": {func(p *schedconfig.Plugins) { p.Score = without(numa.Name) }, numa.Name, ""},
		"not in the filter": {
			func(p *schedconfig.Plugins) { p.Filter = without(topology.Name) }, topology.Name,
			"profile profile-1: plugins.filter must not leave out TopologyAware; name it under multiPoint, and do not disable it",
		},
		"not at the end": {
			func(p *schedconfig.Plugins) { p.PostBind = without(numa.Name) }, numa.Name,
			"profile profile-1: plugins.postBind must not leave out NUMAAffinity; name it under multiPoint, and do not disable it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := setting{write: "PreBind", disable: func(p *schedconfig.Plugins) {
				p.PostFilter.Enabled = []schedconfig.Plugin{{Name: topology.Name}}
				tc.disable(p)
			}}
			e := newTestEnvOf(t, set, topology.Name, numa.Name)
			plugin, ok := e.instances[tc.plugin].(fwk.EnqueueExtensions)
			if !ok {
				t.Fatalf("%s registers no events", tc.plugin)
			}
			got := ""
			if _, err := plugin.EventsToRegister(t.Context()); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
}
