// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
)

// previous is the folder of what the previous release wrote and read.
const previous = "../../../testdata/skew/level-1"

// given returns the arguments of a plugin as the file of a configuration has them.
func given(t *testing.T, text, plugin string) map[string]any {
	t.Helper()
	var c struct {
		Profiles []struct {
			PluginConfig []struct {
				Name string
				Args map[string]any
			}
		}
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Profiles[0].PluginConfig {
		if p.Name == plugin {
			return p.Args
		}
	}
	return nil
}

// taken returns arguments as this release has read them.
func taken(t *testing.T, args any) map[string]any {
	t.Helper()
	data, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestPreviousReleaseConfig: a scheduler that is upgraded before its
// configuration starts, and every argument means what it meant.
func TestPreviousReleaseConfig(t *testing.T) {
	for _, name := range []string{"scheduler-config.yaml", "scheduler-config-binding.yaml", "args.yaml"} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(previous, name))
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := load(t, string(data))
			if err != nil {
				t.Fatalf("an argument that was removed or renamed needs a release that still takes it: %v", err)
			}
			topology, numa := argsOf(t, cfg)
			if err := config.ValidateTopologyAwareArgs(topology); err != nil {
				t.Error(err)
			}
			if err := config.ValidateNUMAAffinityArgs(numa); err != nil {
				t.Error(err)
			}
			for plugin, args := range map[string]any{"TopologyAware": topology, "NUMAAffinity": numa} {
				want, got := given(t, string(data), plugin), taken(t, args)
				maps.DeleteFunc(got, func(key string, _ any) bool { _, was := want[key]; return !was })
				if diff := cmp.Diff(want, got); len(want) > 0 && diff != "" {
					t.Errorf("%s (-given +taken):\n%s", plugin, diff)
				}
			}
		})
	}
}

// TestPreviousReleaseArguments: every argument of the previous release is tried. It keeps the file
// complete: the fields of this release that it has not are those that are new.
func TestPreviousReleaseArguments(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(previous, "args.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var topology config.TopologyAwareArgs
	config.SetDefaults_TopologyAwareArgs(&topology)
	var numa config.NUMAAffinityArgs
	config.SetDefaults_NUMAAffinityArgs(&numa)
	for plugin, defaults := range map[string]any{"TopologyAware": &topology, "NUMAAffinity": &numa} {
		have := given(t, string(data), plugin)
		for key, value := range taken(t, defaults) {
			other, ok := have[key]
			if !ok {
				t.Logf("%s.%s is new", plugin, key)
				continue
			}
			if cmp.Equal(value, other) && key != "annotationWrite" {
				t.Errorf("%s.%s has its default, %v, in args.yaml; another value shows whether it is read", plugin, key, value)
			}
		}
		if len(have) < 11 {
			t.Errorf("%s has only %d arguments in args.yaml: %v", plugin, len(have), slices.Sorted(maps.Keys(have)))
		}
	}
}

// TestLaterReleaseConfig: a configuration of a later release is refused by name. A scheduler that
// was rolled back without its configuration must not run with half of it.
func TestLaterReleaseConfig(t *testing.T) {
	for plugin, arg := range map[string]string{"TopologyAware": "rackAware", "NUMAAffinity": "cxl"} {
		_, err := load(t, head+fmt.Sprintf("  pluginConfig:\n  - name: %s\n    args: {%s: true}\n", plugin, arg))
		if want := fmt.Sprintf("unknown field %q", arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %s", plugin, err, want)
		}
	}
}
