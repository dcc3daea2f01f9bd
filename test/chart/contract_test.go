// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/contract"
)

// TestContract compares what Helm renders with what is committed: how the chart as it is differs from
// the base of manifests, and how each set of values differs from the chart as it is.
func TestContract(t *testing.T) {
	chart := contractOf(t, render(t, ""))
	contract.Compare(t, "chart/default.txt", "# the chart without values, beside the base of manifests\n"+chart.TextAgainst(contractOf(t, kustomize(t, "."))))
	for name, tc := range same {
		if tc.values == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			text := "# values " + tc.values + ", beside the chart without values\n" + contractOf(t, render(t, tc.values)).TextAgainst(chart)
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
