// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// capture keeps what the programs of the old release have written, for the unit
// tests that read it (testdata/skew).
func (e *testEnv) capture(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, from := range map[string]struct {
		resource  schema.GroupVersionResource
		namespace string
	}{
		"pods.yaml":       {schema.GroupVersionResource{Version: "v1", Resource: "pods"}, metav1.NamespaceDefault},
		"nodes.yaml":      {schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, ""},
		"topologies.yaml": {v1alpha1.GroupVersionResource, ""},
		"leases.yaml":     {schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}, systemNamespace},
	} {
		list, err := e.dynamic.Resource(from.resource).Namespace(from.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			list.Items[i].SetManagedFields(nil)
		}
		data, err := yaml.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
