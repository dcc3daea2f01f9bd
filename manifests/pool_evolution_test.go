// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// TestPoolCRDEvolution: what the definitions of prices and records refuse, drop or demand that those
// before validFrom did not. docs/upgrade.md says what follows.
func TestPoolCRDEvolution(t *testing.T) {
	for file, tc := range map[string]struct {
		kind string
		want []string
	}{
		"pricebooks.yaml": {v1alpha1.PriceBookKind, []string{
			// What was billed is in it.
			"v1alpha1.spec.currency: new rule self == oldSelf",
			// A price without validFrom has the default, so that an old list has the keys that it had.
			`v1alpha1.spec.prices list keys: was "resource,model" and is "resource,model,validFrom"`,
			// Entries that stay are not judged again, and the controller reads what the old ones let
			// through; no device has such a model or resource.
			`v1alpha1.spec.prices[].model: new rule self.matches('^([A-Za-z0-9][A-Za-z0-9._/:-]*)?$')`,
			`v1alpha1.spec.prices[].resource: new rule self.matches('^[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._-]+$')`,
		}},
		"usagerecords.yaml": {v1alpha1.UsageRecordKind, []string{
			// The controller never wrote anything else.
			`v1alpha1.spec.model pattern: was "" and is "^([A-Za-z0-9][A-Za-z0-9._/:-]*)?$"`,
			`v1alpha1.spec.resource pattern: was "" and is "^[A-Za-z0-9][A-Za-z0-9._/:-]*$"`,
			`v1alpha1.spec.tenant pattern: was "" and is "^[A-Za-z0-9][A-Za-z0-9._/:-]*$"`,
			"v1alpha1.status.cost: new rule double(self) >= 0.0",
			// Of fields that are new.
			"v1alpha1: new rule !has(oldSelf.status) || !has(oldSelf.status.billedSeconds) || has(self.status) && has(self.status.billedSeconds) && self.status.billedSeconds == oldSelf.status.billedSeconds",
			"v1alpha1: new rule !has(oldSelf.status) || !has(oldSelf.status.unitPrice) || has(self.status) && has(self.status.unitPrice) && self.status.unitPrice == oldSelf.status.unitPrice",
		}},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			data, err := os.ReadFile("../testdata/skew/pools/" + file)
			if err != nil {
				t.Fatal(err)
			}
			old := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.UnmarshalStrict(data, old); err != nil {
				t.Fatal(err)
			}
			got := incompatible(old, definition(t, tc.kind))
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
