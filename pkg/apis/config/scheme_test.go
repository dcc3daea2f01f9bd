// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	schedulerv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedulerinternal "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulerscheme "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
)

const head = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: topology-aware-scheduler
  plugins:
    multiPoint:
      enabled:
      - name: TopologyAware
      - name: NUMAAffinity
`

// load reads a configuration the way kube-scheduler's --config does.
func load(t *testing.T, text string) (*schedulerinternal.KubeSchedulerConfiguration, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return options.LoadConfigFromFile(klog.FromContext(t.Context()), file)
}

// argsOf returns the arguments of both plugins in the first profile.
func argsOf(t *testing.T, cfg *schedulerinternal.KubeSchedulerConfiguration) (*config.TopologyAwareArgs, *config.NUMAAffinityArgs) {
	t.Helper()
	var topology *config.TopologyAwareArgs
	var numa *config.NUMAAffinityArgs
	for _, p := range cfg.Profiles[0].PluginConfig {
		switch args := p.Args.(type) {
		case *config.TopologyAwareArgs:
			topology = args
		case *config.NUMAAffinityArgs:
			numa = args
		case *runtime.Unknown:
			t.Errorf("%s: arguments were not decoded: %s", p.Name, args.Raw)
		}
	}
	if topology == nil || numa == nil {
		t.Fatalf("arguments are missing: TopologyAware %v, NUMAAffinity %v", topology, numa)
	}
	return topology, numa
}

// TestDefaultArguments: plugins without arguments get defaults.
func TestDefaultArguments(t *testing.T) {
	for name, text := range map[string]string{
		"no pluginConfig": head,
		"empty args":      head + "  pluginConfig:\n  - name: TopologyAware\n    args: {}\n  - name: NUMAAffinity\n    args: {}\n",
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := load(t, text)
			if err != nil {
				t.Fatal(err)
			}
			topology, numa := argsOf(t, cfg)
			var wantTopology config.TopologyAwareArgs
			config.SetDefaults_TopologyAwareArgs(&wantTopology)
			var wantNUMA config.NUMAAffinityArgs
			config.SetDefaults_NUMAAffinityArgs(&wantNUMA)
			wantTopology.TypeMeta, wantNUMA.TypeMeta = topology.TypeMeta, numa.TypeMeta
			if diff := cmp.Diff(&wantTopology, topology); diff != "" {
				t.Errorf("TopologyAware (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(&wantNUMA, numa); diff != "" {
				t.Errorf("NUMAAffinity (-want +got):\n%s", diff)
			}
			if err := config.ValidateTopologyAwareArgs(topology); err != nil {
				t.Error(err)
			}
			if err := config.ValidateNUMAAffinityArgs(numa); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPublishedDefaults: defaults are the published ones.
func TestPublishedDefaults(t *testing.T) {
	cfg, err := load(t, head)
	if err != nil {
		t.Fatal(err)
	}
	topology, numa := argsOf(t, cfg)
	type published struct {
		Bandwidth, Latency, Fragmentation float64
		Bonus, Penalty                    int64
		Termination                       string
		Policies, Default, Resources      string
		Weights                           map[int]float64
	}
	got := published{
		*topology.BandwidthWeight, *topology.LatencyWeight, *topology.FragmentationWeight, *numa.SameNUMABonus, *numa.CrossNUMAPenalty, topology.TerminationWait.Duration.String(),
		strings.Join(topology.SupportedPolicies, " "), topology.DefaultPolicy, strings.Join(topology.Resources, " "), topology.ResidualWeights,
	}
	want := published{
		0.4, 0.3, 0.3, 50, 20, "5m0s",
		"none best-effort restricted single-numa-node", "best-effort", "nvidia.com/gpu",
		map[int]float64{2: 1, 3: 0.25, 4: 1, 5: 0.25, 6: 0.25, 7: 0.25, 8: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestExplicitValues: given values stay.
func TestExplicitValues(t *testing.T) {
	cfg, err := load(t, head+`  pluginConfig:
  - name: TopologyAware
    args:
      annotationWrite: Binding
      bandwidthWeight: 1
      latencyWeight: 0
      fragmentationWeight: 0
      residualWeights: {2: 0, 3: 0.5}
      writeAliases: false
      leaderLease: {name: nvtopo-scheduler}
      requestTimeout: 90s
      terminationWait: 20s
  - name: NUMAAffinity
    args:
      sameNUMABonus: 0
      crossNUMAPenalty: 0
      cpuset: false
