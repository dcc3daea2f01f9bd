// SPDX-License-Identifier: Apache-2.0

package schedulerconfig_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"

	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/plugins/fairsort"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/schedulerconfig"
)

func plugins(shared *lifecycle.Shared) frameworkruntime.Registry {
	gangs := gang.NewProcess(shared)
	return frameworkruntime.Registry{
		topology.Name: topology.New(shared), numa.Name: numa.New(shared), gang.Name: gang.New(gangs),
		fairsort.Name:     fairsort.New(fairsort.NewTurns(clock.RealClock{})),
		coscheduling.Name: gangs.Coscheduling(coscheduling.New),
	}
}

func check(ctx context.Context, text string) (*schedulerconfig.Report, error) {
	f, err := schedulerconfig.Read("c.yaml", []byte(text), plugins(lifecycle.NewShared(clock.RealClock{})))
	if err != nil {
		return nil, err
	}
	return f.DryRun(ctx, plugins)
}

const head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

// withArgs returns a profile with one of these plugins, and its arguments.
func withArgs(plugin, args string) string {
	return head + "profiles:\n- schedulerName: p\n  plugins: {multiPoint: {enabled: [{name: " + plugin + ", weight: 25}]}, postFilter: {enabled: [{name: " + plugin + "}]}}\n" +
		"  pluginConfig:\n  - {name: NodeResourcesFit}\n  - name: " + plugin + "\n    args: " + args + "\n"
}

