// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// TestSegmentsBehindLauncher: segments are of the workers alone, as for the scheduler, whatever rank the launcher
// has. With its rank they were cut after the first and the third worker, and the gang was said to have a place.
func TestSegmentsBehindLauncher(t *testing.T) {
	for name, tc := range map[string]struct {
		racks []string // of nodes with room for one worker
		want  string   // the level
	}{
		"two racks have room for two workers":    {racks: []string{"a", "a", "b", "b"}, want: "cluster"},
		"one rack has room for two, two for one": {racks: []string{"a", "a", "b", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv()
			for i, rack := range tc.racks {
				w.node(t, fmt.Sprint("n", i), cube, map[string]string{"topology.kubernetes.io/rack": rack})
			}
			for i := range 5 {
				gpus := 8
				if i == 0 {
					gpus = 0
				}
				w.waits(pod(fmt.Sprint("g-", i), gpus).Annotations(map[string]string{
					gangrequest.GangKey: "g", gangrequest.GangSizeKey: "5", gangrequest.SegmentSizeKey: "2", gangrequest.RequiredSegmentKey: "rack",
				}).Obj())
			}
			key, _ := gangrequest.KeyOf(w.pod("g-0"))
			e, err := GangOf(w.World, key)
			if err != nil || e.Gang.Level != tc.want {
				t.Errorf("level %q, %s (%v); want %q", e.Gang.Level, e.Reason, err, tc.want)
			}
		})
	}
}
