// SPDX-License-Identifier: Apache-2.0

package question

import (
	"slices"
	"testing"
)

func TestOverlaps(t *testing.T) {
	cases := map[string]struct {
		has  []string
		id   string
		want bool
	}{
		"the same device":              {[]string{"GPU-0"}, "GPU-0", true},
		"the same replica":             {[]string{"GPU-0::1"}, "GPU-0::1", true},
		"a replica of a whole device":  {[]string{"GPU-0"}, "GPU-0::1", true},
		"the device of a replica":      {[]string{"GPU-1::0", "GPU-0::1"}, "GPU-0", true},
		"two replicas of one device":   {[]string{"GPU-0::0", "GPU-0::11"}, "GPU-0::1", false},
		"another device":               {[]string{"GPU-0", "GPU-2"}, "GPU-1", false},
		"a replica of another device":  {[]string{"GPU-0", "GPU-2"}, "GPU-1::0", false},
		"a device with a similar name": {[]string{"GPU-0", "GPU-01::0"}, "GPU-00", false},
		"nothing":                      {nil, "GPU-0", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := SetOf(tc.has).Overlaps(tc.id); got != tc.want {
				t.Errorf("%v and %s: %v, want %v", tc.has, tc.id, got, tc.want)
			}
			if got := slices.ContainsFunc(tc.has, SetOf([]string{tc.id}).Overlaps); got != tc.want {
				t.Errorf("the other way round: %v, want %v", got, tc.want)
			}
		})
	}
}
