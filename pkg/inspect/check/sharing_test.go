// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestSharedGPUs: GPUs that are shared on purpose are no violation.
func TestSharedGPUs(t *testing.T) {
	cases := map[string]struct {
		capacity, allocatable int64
		lost                  []int // of the node's eight GPUs
		noGraph               bool
		want                  wanted
	}{
		"one device each": {capacity: 8, allocatable: 8, want: wanted{violations: []string{SharedByRecord}}},
		"one device each, and a lost GPU": {
			capacity: 8, allocatable: 7, lost: []int{7}, want: wanted{violations: []string{SharedByRecord}},
		},
		"one device each, without the lost GPU": {
			capacity: 7, allocatable: 7, lost: []int{7}, want: wanted{violations: []string{SharedByRecord}},
		},
		"four devices each":                             {capacity: 32, allocatable: 32},
		"two devices each":                              {capacity: 16, allocatable: 16},
		"two devices each, half of the GPUs lost":       {capacity: 16, allocatable: 8, lost: []int{4, 5, 6, 7}},
		"two devices each, and the plugin just stopped": {capacity: 16, allocatable: 0},
		"two devices each, half of the GPUs lost before the plugin was started": {
			capacity: 8, allocatable: 8, lost: []int{4, 5, 6, 7}, want: wanted{notes: []string{Unverified}},
		},
		"a plugin that is gone": {want: wanted{notes: []string{Unverified}, message: "for 2 live pods; it is not known now whether its device plugin"}},
		"a graph that cannot be read": {
			capacity: 16, allocatable: 16, noGraph: true, want: wanted{notes: []string{MalformedTopology, Unverified, Unverified}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newTestEnv(t)
			c.Nodes[0].Status = v1.NodeStatus{
				Capacity: v1.ResourceList{gpu: *quantity(tc.capacity)}, Allocatable: v1.ResourceList{gpu: *quantity(tc.allocatable)},
			}
			for _, i := range tc.lost {
				fail(c, "a", i)
			}
			if tc.noGraph {
				c.topology("a").Spec.LinkRows = nil
			}
			c.record(c.pod("one", "a", 0), "main", 0)
			foreign := c.pod("foreign", "a", 1)
			foreign.Spec.SchedulerName, foreign.Annotations = v1.DefaultSchedulerName, nil
			c.record(foreign, "main", 0)
			tc.want.compare(t, Examine(c.World))
		})
	}
}
