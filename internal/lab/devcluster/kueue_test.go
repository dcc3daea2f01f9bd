// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvtopo/nvtopo/manifests"
)

// TestKueueConfiguration: Kueue runs here with the shipped configuration, but for addresses and
// folders, and with the gates that tenants would pass by.
func TestKueueConfiguration(t *testing.T) {
	shipped, err := manifests.Kueue.ReadFile(manifests.KueueConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	run, err := kueueConfiguration("dir", [3]int{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	for text, into := range map[*[]byte]*map[string]any{&shipped: &want, &run: &got} {
		if err := yaml.Unmarshal(*text, into); err != nil {
			t.Fatal(err)
		}
		for _, path := range [][]string{
			{"health", "healthProbeBindAddress"},
			{"metrics", "bindAddress"},
			{"webhook", "host"},
			{"webhook", "port"},
			{"webhook", "certDir"},
			{"leaderElection", "leaderElect"},
		} {
			unstructured.RemoveNestedField(*into, path...)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Kueue's configuration (-shipped +run):\n%s", diff)
	}
	if on, set, err := unstructured.NestedBool(want, "featureGates", "ElasticJobsViaWorkloadSlices"); on || !set || err != nil {
		t.Errorf("ElasticJobsViaWorkloadSlices is %t, set %t, %v; want it off", on, set, err)
	}
}
