// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"maps"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// same are values of the chart with the kustomize folders that install the same objects.
var same = map[string]struct {
	manifests []string // built together
	values    string
}{
	"the base":                     {[]string{"."}, ""},
	"the scheduler alone":          {[]string{"overlays/scheduler"}, "{exporter: {enabled: false}, nodeAgent: {enabled: false}}"},
	"scheduler and exporter":       {[]string{"overlays/exporter"}, "{nodeAgent: {enabled: false}}"},
	"annotations on the Binding":   {[]string{"overlays/binding"}, "{scheduler: {profile: Binding}}"},
	"in place of kube-scheduler":   {[]string{"overlays/default-scheduler"}, "{scheduler: {profile: DefaultScheduler}}"},
	"strict agents":                {[]string{"overlays/strict"}, "{nodeAgent: {mode: strict}}"},
	"agents that pin":              {[]string{"overlays/pinning"}, "{nodeAgent: {pinning: true}}"},
	"pools":                        {[]string{"overlays/pools"}, "{pools: {enabled: true}}"},
	"the web view":                 {[]string{".", "ui"}, "{ui: {enabled: true}}"},
	"monitoring":                   {[]string{".", "alerts"}, "{monitoring: {enabled: true}}"},
	"monitoring of pools":          {[]string{"overlays/pools", "alerts", "pools/alerts"}, "{pools: {enabled: true}, monitoring: {enabled: true}}"},
	"kubelet's files":              {[]string{"../test/chart/testdata/kubelet-files"}, "{nodeAgent: {kubeletFiles: true}}"},
	"kubelet's certificate":        {[]string{"../test/chart/testdata/kubelet-certificate"}, "{nodeAgent: {kubeletCertificate: true}}"},
	"every component of the agent": {[]string{"../test/chart/testdata/all-components"}, "{nodeAgent: {mode: strict, pinning: true, kubeletFiles: true, kubeletCertificate: true}}"},
}

// TestChartMatchesManifests compares Helm's rendering with the kustomize build. They may differ only as
// inChart describes, and by the objects of `helm test`.
func TestChartMatchesManifests(t *testing.T) {
	for name, tc := range same {
		t.Run(name, func(t *testing.T) {
			want := objects{}
			for _, m := range tc.manifests {
				maps.Copy(want, kustomize(t, m))
			}
			got := render(t, tc.values)
			for k, o := range got {
				if o.GetAnnotations()["helm.sh/hook"] == "test" {
					delete(got, k)
				}
			}
			inChart(t, want, got)
			if diff := cmp.Diff(contents(want), contents(got)); diff != "" {
				t.Errorf("(-manifests +chart):\n%s", diff)
			}
		})
	}
}

// hashed matches the name that kustomize gives the scheduler's ConfigMap.
var hashed = regexp.MustCompile(`^nvtopo-scheduler-config-[a-z0-9]{10}$`)

// inChart changes the manifests' objects in the ways in which the chart's differ.
func inChart(t *testing.T, manifests, chart objects) {
	t.Helper()
	// Helm keeps its record of a release in the namespace, which therefore has to exist before.
	delete(manifests, "Namespace /"+namespace)
	for k, o := range manifests {
		switch {
		case o.GetKind() == "CustomResourceDefinition":
			annotate(o, "helm.sh/resource-policy", "keep")
		case o.GetKind() == "ConfigMap" && hashed.MatchString(o.GetName()):
			// Helm does not keep the old ConfigMap: its name stays, and a hash of its content in the
			// pods restarts them.
			delete(manifests, k)
			o.SetName("nvtopo-scheduler-config")
			manifests[key(o)] = o
		case o.GetKind() == "Deployment" && o.GetName() == "nvtopo-scheduler":
			volume := field(t, o, "spec/template/spec/volumes/0/configMap").(map[string]any)
			if !hashed.MatchString(volume["name"].(string)) {
				t.Errorf("the scheduler reads ConfigMap %v", volume["name"])
			}
			volume["name"] = "nvtopo-scheduler-config"
			sum, _ := field(t, chart[key(o)], "spec/template/metadata/annotations/checksum~config").(string)
			if len(sum) != 64 {
				t.Errorf("the scheduler's pods have %q for a hash of their configuration", sum)
			}
			template := field(t, o, "spec/template/metadata").(map[string]any)
			template["annotations"] = map[string]any{"checksum/config": sum}
		}
	}
}

func annotate(o *unstructured.Unstructured, name, value string) {
	all := o.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all[name] = value
	o.SetAnnotations(all)
}

func contents(all objects) map[string]any {
	out := map[string]any{}
	for k, o := range all {
		out[k] = o.Object
	}
	return out
}
