// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"cmp"
	"maps"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/contract"
)

// TestContract compares the differences between each set of rendered values and the manifests that
// install the same objects. The manifests themselves are already in the contract.
func TestContract(t *testing.T) {
	for name, tc := range same {
		t.Run(name, func(t *testing.T) {
			manifests := objects{}
			for _, m := range tc.manifests {
				maps.Copy(manifests, kustomize(t, m))
			}
			text := contractOf(t, render(t, tc.values)).TextAgainst(contractOf(t, manifests))
			text = "# values " + cmp.Or(tc.values, "{}") + ", beside " + strings.Join(tc.manifests, " and ") + " of manifests\n" + text
			contract.Compare(t, "chart/"+strings.NewReplacer(" ", "-", "'", "").Replace(name)+".txt", text)
		})
	}
}

func contractOf(t *testing.T, all objects) contract.Objects {
	t.Helper()
	out := contract.Objects{}
	for _, o := range all {
		if err := out.Add(o.Object); err != nil {
			t.Fatal(err)
		}
	}
	return out
}
