// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
)

// fabricExamples is the folder of the ClusterTopologies for labels that others put on nodes.
const fabricExamples = "examples/fabric/"

// twoLevels is a valid ClusterTopology with every field.
func twoLevels() map[string]any {
	link := func(bandwidth, latency any, more map[string]any) map[string]any {
		more["bandwidthGBps"], more["latencyMicros"], more["hops"] = bandwidth, latency, int64(1)
		return more
	}
	return map[string]any{
		"apiVersion": "topology.nvtopo.dev/v1alpha1", "kind": "ClusterTopology", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{
			"levels": []any{
				link(int64(50), "12.5", map[string]any{"name": "spine", "nodeLabel": "example.com/spine"}),
				map[string]any{"name": "rack", "nodeLabel": "topology.kubernetes.io/rack"},
			},
			"root":      link("25", "0", map[string]any{}),
			"overrides": []any{link("12.5", int64(900), map[string]any{"level": "rack", "a": "spine-0/rack-0", "b": "rack-9"})},
			"excluded":  []any{map[string]any{"level": "rack", "domain": "rack-3", "reason": "cooling"}},
		},
	}
}

// TestClusterTopologyCostLimits fails when the rules would refuse a
// valid object for being too costly to check.
func TestClusterTopologyCostLimits(t *testing.T) {
	validate := objectValidator(t, v1alpha1.ClusterTopologyKind)
	for _, err := range validate(twoLevels()) {
		t.Error(err)
	}
	most := twoLevels()
	spec := most["spec"].(map[string]any)
	levels, overrides, excluded := []any{}, []any{}, []any{}
	for i := range 8 {
		levels = append(levels, map[string]any{"name": fmt.Sprintf("%s%d", strings.Repeat("l", 62), i), "nodeLabel": fmt.Sprintf("example.com/level-%d", i)})
	}
	last := levels[7].(map[string]any)["name"]
	for i := range 256 {
		a, b := strings.Repeat("a", 508)+fmt.Sprintf("%03d", i), strings.Repeat("b", 511)
		overrides = append(overrides, map[string]any{"level": last, "a": a, "b": b, "bandwidthGBps": "999999.999999", "latencyMicros": "1000000.000"})
		excluded = append(excluded, map[string]any{"level": last, "domain": a, "reason": strings.Repeat("r", 256)})
	}
	spec["levels"], spec["overrides"], spec["excluded"] = levels, overrides, excluded
	for _, err := range validate(most) {
		t.Errorf("the greatest: %v", err)
	}
}

// TestMalformedClusterTopologies: malformed cluster topologies are refused by field.
func TestMalformedClusterTopologies(t *testing.T) {
	item := func(obj map[string]any, list string, i int) map[string]any {
		return obj["spec"].(map[string]any)[list].([]any)[i].(map[string]any)
	}
	tests := map[string]struct {
		breakIt   func(obj map[string]any)
		wantField string
	}{
		"another name":              {func(o map[string]any) { o["metadata"].(map[string]any)["name"] = "second" }, "<nil>"},
		"no levels":                 {func(o map[string]any) { delete(o["spec"].(map[string]any), "levels") }, "spec.levels"},
		"nine levels":               {func(o map[string]any) { o["spec"].(map[string]any)["levels"] = levels(9) }, "spec.levels"},
		"two levels of one name":    {func(o map[string]any) { item(o, "levels", 0)["name"] = "rack" }, "spec.levels"},
		"two levels of one label":   {func(o map[string]any) { item(o, "levels", 0)["nodeLabel"] = "topology.kubernetes.io/rack" }, "spec.levels"},
		"a level named as the root": {func(o map[string]any) { item(o, "levels", 0)["name"] = "cluster" }, "spec.levels[0].name"},
		"a level with a blank":      {func(o map[string]any) { item(o, "levels", 0)["name"] = "top rack" }, "spec.levels[0].name"},
		"a label that is none":      {func(o map[string]any) { item(o, "levels", 0)["nodeLabel"] = "a/b/c" }, "spec.levels[0].nodeLabel"},
		"a bandwidth of nothing":    {func(o map[string]any) { item(o, "levels", 0)["bandwidthGBps"] = int64(0) }, "spec.levels[0].bandwidthGBps"},
		"a bandwidth in words":      {func(o map[string]any) { item(o, "levels", 0)["bandwidthGBps"] = "100G" }, "spec.levels[0].bandwidthGBps"},
		"a bandwidth as a fraction": {func(o map[string]any) { item(o, "levels", 0)["bandwidthGBps"] = 12.5 }, "spec.levels[0].bandwidthGBps"},
		"a bandwidth in bytes":      {func(o map[string]any) { item(o, "levels", 0)["bandwidthGBps"] = int64(50_000_000_000) }, "spec.levels[0].bandwidthGBps"},
		"a latency below nothing":   {func(o map[string]any) { item(o, "levels", 0)["latencyMicros"] = int64(-1) }, "spec.levels[0].latencyMicros"},
		"a latency of minutes":      {func(o map[string]any) { item(o, "levels", 0)["latencyMicros"] = "9999999" }, "spec.levels[0].latencyMicros"},
		"no hops at all":            {func(o map[string]any) { item(o, "levels", 0)["hops"] = int64(0) }, "spec.levels[0].hops"},
		"an override of no level":   {func(o map[string]any) { item(o, "overrides", 0)["level"] = "row" }, "spec.overrides"},
		"an override with itself":   {func(o map[string]any) { item(o, "overrides", 0)["b"] = "spine-0/rack-0" }, "spec.overrides[0]"},
		"an override of half":       {func(o map[string]any) { delete(item(o, "overrides", 0), "latencyMicros") }, "spec.overrides[0]"},
		"an exclusion at no level":  {func(o map[string]any) { item(o, "excluded", 0)["level"] = "row" }, "spec.excluded"},
		"an exclusion of nobody":    {func(o map[string]any) { item(o, "excluded", 0)["domain"] = "" }, "spec.excluded[0].domain"},
		"an exclusion listed twice": {func(o map[string]any) {
			s := o["spec"].(map[string]any)
			s["excluded"] = append(s["excluded"].([]any), item(o, "excluded", 0))
		}, "spec.excluded[1]"},
	}
	validate := objectValidator(t, v1alpha1.ClusterTopologyKind)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			obj := twoLevels()
			tc.breakIt(obj)
			errs := validate(obj)
			if !slices.ContainsFunc(errs, func(err *field.Error) bool { return err.Field == tc.wantField }) {
				t.Errorf("refused with %v, want an error at %s", errs, tc.wantField)
			}
		})
	}
}

