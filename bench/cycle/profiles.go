// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"sigs.k8s.io/yaml"

	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/nvtopo/nvtopo/manifests"
	_ "github.com/nvtopo/nvtopo/pkg/apis/config" // the arguments of our plugins
)

// Names of the profiles that are compared.
const (
	profileStock      = "default"
	profileUnnarrowed = "default + ours without narrowing"
	profileOurs       = "default + ours"
)

// stock is kube-scheduler's own configuration but for the default constraints of
// PodTopologySpread, which would switch batching of equal pods off and which our
// profile does not have either.
const stock = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: PodTopologySpread
    args: {defaultingType: List, defaultConstraints: []}
`

// profile is one configuration that is measured.
type profile struct {
	name   string
	config *schedconfig.KubeSchedulerConfiguration
}

// profiles returns the baseline, ours as shipped, and ours looking at as many
// nodes as the baseline does, which shows what our plugins cost per node.
func profiles() ([]profile, error) {
	shipped, err := manifests.FS.ReadFile(manifests.SchedulerConfigPath)
	if err != nil {
		return nil, fmt.Errorf("read the shipped configuration: %w", err)
	}
	unnarrowed, err := withoutNarrowing(shipped)
	if err != nil {
		return nil, fmt.Errorf("edit the shipped configuration: %w", err)
	}
	var out []profile
	for _, p := range []struct {
		name string
		data []byte
	}{{profileStock, []byte(stock)}, {profileUnnarrowed, unnarrowed}, {profileOurs, shipped}} {
		config, err := decodeConfig(p.data)
		if err != nil {
			return nil, fmt.Errorf("profile %q: %w", p.name, err)
		}
		out = append(out, profile{p.name, config})
	}
	return out, nil
}

// decodeConfig reads a configuration as the scheduler does: strict and defaulted.
func decodeConfig(data []byte) (*schedconfig.KubeSchedulerConfiguration, error) {
	obj, _, err := scheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("decode the configuration: %w", err)
	}
	config, ok := obj.(*schedconfig.KubeSchedulerConfiguration)
	if !ok || len(config.Profiles) == 0 {
		return nil, fmt.Errorf("%T without a profile is no configuration of a scheduler", obj)
	}
	config.Profiles = config.Profiles[:1]
	return config, nil
}

// withoutNarrowing sets narrowTo to 0 and leaves the number of nodes that are
// scored to the scheduler, as the baseline does.
func withoutNarrowing(data []byte) ([]byte, error) {
	var doc struct {
		Profiles []struct {
			SchedulerName            string         `json:"schedulerName"`
			PercentageOfNodesToScore *int32         `json:"percentageOfNodesToScore,omitempty"`
			Plugins                  map[string]any `json:"plugins"`
			PluginConfig             []struct {
				Name string         `json:"name"`
				Args map[string]any `json:"args"`
			} `json:"pluginConfig"`
		} `json:"profiles"`
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	found := false
	for i := range doc.Profiles {
		doc.Profiles[i].PercentageOfNodesToScore = nil
		for j := range doc.Profiles[i].PluginConfig {
			if c := &doc.Profiles[i].PluginConfig[j]; c.Name == "TopologyAware" {
				c.Args["narrowTo"], found = 0, true
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("no arguments of TopologyAware in %s", manifests.SchedulerConfigPath)
	}
	out, err := yaml.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return out, nil
}
