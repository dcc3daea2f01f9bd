// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvtopo/nvtopo/manifests"
)

// The profiles that can be compared.
const (
	profileStock       = "stock"
	profileStockAll    = "stock-all-nodes"
	profilePreBind     = "ours-prebind"
	profileBinding     = "ours-binding"
	profileNoNarrowing = "ours-binding-no-narrowing"
)

var defaultProfiles = []string{profileStock, profilePreBind, profileBinding, profileNoNarrowing}

func profileNames() []string {
	return append(slices.Clone(defaultProfiles), profileStockAll, profileHostile, profileUnlimited)
}

// beforeSuffix marks a profile of ours that is measured with the scheduler of -against.
const beforeSuffix = "-before"

// withBefore puts each profile of ours a second time before itself, for another scheduler.
func withBefore(profiles []string) []string {
	var out []string
	for _, p := range profiles {
		if p != profileStock && p != profileStockAll {
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

// configuration is a profile as its scheduler gets it.
type configuration struct {
	schedulerName string
	yaml          []byte
}

// configure derives a configuration from the shipped one. Stock is
// kube-scheduler's default profile as it is, sampling of nodes included, but
// for the arguments of PodTopologySpread that the shipped profile has too:
// without them batching is off and stock would look slower than it need be.
func configure(profile string, qps int) (*configuration, error) {
	profile = strings.TrimSuffix(profile, beforeSuffix)
	path := manifests.SchedulerConfigBindingPath
	if profile == profilePreBind {
		path = manifests.SchedulerConfigPath
	}
	text, err := manifests.FS.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the shipped profile: %w", err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("decode %s: %w", path, err)
	}
	fields["leaderElection"] = map[string]any{"leaderElect": false}
	fields["enableProfiling"] = true // live heap is read after a collection
	fields["clientConnection"] = map[string]any{"qps": int64(qps), "burst": int64(2 * qps)}
	shipped, args, err := parts(fields)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	name, ok := shipped["schedulerName"].(string)
	switch profile {
	case profileStock, profileStockAll:
		name, ok = v1.DefaultSchedulerName, true
		delete(fields, "percentageOfNodesToScore")
		if profile == profileStockAll {
			fields["percentageOfNodesToScore"] = int64(100)
		}
		fields["profiles"] = []any{map[string]any{
			"schedulerName": name,
			"pluginConfig":  []any{map[string]any{"name": spreadPlugin, "args": args[spreadPlugin]}},
		}}
	case profileNoNarrowing:
		args[topologyPlugin]["narrowTo"] = int64(0)
	}
	if !ok {
		return nil, fmt.Errorf("%s: the profile has no schedulerName", path)
	}
	for _, a := range args {
		delete(a, "leaderLease") // nobody leads here
	}
	out, err := yaml.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode profile %s: %w", profile, err)
	}
	return &configuration{schedulerName: name, yaml: out}, nil
}

// leaveOut takes a plugin out of a configuration.
func (c *configuration) leaveOut(plugin string) error {
	var fields map[string]any
	if err := yaml.Unmarshal(c.yaml, &fields); err != nil {
		return fmt.Errorf("decode a profile: %w", err)
	}
	profile, _, err := parts(fields)
	if err != nil {
		return err
	}
	points, _ := profile["plugins"].(map[string]any)
	for _, point := range points {
		set, _ := point.(map[string]any)
		enabled, _ := set["enabled"].([]any)
		set["enabled"] = slices.DeleteFunc(enabled, func(entry any) bool {
			e, _ := entry.(map[string]any)
			return e["name"] == plugin
		})
	}
	if c.yaml, err = yaml.Marshal(fields); err != nil {
		return fmt.Errorf("encode a profile: %w", err)
	}
	return nil
}

// parts returns the only profile of a configuration and, by plugin, the
// arguments in it, which may be edited.
func parts(fields map[string]any) (profile map[string]any, args map[string]map[string]any, err error) {
	profiles, _, err := unstructured.NestedSlice(fields, "profiles")
	if err != nil || len(profiles) != 1 {
		return nil, nil, errors.Join(fmt.Errorf("%d profiles, want 1", len(profiles)), err)
	}
	// NestedSlice returned a copy.
	fields["profiles"] = profiles
	profile, _ = profiles[0].(map[string]any)
	config, _ := profile["pluginConfig"].([]any)
	args = map[string]map[string]any{}
	for _, c := range config {
		entry, _ := c.(map[string]any)
		name, _ := entry["name"].(string)
		if args[name], _ = entry["args"].(map[string]any); args[name] == nil {
			return nil, nil, fmt.Errorf("plugin %q has no args", name)
		}
	}
	for _, name := range []string{topologyPlugin, spreadPlugin} {
		if args[name] == nil {
			return nil, nil, fmt.Errorf("no pluginConfig of %s", name)
		}
	}
	return profile, args, nil
}