// TestFabricUnits: a bandwidth or latency that is no number is refused with what to write, once.
func TestFabricUnits(t *testing.T) {
	const (
		plainBandwidth = `bandwidthGBps: write a number of GB/s without a unit: 100 for 100GB/s, or an eighth, "12.5", for 100Gb/s or 100Gbps`
		plainLatency   = `latencyMicros: a number of microseconds without a unit, such as 100 or "1.5"`
	)
	validate := objectValidator(t, v1alpha1.ClusterTopologyKind)
	for value, tc := range map[any]struct{ field, want string }{
		"800Gb/s":      {"bandwidthGBps", plainBandwidth},
		"100 Gbps":     {"bandwidthGBps", plainBandwidth},
		"200Gbit/s":    {"bandwidthGBps", plainBandwidth},
		"50GB/s":       {"bandwidthGBps", plainBandwidth},
		"100G":         {"bandwidthGBps", plainBandwidth},
		"fast":         {"bandwidthGBps", plainBandwidth},
		"1.2.3":        {"bandwidthGBps", plainBandwidth},
		"12345678":     {"bandwidthGBps", plainBandwidth},
		"":             {"bandwidthGBps", plainBandwidth},
		"9999999":      {"bandwidthGBps", "bandwidthGBps: above 0 and at most 1000000"},
		int64(0):       {"bandwidthGBps", "bandwidthGBps: above 0 and at most 1000000"},
		int64(1000001): {"bandwidthGBps", "bandwidthGBps: above 0 and at most 1000000"},
		"5us":          {"latencyMicros", plainLatency},
		"1.2345":       {"latencyMicros", plainLatency},
		int64(-1):      {"latencyMicros", "latencyMicros: at most 1000000"},
		"12.5":         {"bandwidthGBps", ""},
		"0":            {"latencyMicros", ""},
		int64(1000000): {"bandwidthGBps", ""},
	} {
		obj, want := twoLevels(), []string(nil)
		root := obj["spec"].(map[string]any)["root"].(map[string]any)
		root[tc.field] = value
		if tc.want != "" {
			want = []string{tc.want}
		}
		var got []string
		for _, err := range validate(obj) {
			got = append(got, err.Detail)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", tc.field, value, diff)
		}
	}
}

func levels(n int) (out []any) {
	for i := range n {
		out = append(out, map[string]any{"name": fmt.Sprintf("level-%d", i), "nodeLabel": fmt.Sprintf("example.com/level-%d", i)})
	}
	return out
}

// TestFabricExamples: there is one for each known set of labels, the API server admits it,
// and all of it counts.
func TestFabricExamples(t *testing.T) {
	validate := objectValidator(t, v1alpha1.ClusterTopologyKind)
	for _, p := range clustertopology.Presets() {
		t.Run(p.Name, func(t *testing.T) {
			text, err := manifests.FS.ReadFile(fabricExamples + p.Name + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			var obj map[string]any
			data, err := yaml.YAMLToJSONStrict(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := utiljson.Unmarshal(data, &obj); err != nil { // whole numbers stay whole
				t.Fatal(err)
			}
			for _, err := range validate(obj) {
				t.Error(err)
			}
			ct := &v1alpha1.ClusterTopology{}
			if err := yaml.UnmarshalStrict(text, ct); err != nil {
				t.Fatal(err)
			}
			var got, want []string
			for _, l := range ct.Spec.Levels {
				got = append(got, l.Name+" "+l.NodeLabel)
			}
			for _, l := range p.Levels {
				want = append(want, l.Name+" "+l.NodeLabel)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("levels (-preset +example):\n%s", diff)
			}
			labels := map[string]string{}
			for i, l := range ct.Spec.Levels {
				labels[l.NodeLabel] = []string{"zone-a", "switch-1", "rack-7", "x"}[i]
			}
			other := map[string]string{"topology.kubernetes.io/zone": "zone-a", "topology.kubernetes.io/switch": "switch-2"}
			_, problems := clustertopology.Tree(ct, []clustertopology.Node{{Name: "a", Labels: labels}, {Name: "b", Labels: other, NoGPUs: true}})
			for i := range problems {
				t.Error(&problems[i])
			}
		})
	}
}
