// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nvtopo/nvtopo/manifests"
)

// TestStandInRights: an exporter's account that stands in for agents gets one verb of the shipped role
// of agents, and none of those that read pods or write events.
func TestStandInRights(t *testing.T) {
	t.Parallel()
	role, binding := standInRole("ns", "exporter")
	want := []rbacv1.PolicyRule{{APIGroups: []string{"topology.nvtopo.dev"}, Resources: []string{"nodegputopologies"}, Verbs: []string{"report-allocations"}}}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if binding.RoleRef.Kind != "ClusterRole" || binding.RoleRef.Name != role.Name {
		t.Errorf("the binding is of %s %s", binding.RoleRef.Kind, binding.RoleRef.Name)
	}
	objects, err := readManifests(manifests.FS)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "ClusterRole" && o.GetName() == "nvtopo-node-agent"
	})
	var shipped rbacv1.ClusterRole
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, &shipped); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(shipped.Rules, func(r rbacv1.PolicyRule) bool { return cmp.Equal(r, want[0]) }) {
		t.Errorf("the shipped role of agents has no such rule: %v", shipped.Rules)
	}
}
