// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestDegradedOldSchema: a degraded GPU is not healthy where the schema cannot say "degraded".
func TestDegradedOldSchema(t *testing.T) {
	status := func(degraded, healthy bool) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"gpuHealth": []any{
			map[string]any{"id": "a", "healthy": healthy, "degraded": degraded, "since": "then"},
			map[string]any{"id": "b", "healthy": true},
		}}}}
	}
	tests := map[string]struct {
		leftOut []string
		given   *unstructured.Unstructured
		want    *unstructured.Unstructured
	}{
		"the schema has no degraded":           {[]string{"status.gpuHealth.degraded", "status.gpuHealth.since"}, status(true, true), status(true, false)},
		"it has, and lacks something else":     {[]string{"status.gpuHealth.since"}, status(true, true), status(true, true)},
		"the GPU is intact":                    {[]string{"status.gpuHealth.degraded"}, status(false, true), status(false, true)},
		"it is the spec that something lacks":  {[]string{"spec.links.errors"}, &unstructured.Unstructured{Object: map[string]any{}}, &unstructured.Unstructured{Object: map[string]any{}}},
		"there is no status, against all odds": {[]string{"status.gpuHealth.degraded"}, &unstructured.Unstructured{Object: map[string]any{}}, &unstructured.Unstructured{Object: map[string]any{}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			withoutDegraded(tc.given, tc.leftOut)
			if diff := cmp.Diff(tc.want, tc.given); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
