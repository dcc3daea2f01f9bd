// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const gpu = "nvidia.com/gpu"

var now = time.Unix(1_700_000_000, 0)

// testNode is a node of four GPUs whose agent is alive, or not.
func testNode(t *testing.T, agent bool) *Node {
	t.Helper()
	m, err := machine.Lookup("a100-pcie-4-bridged")
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.GraphFor("n")
	if err != nil {
		t.Fatal(err)
	}
	tables, _ := nvtopo.NewRegistry(nvtopo.DefaultWeights()).Share(g)
	leases := nodelease.NewTable(0)
	n := &Node{
		Name: "n", NodeUID: "node-uid", Resources: []string{gpu}, NUMA: g, Exporter: leases.Get("exporter-n"), Agent: leases.Get("agent-n"),
		Accels: []*Accel{{Resource: gpu, Graph: tables.Graph(), Tables: tables, Healthy: g.Healthy()}},
	}
	if agent {
		leases.Set(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "agent-n"},
			Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(now)), LeaseDurationSeconds: new(int32(60))},
		}, now)
	}
	n.Complete()
	return n
}

func (n *Node) ids(positions ...int) []string {
	var out []string
	for _, p := range positions {
		out = append(out, n.Accels[0].Graph.GPUs[p].UUID)
	}
	return out
}

// choice is an allocation of the node's GPUs for a pod.
func (n *Node) choice(uid types.UID, positions ...int) *allocation.Allocation {
	return &allocation.Allocation{
		Version: allocation.Version, Node: n.Name, PodUID: uid,
		Containers: []allocation.Container{{Name: "main", Resource: gpu, GPUs: n.ids(positions...)}},
	}
}

// asked is a pod's request for GPUs.
type asked int64

func (asked) GetMilliCPU() int64 { return 0 }
func (asked) GetMemory() int64   { return 0 }
func (a asked) GetScalarResources() map[v1.ResourceName]int64 {
	return map[v1.ResourceName]int64{gpu: int64(a)}
}

// pods are of two GPUs each, by UID.
type pods []*v1.Pod

func podsOf(uids ...types.UID) pods {
	out := pods{}
	for _, uid := range uids {
		out = append(out, testobj.Pod("p").UID(string(uid)).Node("n").Obj())
	}
	return out
}

func (p pods) Len() int              { return len(p) }
func (p pods) Pod(i int) *v1.Pod     { return p[i] }
func (p pods) Requests(int) Requests { return asked(2) }

// told has the allocations of pods, on this copy or in the informer's store.
type told struct {
	carried, stored map[types.UID]*allocation.Allocation
}

func (r told) Allocation(pod *v1.Pod, _ string) *allocation.Allocation {
	if pod.Name == "stored" {
		return r.stored[pod.UID]
	}
	return r.carried[pod.UID]
}

func (r told) Stored(pod *v1.Pod) *v1.Pod {
	if r.stored[pod.UID] == nil {
		return nil
	}
	return testobj.Pod("stored").UID(string(pod.UID)).Obj()
}

func (told) Nominated(types.UID) *allocation.Allocation { return nil }

