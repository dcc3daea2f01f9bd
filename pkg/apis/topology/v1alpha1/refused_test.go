// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestRefused: every program says of a refused request which object it was about, and what to repair.
func TestRefused(t *testing.T) {
	tests := map[string]struct {
		err  error
		want string
	}{
		"the definition has no such field": {
			errors.New("failed to create typed patch object: .spec.x: field not declared in schema"),
			`apply the spec of NodeGPUTopology "n1": the CRD is not the one of this node agent's version, apply that: failed to create typed patch object: .spec.x: field not declared in schema`,
		},
		"rights are missing": {
			apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "n1", errors.New("no")),
			`apply the spec of NodeGPUTopology "n1": not allowed, check the node agent's RBAC and admission policies: leases "n1" is forbidden: no`,
		},
		"something else": {errors.New("timed out"), `apply the spec of NodeGPUTopology "n1": timed out`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := Refused(tc.err, "node agent", "apply the spec of", Kind, "n1")
			if got.Error() != tc.want || !errors.Is(got, tc.err) {
				t.Errorf("got %v, want %s", got, tc.want)
			}
		})
	}
}