`)
	if err != nil {
		t.Fatal(err)
	}
	topology, numa := argsOf(t, cfg)
	want := config.TopologyAwareArgs{
		CommonArgs: config.CommonArgs{
			AnnotationWrite: config.AnnotationWriteBinding,
			WriteAliases:    new(false),
			ResidualWeights: map[int]float64{2: 0, 3: 0.5},
			LeaderLease:     config.LeaderLease{Name: "nvtopo-scheduler", DurationSeconds: 15},
		},
		BandwidthWeight: new(1.0), LatencyWeight: new(0.0), FragmentationWeight: new(0.0),
	}
	want.RequestTimeout.Duration, want.TerminationWait.Duration = 90e9, 20e9
	config.SetDefaults_TopologyAwareArgs(&want)
	want.TypeMeta = topology.TypeMeta
	if diff := cmp.Diff(&want, topology); diff != "" {
		t.Errorf("TopologyAware (-want +got):\n%s", diff)
	}
	if got := topology.Weights().Group; got != [9]int64{2: 0, 3: 500, 4: 1000, 5: 250, 6: 250, 7: 250, 8: 1000} {
		t.Errorf("weights in thousandths: %v", got)
	}
	if *numa.SameNUMABonus != 0 || *numa.CrossNUMAPenalty != 0 || *numa.CPUSet {
		t.Errorf("zero values were replaced by defaults: %d %d %t", *numa.SameNUMABonus, *numa.CrossNUMAPenalty, *numa.CPUSet)
	}
}

func TestGangPlacementArgs(t *testing.T) {
	with := strings.Replace(head, "      - name: TopologyAware\n", "      - name: GangPlacement\n      - name: TopologyAware\n", 1)
	tests := map[string]struct{ text, want string }{
		"no arguments":          {"", "10m0s 30m0s 5m0s; 12h0m0s 50 75 [] []"},
		"some of them":          {"drainAfter: 0s", "10m0s 0s 5m0s; 12h0m0s 50 75 [] []"},
		"a share above the sum": {"drainShare: 90", "10m0s 30m0s 5m0s; 12h0m0s 90 90 [] []"},
		"all of them": {
			"{scheduleTimeout: 20s, drainAfter: 2m, anyModelAfter: 0s, drainFor: 1h, drainShare: 20, drainTotalShare: 30, drainNamespaces: [a, b], drainExcludedNamespaces: [c]}",
			"20s 2m0s 0s; 1h0m0s 20 30 [a b] [c]",
		},
		"one that is not known": {"scheduleTimeouts: 20s", `unknown field "scheduleTimeouts"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			text := with
			if tc.text != "" {
				text += "  pluginConfig:\n  - name: GangPlacement\n    args:\n      " + tc.text + "\n"
			}
			cfg, err := load(t, text)
			if err != nil {
				if !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want %s", err, tc.want)
				}
				return
			}
			for _, p := range cfg.Profiles[0].PluginConfig {
				if args, ok := p.Args.(*config.GangPlacementArgs); ok {
					got := fmt.Sprint(args.ScheduleTimeout.Duration, args.DrainAfter.Duration, args.AnyModelAfter.Duration) + "; " +
						fmt.Sprint(args.DrainFor.Duration, *args.DrainShare, *args.DrainTotalShare, args.DrainNamespaces, args.DrainExcludedNamespaces)
					if got != tc.want {
						t.Errorf("got %s, want %s", got, tc.want)
					}
					if err := config.ValidateGangPlacementArgs(args); err != nil {
						t.Error(err)
					}
					return
				}
			}
			t.Error("the profile has no arguments of GangPlacement")
		})
	}
}

// TestValidationErrors: mistakes are refused by name.
func TestValidationErrors(t *testing.T) {
	tests := map[string]struct{ args, want string }{
		"an unknown field":              {"bandwithWeight: 1", `unknown field "bandwithWeight"`},
		"an unknown field of the lease": {"leaderLease: {label: x}", `unknown field "leaderLease.label"`},
		"another plugin's field":        {"sameNUMABonus: 1", `unknown field "sameNUMABonus"`},
		"a field given twice":           {"latencyWeight: 1\n      latencyWeight: 0", `"latencyWeight" already set`},
		"a word for a number":           {"latencyWeight: low", "latencyWeight"},
		"a word for a duration":         {"requestTimeout: soon", "soon"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, head+"  pluginConfig:\n  - name: TopologyAware\n    args:\n      "+tc.args+"\n")
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want one with %q", err, tc.want)
			}
		})
	}
}

// TestConfigRoundTrip: a configuration survives the round trip. It encodes as --write-config-to
// does and reads the result again.
func TestConfigRoundTrip(t *testing.T) {
	cfg, err := load(t, head+"  pluginConfig:\n  - name: TopologyAware\n    args: {latencyWeight: 0.125, residualWeights: {5: 1.5}}\n")
	if err != nil {
		t.Fatal(err)
	}
	info, ok := runtime.SerializerInfoForMediaType(schedulerscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeYAML)
	if !ok {
		t.Fatal("no YAML serializer")
	}
	var out bytes.Buffer
	if err := schedulerscheme.Codecs.EncoderForVersion(info.Serializer, schedulerv1.SchemeGroupVersion).Encode(cfg, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"kind: TopologyAwareArgs", "kind: NUMAAffinityArgs", "latencyWeight: 0.125", `"5": 1.5`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the written configuration has no %q:\n%s", want, &out)
		}
	}
	again, err := load(t, out.String())
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	topology, numa := argsOf(t, cfg)
	gotTopology, gotNUMA := argsOf(t, again)
	if diff := cmp.Diff(topology, gotTopology); diff != "" {
		t.Errorf("TopologyAware (-first +again):\n%s", diff)
	}
	if diff := cmp.Diff(numa, gotNUMA); diff != "" {
		t.Errorf("NUMAAffinity (-first +again):\n%s", diff)
	}
}
