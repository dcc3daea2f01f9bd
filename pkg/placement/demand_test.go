// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// TestBasis: the basis for a pod with a GPU, or with none, for each state of the graph.
func TestBasis(t *testing.T) {
	needs := gpus(2)
	needs.Constraint.MinLink = nvtopo.Class{Kind: nvtopo.KindNVLink}
	noTopology := gpus(1)
	noTopology.NoTopology = true
	tests := map[string]struct {
		demand Demand
		graph  Reason
		want   Basis
	}{
		"a graph that counts":                              {Demand{Request: gpus(1)}, Fits, ByGraph},
		"no GPUs, and no graph":                            {Demand{Request: gpus(0)}, NoGraph, Unchecked},
		"no GPUs, and a stale one":                         {Demand{Request: gpus(0)}, StaleGraph, Unchecked},
		"no graph":                                         {Demand{Request: gpus(1)}, NoGraph, Refused},
		"a stale one":                                      {Demand{Request: gpus(1)}, StaleGraph, Refused},
		"no graph, which the profile allows":               {Demand{Request: gpus(1), AllowNoGraph: true}, NoGraph, Unchecked},
		"a stale one, where the profile allows none":       {Demand{Request: gpus(1), AllowNoGraph: true}, StaleGraph, Refused},
		"a stale one, which the profile counts by":         {Demand{Request: gpus(1), CountStale: true}, StaleGraph, ByCount},
		"no graph, where the profile counts by stale ones": {Demand{Request: gpus(1), CountStale: true}, NoGraph, Refused},
		"one that cannot be read any more, likewise":       {Demand{Request: gpus(1), CountStale: true}, UnreadableGraph, ByCount},
		"a pod that wants no topology, and a stale one":    {Demand{Request: noTopology}, StaleGraph, ByCount},
		"a pod that wants no topology, and no graph":       {Demand{Request: noTopology}, NoGraph, Unchecked},
		"a pod that needs links, whatever is allowed":      {Demand{Request: needs, AllowNoGraph: true, CountStale: true}, StaleGraph, Refused},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tc.demand.Basis(&usage.Node{}, tc.graph); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
}

// TestCheckEnforcement: which pods are refused on a node of eight GPUs without an agent.
func TestCheckEnforcement(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	tests := map[string]struct {
		may    Unenforced
		asked  int
		trusts bool
		want   Reason
	}{
		"anybody may":                             {may: AllowUnenforced, asked: 2},
		"but not who trusts the output":           {may: AllowUnenforced, asked: 2, trusts: true, want: NotEnforced},
		"unless it has the whole node":            {may: AllowUnenforced, asked: 8, trusts: true},
		"the whole node, where only it may":       {may: WholeNodeOnly, asked: 8},
		"a part of the node, where only all may":  {may: WholeNodeOnly, asked: 2, want: NotEnforced},
		"the whole node, where nobody may":        {may: RefuseUnenforced, asked: 8, want: NotEnforced},
		"no GPUs at all, where nobody with them":  {may: RefuseUnenforced},
		"more than the node has, where all may":   {may: AllowUnenforced, asked: 9},
		"more than the node has, as a whole node": {may: WholeNodeOnly, asked: 9, want: NotEnforced},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := nodeOf(t, "dgx1-v100")
			n.Agent = nodelease.NewTable(0).Get(nodelease.AgentPrefix + n.Name)
			r := gpus(tc.asked)
			r.TrustsOutput = tc.trusts
			if got := checkEnforcement(r, tc.may, n, now); got != tc.want {
				t.Errorf("%s, want %s", got.Name(), tc.want.Name())
			}
		})
	}
}

// TestAsGiven: AsGiven for members of two other shapes that have GPUs 1 and 4 among them.
func TestAsGiven(t *testing.T) {
	n := nodeOf(t, "dgx1-v100")
	one, two := &Demand{Request: &podrequest.Request{MilliCPU: 1}}, &Demand{Request: &podrequest.Request{MilliCPU: 2}}
	d := &Demand{Request: gpus(2)}
	if out := AsGiven(d, n, 0, nil); out != nil {
		t.Errorf("nobody has something: %v", out)
	}
	var used nvtopo.Mask
	var milliCPU []int64
	uids := map[types.UID]int{}
	for _, r := range AsGiven(d, n, nvtopo.MaskOf(1, 4), []Placed{{one, 3}, {two, 1}}) {
		used |= r.Allocation.Mask(gpu, n.Accels[0].Graph)
		milliCPU = append(milliCPU, r.Request.MilliCPU)
		uids[r.UID]++
	}
	if diff := cmp.Diff([]int64{0, 1, 1, 1, 2}, milliCPU); diff != "" || used != nvtopo.MaskOf(1, 4) || uids["p"] != 5 {
		t.Errorf("GPUs %v of %v; CPU of the first and of each member (-want +got)\n%s", used.Positions(), uids, diff)
	}
}
