// SPDX-License-Identifier: Apache-2.0

package release

import "testing"

func TestNameIn(t *testing.T) {
	for text, want := range map[string]string{
		"v1.35.6+nvtopo.v0.2.0-3-gabcdef1-dirty": "v0.2.0-3-gabcdef1-dirty",
		"v0.0.0-master+$Format:%H$":              "unknown",
		"v1.35.6+nvtopo.":                        "unknown",
	} {
		if got := nameIn(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
