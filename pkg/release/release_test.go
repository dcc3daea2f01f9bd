// SPDX-License-Identifier: Apache-2.0

package release

import (
	"strconv"
	"testing"
)

func TestMarks(t *testing.T) {
	tests := map[string]struct {
		annotations   map[string]string
		want          Mark
		wantSupported bool
	}{
		"of this release":                        {Marks(), Mark{Version(), Level}, true},
		"of a release before levels":             {nil, Mark{"unknown", 1}, Level == 2},
		"of the next release":                    {map[string]string{VersionKey: "v9", LevelKey: strconv.Itoa(Level + 1)}, Mark{"v9", Level + 1}, true},
		"two releases apart":                     {map[string]string{VersionKey: "v9", LevelKey: strconv.Itoa(Level + 2)}, Mark{"v9", Level + 2}, false},
		"no number: as far apart as can be":      {map[string]string{LevelKey: "two"}, Mark{"unknown", 0}, false},
		"a negative one: as far apart as can be": {map[string]string{LevelKey: "-1"}, Mark{"unknown", 0}, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := MarkOf(tc.annotations)
			if got != tc.want || got.Supported() != tc.wantSupported {
				t.Errorf("%v, supported: %v; want %v, %v", got, got.Supported(), tc.want, tc.wantSupported)
			}
		})
	}
}

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
