// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestReasons: all reasons for which a node of eight GPUs without an agent refuses a pod, in the order of
// Judge, and whether the end of other pods would help.
func TestReasons(t *testing.T) {
	tests := map[string]struct {
		asks     int
		may      Unenforced
		used     int // GPUs of the node
		unknown  bool
		basis    Basis
		graph    Reason
		want     []Reason
		wantEver bool // it may fit once others are gone, if it does not now
	}{
		"there is room":                         {asks: 2, basis: ByGraph, wantEver: true},
		"all are used":                          {asks: 2, used: 8, basis: ByGraph, want: []Reason{FewGPUs}, wantEver: true},
		"the machine has fewer":                 {asks: 9, basis: ByGraph, want: []Reason{FewGPUs}},
		"no agent, and all are used":            {asks: 2, may: RefuseUnenforced, used: 8, basis: ByGraph, want: []Reason{NotEnforced, FewGPUs}},
		"nothing is known":                      {asks: 2, unknown: true, basis: Refused, graph: NoGraph, want: []Reason{NoGraph}},
		"a stale graph, and what else there is": {asks: 2, may: RefuseUnenforced, used: 8, basis: Refused, graph: StaleGraph, want: []Reason{StaleGraph, NotEnforced, FewGPUs}},
		"by number":                             {asks: 2, used: 6, basis: ByCount, graph: StaleGraph, wantEver: true},
		"too few by number":                     {asks: 2, used: 7, basis: ByCount, graph: StaleGraph, want: []Reason{FewGPUs}, wantEver: true},
		"no agent, by number":                   {asks: 2, may: RefuseUnenforced, used: 7, basis: ByCount, graph: StaleGraph, want: []Reason{NotEnforced}},
		"a pod that needs no graph":             {asks: 2, unknown: true, basis: Unchecked, graph: NoGraph, wantEver: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := nodeOf(t, "dgx1-v100")
			n.Agent = nodelease.NewTable(0).Get(nodelease.AgentPrefix + n.Name)
			used := *n.Idle
			used.Used = []nvtopo.Mask{nvtopo.FullMask(tc.used)}
			u, d, now := &used, &Demand{Request: gpus(tc.asks), Unenforced: tc.may}, time.Unix(1_700_000_000, 0)
			if tc.unknown {
				u = nil
			}
			first := Judge(u, d, tc.basis, tc.graph, now)
			var got []Reason
			Reasons(u, d, tc.basis, tc.graph, now, func(r Reason) bool {
				got = append(got, r)
				return true
			})
			if diff := cmp.Diff(tc.want, got); diff != "" || first != append(slices.Clone(tc.want), Fits)[0] {
				t.Errorf("judged %s, reasons (-want +got)\n%s", first.Name(), diff)
			}
			if never := Never(u, d, tc.basis, first); never == tc.wantEver {
				t.Errorf("never: %t, want %t", never, !tc.wantEver)
			}
			if allocs := testing.AllocsPerRun(10, func() { Judge(u, d, tc.basis, tc.graph, now) }); first == Fits && allocs > 0 {
				t.Errorf("%g allocations, want none", allocs)
			}
		})
	}
}