// TestUsageSources: usage comes from every source.
func TestUsageSources(t *testing.T) {
	reserved := func(n *Node) []Reservation {
		return []Reservation{{UID: "p", Allocation: n.choice("p", 1, 2), Request: &podrequest.Request{}}}
	}
	recorded := func(n *Node) { n.Records = map[types.UID][]Record{"p": {{Resource: gpu, GPUs: n.ids(1, 2)}}} }
	tests := map[string]struct {
		deadAgent     bool
		input         func(n *Node, in *Input)
		wantUsed      nvtopo.Mask
		wantCounted   int
		wantForeign   bool
		wantFromStore bool
	}{
		"nothing": {input: func(*Node, *Input) {}},
		"a pod's annotation": {
			input: func(n *Node, in *Input) {
				in.Pods, in.Reader = podsOf("p"), told{carried: map[types.UID]*allocation.Allocation{"p": n.choice("p", 1, 2)}}
			},
			wantUsed: nvtopo.MaskOf(1, 2),
		},
		"the annotation in the store, of a pod that shows none here": {
			input: func(n *Node, in *Input) {
				in.Pods, in.Reader = podsOf("p"), told{stored: map[types.UID]*allocation.Allocation{"p": n.choice("p", 1, 2)}}
			},
			wantUsed: nvtopo.MaskOf(1, 2), wantFromStore: true,
		},
		"a pod that nobody chose for is counted": {
			input: func(_ *Node, in *Input) { in.Pods = podsOf("p") }, wantCounted: 2, wantForeign: true, wantFromStore: true,
		},
		"a pod that is only nominated will choose": {
			input: func(_ *Node, in *Input) {
				nominated := podsOf("p")
				nominated[0].Spec.NodeName = ""
				in.Pods = nominated
			},
			wantCounted: 2,
		},
		"one GPU that is recorded for two containers of such a pod": {
			input: func(n *Node, in *Input) {
				in.Pods = podsOf("p")
				n.Records = map[types.UID][]Record{"p": {{Resource: gpu, GPUs: n.ids(1)}, {Resource: gpu, GPUs: n.ids(1)}}}
			},
			wantUsed: nvtopo.MaskOf(1), wantCounted: 1, wantForeign: true, wantFromStore: true,
		},
		"kubelet's record of such a pod": {
			input: func(n *Node, in *Input) { recorded(n); in.Pods = podsOf("p") }, wantUsed: nvtopo.MaskOf(1, 2), wantFromStore: true,
		},
		"a reservation whose pod is not here yet": {
			input: func(n *Node, in *Input) { in.Reservations = reserved(n) }, wantUsed: nvtopo.MaskOf(1, 2),
		},
		"a reservation whose pod a dry run took out": {
			input: func(n *Node, in *Input) { in.Reservations, in.Listed = reserved(n), podsOf("p") },
		},
		"a reservation of the pod that is tried again": {
			input: func(n *Node, in *Input) { in.Reservations, in.Retried = reserved(n), "p" },
		},
		"a reservation beside the annotation of an earlier attempt": {
			input: func(n *Node, in *Input) {
				in.Pods, in.Reservations, in.Reader = podsOf("p"), reserved(n), told{carried: map[types.UID]*allocation.Allocation{"p": n.choice("p", 0, 3)}}
			},
			wantUsed: nvtopo.MaskOf(0, 1, 2, 3),
		},
		"the record of a pod that is gone": {
			input: func(n *Node, _ *Input) { recorded(n) }, wantUsed: nvtopo.MaskOf(1, 2),
		},
		"such a record that a dead agent left": {
			deadAgent: true, input: func(n *Node, _ *Input) { recorded(n) },
		},
		"such a record that is as good as released": {
			input: func(n *Node, in *Input) { recorded(n); in.Released = func(uid types.UID) bool { return uid == "p" } },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := testNode(t, !tc.deadAgent)
			in := &Input{Node: n, Now: now, Generation: 3, Revision: 4, Pods: pods{}, Reader: told{}}
			tc.input(n, in)
			u := Compute(in)
			if u.Used[0] != tc.wantUsed || u.Counted[0] != tc.wantCounted || u.Foreign[0] != tc.wantForeign || u.FromStore != tc.wantFromStore {
				t.Errorf("used %v, counted %d, foreign %t, from the store %t; want %v, %d, %t, %t", u.Used[0], u.Counted[0], u.Foreign[0], u.FromStore,
					tc.wantUsed, tc.wantCounted, tc.wantForeign, tc.wantFromStore)
			}
			if u.Node != n || u.Generation != 3 || u.Revision != 4 || u.Free(gpu) != nvtopo.FullMask(4)&^tc.wantUsed {
				t.Errorf("of node %p, %d, %d with %v free", u.Node, u.Generation, u.Revision, u.Free(gpu))
			}
			if n.Idle.Used[0] != 0 || n.Empty.Counted[0] != 0 {
				t.Error("the node's own usage was changed")
			}
		})
	}
}
