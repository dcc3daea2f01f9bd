// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"

	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
)

// otherNames maps the plugin names of other topology-aware scheduler profiles to the plugin here that
// includes them.
var otherNames = map[string]string{
	"TopologyAwareFilter": config.TopologyAwareName,
	"TopologyAwareScore":  config.TopologyAwareName,
	"NUMAAffinityScore":   config.NUMAAffinityName,
}

// insteadOfOtherNames is the part of a profile that enables these plugins.
const insteadOfOtherNames = `plugins: {multiPoint: {enabled: [{name: TopologyAware, weight: 25}, {name: NUMAAffinity, weight: 3}]}, postFilter: {enabled: [{name: TopologyAware}]}}`

// CheckPluginNames refuses a KubeSchedulerConfiguration that has one of these names, with the
// replacement. kube-scheduler would only report that there is no such plugin, and would not mention
// arguments for it. All other faults of the text are left to kube-scheduler to report.
func CheckPluginNames(text []byte) error {
	obj, _, err := scheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	cfg, ok := obj.(*schedconfig.KubeSchedulerConfiguration)
	if !ok {
		return nil
	}
	for i := range cfg.Profiles {
		p := &cfg.Profiles[i]
		for _, name := range pluginNames(p) {
			if ours := otherNames[name]; ours != "" {
				return fmt.Errorf("profiles[%d]: there is no plugin %s, %s does its part; instead of TopologyAwareFilter, TopologyAwareScore and NUMAAffinityScore write %s, "+
					"and their arguments under these names; nvtopo generate scheduler-profile writes a whole configuration", i, name, ours, insteadOfOtherNames)
			}
		}
	}
	return nil
}

// pluginNames returns the plugins that a profile enables or has arguments for, sorted.
func pluginNames(p *schedconfig.KubeSchedulerProfile) []string {
	out := p.Plugins.Names()
	if p.Plugins != nil {
		for _, x := range p.Plugins.MultiPoint.Enabled {
			out = append(out, x.Name)
		}
	}
	for i := range p.PluginConfig {
		out = append(out, p.PluginConfig[i].Name)
	}
	slices.Sort(out)
	return out
}
