// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// big is a pod of 1001 thousandths of a CPU and 3 bytes.
type big struct{ pods }

func (big) Requests(int) Requests { return bigRequest{} }

type bigRequest struct{}

func (bigRequest) GetMilliCPU() int64                            { return 1001 }
func (bigRequest) GetMemory() int64                              { return 3 }
func (bigRequest) GetScalarResources() map[v1.ResourceName]int64 { return nil }

// TestCharge: how much is subtracted from the first two NUMA nodes for one pod that is known in several
// ways.
func TestCharge(t *testing.T) {
	both := func(n *Node) *allocation.Allocation {
		a := n.choice("p")
		a.NUMANodes = []int{n.NUMA.NUMANodes[0].ID, n.NUMA.NUMANodes[1].ID}
		return a
	}
	reserve := func(n *Node, in *Input) {
		in.Reservations = []Reservation{{UID: "p", Allocation: both(n), Request: &podrequest.Request{MilliCPU: 1001, Memory: 3}}}
	}
	annotate := func(n *Node, in *Input) {
		in.Pods, in.Reader = big{podsOf("p")}, told{carried: map[types.UID]*allocation.Allocation{"p": both(n)}}
	}
	tests := map[string]struct {
		input func(n *Node, in *Input)
		want  []NUMAFree
	}{
		"a reservation, in equal parts that are rounded up": {input: reserve, want: []NUMAFree{{501, 2}, {501, 2}}},
		"a choice for one NUMA node": {
			input: func(n *Node, in *Input) {
				reserve(n, in)
				in.Reservations[0].Allocation.NUMANodes = in.Reservations[0].Allocation.NUMANodes[1:]
			},
			want: []NUMAFree{{}, {1001, 3}},
		},
		"an annotation": {input: annotate, want: []NUMAFree{{501, 2}, {501, 2}}},
		"a reservation and an annotation pay once": {
			input: func(n *Node, in *Input) { reserve(n, in); annotate(n, in) }, want: []NUMAFree{{501, 2}, {501, 2}},
		},
		"nobody knows where": {
			input: func(_ *Node, in *Input) { in.Pods = big{podsOf("p")} }, want: []NUMAFree{{1001, 3}, {1001, 3}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := testNode(t, true)
			in := &Input{Node: n, Now: now, Pods: pods{}, Reader: told{}}
			tc.input(n, in)
			u := Compute(in)
			var got []NUMAFree
			for i := range 2 {
				got = append(got, NUMAFree{n.Empty.NUMA[i].MilliCPU - u.NUMA[i].MilliCPU, n.Empty.NUMA[i].Memory - u.NUMA[i].Memory})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
