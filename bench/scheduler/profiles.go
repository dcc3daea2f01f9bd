// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/nvtopo/nvtopo/manifests"
	_ "github.com/nvtopo/nvtopo/pkg/apis/config" // the arguments of our plugins
)

// Names of profiles that the report compares with.
const (
	profileStock     = "stock"
	profileStockAll  = "stock-all-nodes"
	profileBinding   = "ours-binding"
	profileHostile   = "ours-binding-hostile"
	profileUnlimited = "ours-binding-hostile-unlimited"
)

// beforeSuffix marks a profile of ours that is measured with the scheduler of -against.
const beforeSuffix = "-before"

// profile is the configuration of a scheduler in a cell.
type profile struct {
	name     string
	shipped  string // configuration that it is derived from
	stock    bool   // kube-scheduler's default profile in place of ours
	allNodes bool   // no sampling of nodes
	wide     bool   // PreFilter does not narrow
	// Some nodes publish the worst objects that the API server admits, with the project's priority
	// levels and without them.
	hostile, unlimited bool
}

// serviceProfiles are in the order of measuring; the first defaultProfiles are the default of
// -profiles.
var serviceProfiles = []profile{
	{name: profileStock, shipped: manifests.SchedulerConfigBindingPath, stock: true},
	{name: "ours-prebind", shipped: manifests.SchedulerConfigPath},
	{name: profileBinding, shipped: manifests.SchedulerConfigBindingPath},
	{name: "ours-binding-no-narrowing", shipped: manifests.SchedulerConfigBindingPath, wide: true},
	{name: profileStockAll, shipped: manifests.SchedulerConfigBindingPath, stock: true, allNodes: true},
	{name: profileHostile, shipped: manifests.SchedulerConfigBindingPath, hostile: true},
	{name: profileUnlimited, shipped: manifests.SchedulerConfigBindingPath, hostile: true, unlimited: true},
}

const defaultProfiles = 4

// cycleProfiles are the profiles of the cycle alone, the baseline first. Ours without narrowing
// examines as many nodes as the baseline does, which shows the cost of our plugins per node.
var cycleProfiles = []profile{
	{name: "default", shipped: manifests.SchedulerConfigPath, stock: true},
	{name: "default + ours without narrowing", shipped: manifests.SchedulerConfigPath, wide: true},
	{name: "default + ours", shipped: manifests.SchedulerConfigPath},
}

func profileNames(of []profile) []string {
	names := make([]string, len(of))
	for i := range of {
		names[i] = of[i].name
	}
	return names
}

func findProfile(name string) *profile {
	name = strings.TrimSuffix(name, beforeSuffix)
	all := slices.Concat(serviceProfiles, cycleProfiles)
	return &all[slices.IndexFunc(all, func(p profile) bool { return p.name == name })]
}

// withBefore inserts before each profile of ours its variant for the other scheduler.
func withBefore(profiles []string) []string {
	var out []string
	for _, p := range profiles {
		if !findProfile(p).stock {
			out = append(out, p+beforeSuffix)
		}
		out = append(out, p)
	}
	return out
}

const (
	topologyPlugin = "TopologyAware"
	spreadPlugin   = "PodTopologySpread"
)

// configuration is a profile in the form for its scheduler.
type configuration struct {
	schedulerName string
	yaml          []byte
}

// configure derives a configuration from the shipped one. Stock is kube-scheduler's default profile
// unchanged, including sampling of nodes, except for the arguments of PodTopologySpread that the
// shipped profile has too: without them batching is off and stock would look slower than necessary.
func (p *profile) configure(qps int) (*configuration, error) {
	text, err := manifests.FS.ReadFile(p.shipped)
	if err != nil {
		return nil, fmt.Errorf("read the shipped profile: %w", err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("decode %s: %w", p.shipped, err)
	}
	fields["leaderElection"] = map[string]any{"leaderElect": false}
	fields["enableProfiling"] = true // live heap is read after a collection
	fields["clientConnection"] = map[string]any{"qps": qps, "burst": 2 * qps}
	delete(fields, "percentageOfNodesToScore")
	if p.allNodes {
		fields["percentageOfNodesToScore"] = 100
	}
	profiles, _ := fields["profiles"].([]any)
	if len(profiles) != 1 {
		return nil, fmt.Errorf("%s: %d profiles, want 1", p.shipped, len(profiles))
	}
	ours, _ := profiles[0].(map[string]any)
	name, ok := ours["schedulerName"].(string)
	if !ok {
		return nil, fmt.Errorf("%s: the profile has no schedulerName", p.shipped)
	}
	args := map[string]map[string]any{} // by plugin
	config, _ := ours["pluginConfig"].([]any)
	for _, c := range config {
		entry, _ := c.(map[string]any)
		plugin, _ := entry["name"].(string)
		args[plugin], _ = entry["args"].(map[string]any)
		delete(args[plugin], "leaderLease")  // the benchmark runs one scheduler, without leader election,
		delete(args[plugin], "debugAddress") // and does not use this endpoint
	}
	if args[topologyPlugin] == nil || args[spreadPlugin] == nil {
		return nil, fmt.Errorf("%s: no arguments of %s or %s", p.shipped, topologyPlugin, spreadPlugin)
	}
	if p.wide {
		args[topologyPlugin]["narrowTo"] = 0
	}
	if p.stock {
		name = v1.DefaultSchedulerName
		fields["profiles"] = []any{map[string]any{
			"schedulerName": name,
			"pluginConfig":  []any{map[string]any{"name": spreadPlugin, "args": args[spreadPlugin]}},
		}}
	}
	out, err := yaml.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode profile %s: %w", p.name, err)
	}
	return &configuration{schedulerName: name, yaml: out}, nil
}

// decoded returns a profile as a configuration for a scheduler in this process.
func (p *profile) decoded() (*schedconfig.KubeSchedulerConfiguration, error) {
	c, err := p.configure(1)
	if err != nil {
		return nil, err
	}
	return decodeConfig(c.yaml)
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
	return config, nil
}

// ownPlugins returns a profile with only our plugins and those that every profile must have.
func ownPlugins(enabled, config string) (*schedconfig.KubeSchedulerConfiguration, error) {
	return decodeConfig(fmt.Appendf(nil, `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: ours-alone
  plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled: [{name: PrioritySort}, {name: DefaultBinder}, %s]
  pluginConfig: [%s]
`, enabled, config))
}
