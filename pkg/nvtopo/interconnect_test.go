// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "testing"

// TestInterconnect: which GPUs the links join, on machines that the catalogue does not have.
func TestInterconnect(t *testing.T) {
	const sys, nv1, nv4, nv17, nv18 = "SYS", "NV1", "NV4", "NV17", "NV18"
	tests := map[string]struct {
		gpus     int
		links    map[[2]int]string // SYS where nothing is said
		switched bool
		mig      []int
		want     string
	}{
		"no GPU":                    {0, nil, false, nil, ""},
		"one GPU":                   {1, nil, false, nil, ""},
		"two GPUs without a fabric": {2, nil, false, nil, "SYS"},
		"two GPUs, joined":          {2, map[[2]int]string{{0, 1}: nv4}, false, nil, "NV4 all"},
		"one pair of four":          {4, map[[2]int]string{{1, 2}: nv4}, false, nil, "NV4 pairs"},
		"a pair with a broken bridge beside a whole one": {4, map[[2]int]string{{0, 1}: nv4, {2, 3}: nv1}, false, nil, "NV4 pairs"},
		"a chain":                                {3, map[[2]int]string{{0, 1}: nv4, {1, 2}: nv4}, false, nil, "NV4 some"},
		"every two, some by fewer links":         {3, map[[2]int]string{{0, 1}: nv4, {1, 2}: nv4, {0, 2}: nv1}, false, nil, "NV4 some"},
		"a switch, and a GPU with a broken link": {3, map[[2]int]string{{0, 1}: nv18, {1, 2}: nv17, {0, 2}: nv17}, true, nil, "NV18 all"},
		"a switch, and a GPU that is divided":    {4, map[[2]int]string{{0, 1}: nv18, {1, 2}: nv18, {0, 2}: nv18}, true, []int{3}, "NV18 all"},
		"all GPUs are divided":                   {2, map[[2]int]string{{0, 1}: nv18}, true, []int{0, 1}, "NV18"},
		"groups of several sizes":                {5, map[[2]int]string{{0, 1}: nv4, {1, 2}: nv4, {0, 2}: nv4, {3, 4}: nv4}, false, nil, "NV4 groups"},
		"two groups of three":                    {6, map[[2]int]string{{0, 1}: nv4, {1, 2}: nv4, {0, 2}: nv4, {3, 4}: nv4, {4, 5}: nv4, {3, 5}: nv4}, false, nil, "NV4 groups of 3"},
		"a text that would be too long": {6, map[[2]int]string{
			{0, 1}: "XGMI4", {1, 2}: "XGMI4", {0, 2}: "XGMI4", {3, 4}: "XGMI4", {4, 5}: "XGMI4", {3, 5}: "XGMI4",
		}, false, nil, "XGMI4 groups"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			gpus := make([]GPU, tc.gpus)
			links := map[[2]int]Link{}
			for i := range gpus {
				gpus[i] = GPU{UUID: string(rune('a' + i)), Index: i, NUMANode: UnknownNUMA}
				for j := range i {
					text := tc.links[[2]int{j, i}]
					if text == "" {
						text = sys
					}
					class, err := ParseClass(text)
					if err != nil {
						t.Fatal(err)
					}
					links[[2]int{j, i}] = NewLink(class, PCIeSYS, 4, 25_000_000, tc.switched && class.IsFabric())
				}
			}
			for _, i := range tc.mig {
				gpus[i].MIG = true
			}
			g, err := NewGraph(gpus, nil, nil, links)
			if err != nil {
				t.Fatal(err)
			}
			if got := g.Interconnect(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
