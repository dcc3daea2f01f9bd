// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/manifests"
)

// TestSchedulerOnThisHost: a scheduler of the shipped configuration answers at a port of its own, the same for all
// plugins and profiles, since others run beside it; an address that somebody chose stays.
func TestSchedulerOnThisHost(t *testing.T) {
	shipped, err := manifests.FS.ReadFile(manifests.SchedulerConfigDefaultPath)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		config string
		stays  string // what was chosen
	}{
		"the shipped address":   {config: string(shipped)},
		"an address of another": {config: strings.ReplaceAll(string(shipped), shippedDebugAddress, "127.0.0.1:7"), stays: "127.0.0.1:7"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := onThisHost([]byte(tc.config), "/kubeconfig")
			if err != nil {
				t.Fatal(err)
			}
			var fields map[string]any
			if err := yaml.Unmarshal(text, &fields); err != nil {
				t.Fatal(err)
			}
			if got := fields["clientConnection"].(map[string]any)["kubeconfig"]; got != "/kubeconfig" {
				t.Errorf("kubeconfig %v", got)
			}
			addresses := map[any]int{}
			for _, args := range pluginArgs(fields) {
				if a, ok := args["debugAddress"]; ok {
					addresses[a]++
				}
			}
			if len(addresses) != 1 || addresses[shippedDebugAddress] > 0 || tc.stays != "" && addresses[tc.stays] != 4 {
				t.Errorf("addresses of plugins: %v", addresses)
			}
		})
	}
}
