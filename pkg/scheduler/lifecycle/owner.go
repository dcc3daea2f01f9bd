// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// owner returns the name of the plugin that filters, reserves and writes for a pod: NUMAAffinity for a pod
// with a NUMA policy and no GPU, and for all pods of a profile without TopologyAware; else TopologyAware.
// It depends on the profile and the pod only, not on the order in which plugins run.
func (p *Profile) owner(r *podrequest.Request) string {
	topology, numa := slices.Contains(p.plugins, config.TopologyAwareName), slices.Contains(p.plugins, config.NUMAAffinityName)
	if numa && (!topology || !r.HasGPUs() && r.HasNUMAPolicy()) {
		return config.NUMAAffinityName
	}
	return config.TopologyAwareName
}

// owns reports whether this plugin is the owner of the cycle's pod. If no PreFilter of these plugins ran,
// it is that of a pod without requests.
func (p *Plugin) owns(state fwk.CycleState) bool {
	if c := ReadCycle(state); c != nil {
		return c.Owner == p.name
	}
	return p.Profile.owner(&podrequest.Request{}) == p.name
}

// served reports whether the owner chooses devices or CPUs for the pod; TopologyAware does for GPUs only.
func (c *Cycle) served() bool {
	return c.Demand.HasGPUs() || c.Owner == config.NUMAAffinityName && c.Demand.HasNUMAPolicy()
}

// checkPoints refuses a profile that leaves the plugin out of an extension point where the owner of a pod
// has to run: no other plugin would do its part.
func (p *Plugin) checkPoints() error {
	enabled := p.enabled()
	if enabled == nil {
		return nil
	}
	for _, point := range []struct {
		name string
		set  schedconfig.PluginSet
	}{
		{"preFilter", enabled.PreFilter},
		{"filter", enabled.Filter},
		{"reserve", enabled.Reserve},
		{"preBind", enabled.PreBind},
		{"postBind", enabled.PostBind},
	} {
		if position(point.set, p.name) < 0 {
			return fmt.Errorf("profile %s: plugins.%s must not leave out %s; name it under multiPoint, and do not disable it",
				p.handle.ProfileName(), point.name, p.name)
		}
	}
	return nil
}
