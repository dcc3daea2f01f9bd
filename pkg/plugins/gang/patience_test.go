// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestPatience has one free node in each of two racks, and a gang of two that would fit one rack
// if they were empty.
func TestPatience(t *testing.T) {
	t.Parallel()
	const said = "waits until "
	for name, tc := range map[string]struct {
		notes map[string]string
		kueue bool
		want  bool
	}{
		"the default":                  {nil, false, false},
		"for a while":                  {map[string]string{gangrequest.PatienceKey: "10m"}, false, true},
		"not for a level that is good": {map[string]string{gangrequest.PatienceKey: "10m", gangrequest.PreferredKey: "cluster"}, false, false},
		"not once Kueue admitted it":   {map[string]string{gangrequest.PatienceKey: "1h"}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clk := &testkit.Ahead{}
			r := newTestEnvAt(t, clk, `{}`, 2, 2)
			apart := r.gang("apart", 2, 8, map[string]string{gangrequest.StrategyKey: "compute-heavy"})
			r.known(apart[0])
			if c := r.cycle(apart[0]); !c.status.IsWait() {
				t.Fatal(c.status)
			}
			var pods []*v1.Pod
			for i := range 2 {
				pod := member("g", 2, i, 8).Annotations(tc.notes)
				if tc.kueue {
					pod.Label("kueue.x-k8s.io/managed", "true")
				}
				pods = append(pods, r.create(pod.Obj()))
			}
			r.known(pods[0])
			waits := func(c *cycle) bool {
				return strings.Contains(c.status.Message(), said) && strings.Contains(c.status.Message(), "better level than cluster: rack")
			}
			c := r.cycle(pods[0])
			if got := waits(c); got != tc.want {
				t.Fatalf("%v: waits %t, want %t", c.status, got, tc.want)
			}
			if tc.want {
				clk.Add(5 * time.Minute)
				if c := r.cycle(pods[0]); !waits(c) {
					t.Errorf("%v, want the gang to wait while its patience lasts", c.status)
				}
				clk.Add(6 * time.Minute)
				testkit.Soon(t, "the gang starts all the same", func() bool { return r.cycle(pods[0]).status.IsWait() })
			} else if !c.status.IsWait() {
				t.Errorf("%v, want the gang to be placed at once", c.status)
			}
		})
	}
}
