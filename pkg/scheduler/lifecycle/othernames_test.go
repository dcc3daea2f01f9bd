// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
)

// TestCheckPluginNames: a profile with other projects' plugin names is refused with the replacement.
func TestCheckPluginNames(t *testing.T) {
	profile := func(lines ...string) string {
		return "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: p\n" + strings.Join(lines, "\n")
	}
	asked := profile(`  plugins:
    filter: {enabled: [{name: NodeResourcesFit}, {name: TopologyAwareFilter}]}
    score: {enabled: [{name: TopologyAwareScore, weight: 5}, {name: NUMAAffinityScore, weight: 3}]}
  pluginConfig:
  - {name: TopologyAwareFilter, args: {supportedPolicies: [none, single-numa]}}
`)
	tests := map[string]struct {
		text string
		want []string // parts of the error; none: there is no error
	}{
		"all three, and arguments":      {asked, []string{"profiles[0]", "TopologyAwareFilter", "{name: TopologyAware, weight: 25}", "{name: NUMAAffinity, weight: 3}", "postFilter"}},
		"one at all extension points":   {profile("  plugins: {multiPoint: {enabled: [{name: NUMAAffinityScore}]}}"), []string{"no plugin NUMAAffinityScore, NUMAAffinity does its part"}},
		"arguments alone":               {profile("  pluginConfig: [{name: TopologyAwareScore, args: {}}]"), []string{"no plugin TopologyAwareScore, TopologyAware does its part"}},
		"it may be switched off":        {profile("  plugins: {score: {disabled: [{name: TopologyAwareScore}]}}"), nil},
		"what the error says to write":  {profile("  " + insteadOfOtherNames), nil},
		"a name that nobody knows":      {profile("  plugins: {score: {enabled: [{name: Tetris}]}}"), nil},
		"no profiles":                   {"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n", nil},
		"a text that cannot be decoded": {"profiles: 3", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := CheckPluginNames([]byte(tc.text))
			if (err != nil) != (len(tc.want) > 0) {
				t.Fatalf("error %v, want one: %t", err, len(tc.want) > 0)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q is not one line", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
		})
	}
}