// TestFaults: a configuration with which the scheduler would not start is refused with its file, the path
// of the field and the expected value, in one line.
func TestFaults(t *testing.T) {
	const two = "profiles:\n- schedulerName: p\n  plugins: %\n- schedulerName: q\n"
	for name, tc := range map[string]struct{ text, want string }{
		"a text that is no YAML":  {head + "profiles: [\n  a: b: c\n", "c.yaml: yaml: line 3: did not find expected ',' or ']'"},
		"an empty file":           {"", "c.yaml: the file is empty: want a KubeSchedulerConfiguration of kubescheduler.config.k8s.io/v1"},
		"another kind":            {"apiVersion: v1\nkind: Pod\n", `c.yaml: kind: "Pod": want KubeSchedulerConfiguration`},
		"another version":         {strings.Replace(head, "/v1", "/v1beta3", 1), `c.yaml: apiVersion: "kubescheduler.config.k8s.io/v1beta3": want kubescheduler.config.k8s.io/v1`},
		"an unknown field":        {head + "profilez: []\n", "c.yaml: profilez: there is no such field, nearest is profiles"},
		"two unknown fields":      {head + "b: 1\na: 1\n", "c.yaml: a: there is no such field; b: there is no such field"},
		"a value of another type": {head + "parallelism: many\n", "c.yaml: parallelism: want a whole number, not a text"},
		"values out of range":     {head + "parallelism: -1\npercentageOfNodesToScore: 500\n", "c.yaml: parallelism: Invalid value: -1: should be an integer value greater than zero; percentageOfNodesToScore: Invalid value: 500: not in valid range [0-100]"},
		"a duration of two words": {head + "leaderElection: {leaseDuration: 3 min}\n", `c.yaml: leaderElection.leaseDuration: time: unknown unit " min" in duration "3 min"`},
		"a key that is there twice": {
			head + "parallelism: 1\nparallelism: 2\n", `c.yaml: yaml: unmarshal errors: line 4: key "parallelism" already set in map`,
		},
		"an unknown argument":             {withArgs("TopologyAware", "{bandwidthWeigth: 1}"), "c.yaml: profiles[0].pluginConfig[1].args.bandwidthWeigth: there is no such field, nearest is bandwidthWeight"},
		"an unknown field of an argument": {withArgs("TopologyAware", "{leaderLease: {nam: a}}"), "c.yaml: profiles[0].pluginConfig[1].args.leaderLease.nam: there is no such field, nearest is name"},
		"an unknown argument of kube-scheduler's": {
			head + "profiles:\n- pluginConfig:\n  - {name: NodeResourcesFit, args: {scoringStrateg: {}}}\n",
			"c.yaml: profiles[0].pluginConfig[0].args.scoringStrateg: there is no such field, nearest is scoringStrategy",
		},
		"a field in another case":                  {head + "profiles:\n- SchedulerName: p\n", "c.yaml: profiles[0].SchedulerName: there is no such field, nearest is schedulerName"},
		"an unknown field that nothing is near to": {head + "profiles:\n- plugins: {multiPoint: {tetris: []}}\n", "c.yaml: profiles[0].plugins.multiPoint.tetris: there is no such field"},
		"an unknown extension point":               {head + "profiles:\n- plugins: {prefilter: {enabled: []}}\n", "c.yaml: profiles[0].plugins.prefilter: there is no such field, nearest is preFilter"},
		"a misspelled plugin": {
			head + "profiles:\n- plugins: {score: {enabled: [{name: TopologyAwre}, {name: NodeResourceFit}]}}\n",
			`c.yaml: profiles[0].plugins.score.enabled[0].name: "TopologyAwre": there is no such plugin, nearest is TopologyAware; besides kube-scheduler's own there are Coscheduling, FairSort, GangPlacement, NUMAAffinity, TopologyAware; ` +
				`profiles[0].plugins.score.enabled[1].name: "NodeResourceFit": there is no such plugin, nearest is NodeResourcesFit; besides kube-scheduler's own there are Coscheduling, FairSort, GangPlacement, NUMAAffinity, TopologyAware`,
		},
		"an argument of another type":         {withArgs("TopologyAware", "{bandwidthWeight: much}"), "c.yaml: profiles[0].pluginConfig[1].args.bandwidthWeight: want a number, not a text"},
		"an argument's item of another type":  {withArgs("TopologyAware", "{resources: [a/b, 3]}"), "c.yaml: profiles[0].pluginConfig[1].args.resources[1]: want a text, not a number"},
		"an argument's field of another type": {withArgs("TopologyAware", "{leaderLease: {name: a, durationSeconds: long}}"), "c.yaml: profiles[0].pluginConfig[1].args.leaderLease.durationSeconds: want a whole number, not a text"},
		"an argument that is no duration":     {withArgs("GangPlacement", "{drainAfter: 3}"), "c.yaml: profiles[0].pluginConfig[1].args.drainAfter: want a text, not a number"},
		"an argument out of range":            {withArgs("TopologyAware", "{bandwidthWeight: 7}"), "c.yaml: profiles[0].pluginConfig[1].args.bandwidthWeight: Invalid value: 7: must be between 0 and 1"},
		"arguments of NUMAAffinity":           {withArgs("NUMAAffinity", "{sameNUMABonus: 700}"), "c.yaml: profiles[0].pluginConfig[1].args.sameNUMABonus: Invalid value: 700: must be between 0 and 100"},
		"arguments of GangPlacement":          {withArgs("GangPlacement", "{drainFor: 1s}"), `c.yaml: profiles[0].pluginConfig[1].args.drainFor: Invalid value: "1s": must be 0, or between 1m0s and 168h0m0s`},
		"arguments of kube-scheduler's": {
			head + "profiles:\n- pluginConfig:\n  - {name: NodeResourcesFit, args: {scoringStrategy: {type: Foo}}}\n",
			`c.yaml: profiles[0].pluginConfig[0].args.scoringStrategy.type: Unsupported value: "Foo": supported values: "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"`,
		},
		"an unknown plugin": {
			head + "profiles:\n- plugins: {score: {enabled: [{name: NodeResourcesFit}, {name: Tetris}]}}\n",
			`c.yaml: profiles[0].plugins.score.enabled[1].name: "Tetris": there is no such plugin; besides kube-scheduler's own there are Coscheduling, FairSort, GangPlacement, NUMAAffinity, TopologyAware`,
		},
		"a plugin at a point that it does not have": {
			head + "profiles:\n- schedulerName: p\n  plugins: {permit: {enabled: [{name: NodeResourcesFit}]}}\n",
			`c.yaml: profiles[0]: plugin "NodeResourcesFit" does not extend PermitPlugin plugin`,
		},
		"two profiles of one name": {head + "profiles:\n- schedulerName: p\n- schedulerName: p\n", `c.yaml: profiles[1].schedulerName: "p": is the name of profiles[0], too`},
		"two orders of the queue":  {head + strings.Replace(two, "%", `{queueSort: {enabled: [{name: FairSort}], disabled: [{name: "*"}]}}`, 1), `c.yaml: profiles[1].plugins.queueSort: Invalid value: {"Enabled":null,"Disabled":null}: must be the same for all profiles`},
		"GangPlacement without its place": {
			head + "profiles:\n- schedulerName: p\n  plugins: {multiPoint: {enabled: [{name: TopologyAware, weight: 25}, {name: GangPlacement}]}, postFilter: {enabled: [{name: TopologyAware}]}}\n",
			"c.yaml: profiles[0]: plugins.preEnqueue.enabled must list GangPlacement before TopologyAware",
		},
		"a weight that others outvote": {
			head + "profiles:\n- schedulerName: p\n  plugins: {multiPoint: {enabled: [{name: TopologyAware, weight: 1}]}, postFilter: {enabled: [{name: TopologyAware}]}}\n",
			"c.yaml: profiles[0]: weight 1 of TopologyAware: want 19 or more, or the other plugins (weights 15 in all) outvote the best links; nvtopo generate scheduler-profile writes weights that do",
		},
		"arguments that differ between profiles": {
			withArgs("TopologyAware", "{requestTimeout: 70s}") + strings.Replace(strings.TrimPrefix(withArgs("TopologyAware", "{requestTimeout: 80s}"), head+"profiles:\n"), ": p\n", ": q\n", 1),
			"c.yaml: profiles[1].pluginConfig[1]: TopologyAware: requestTimeout must be equal for every plugin and profile: have 1m10s and 1m20s",
		},
		"names of other projects' plugins": {
			head + "profiles:\n- schedulerName: p\n  plugins: {multiPoint: {enabled: [{name: TopologyAwareFilter}]}}\n",
			"c.yaml: profiles[0]: there is no plugin TopologyAwareFilter, TopologyAware does its part; instead of TopologyAwareFilter, TopologyAwareScore and NUMAAffinityScore write " +
				"plugins: {multiPoint: {enabled: [{name: TopologyAware, weight: 25}, {name: NUMAAffinity, weight: 3}]}, postFilter: {enabled: [{name: TopologyAware}]}}, " +
				"and their arguments under these names; nvtopo generate scheduler-profile writes a whole configuration",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := check(t.Context(), tc.text)
			var fault *schedulerconfig.Fault
			if !errors.As(err, &fault) {
				t.Fatalf("error %v (%T), want a Fault", err, err)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

// TestReport: the report of a valid configuration has the plugins, weights and arguments with their
// defaults, and the settings without effect.
func TestReport(t *testing.T) {
	text := withArgs("TopologyAware", "{bandwidthWeight: 0.5}") + "  - {name: Tetris, args: {a: 1}}\n"
	r, err := check(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.Print(&b); err != nil {
		t.Fatal(err)
	}
	want := `PROFILE  PLUGIN             WEIGHT  ARGUMENTS
p        TopologyAware      25      bandwidthWeight 0.5, latencyWeight 0.3, fragmentationWeight 0.3, defaultPolicy best-effort, annotationWrite PreBind
         of kube-scheduler          weights DynamicResources 2, ImageLocality 1, InterPodAffinity 2, NodeAffinity 2, NodeResourcesBalancedAllocation 1, NodeResourcesFit 1, PodTopologySpread 2, TaintToleration 3, VolumeBinding 1
c.yaml: note: profiles[0].pluginConfig[2]: the profile does not enable Tetris, so these arguments have no effect
c.yaml: nvtopo-scheduler would start with this configuration
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

// TestShipped: the shipped configurations are valid, and so is an empty one.
func TestShipped(t *testing.T) {
	texts := map[string]string{"nothing": head}
	for _, path := range []string{
		manifests.SchedulerConfigPath, manifests.SchedulerConfigBindingPath, manifests.SchedulerConfigDefaultPath,
	} {
		text, err := fs.ReadFile(manifests.FS, path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(text)
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			r, err := check(t.Context(), text)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Notes) > 0 {
				t.Errorf("notes %q, want none", r.Notes)
			}
		})
	}
}
