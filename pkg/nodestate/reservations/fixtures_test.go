// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/allocation"
)

const requestTimeout = time.Minute

type rig struct {
	*Table
	clock *clocktesting.FakePassiveClock
	nodes map[string]*Node
}

func newRig() *rig {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	return &rig{Table: New(clk, requestTimeout), clock: clk, nodes: map[string]*Node{}}
}

func (r *rig) pass(d time.Duration) { r.clock.SetTime(r.clock.Now().Add(d)) }

func (r *rig) node(name string) *Node {
	if r.nodes[name] == nil {
		r.nodes[name] = &Node{}
		r.nodes[name].Init(name)
	}
	return r.nodes[name]
}

// chosen is a choice of one GPU for a pod.
func chosen(uid types.UID, node, gpu string) *allocation.Allocation {
	return &allocation.Allocation{
		Version: allocation.Version, Node: node, PodUID: uid,
		Containers: []allocation.Container{{Name: "main", Resource: "nvidia.com/gpu", GPUs: []string{gpu}}},
	}
}

// add records a choice of one GPU for a pod; nil if the pod has gone.
func (r *rig) add(uid types.UID, node, gpu string) *Reservation {
	out := &Reservation{UID: uid, Name: string(uid), Node: r.node(node), Allocation: chosen(uid, node, gpu)}
	if _, added := r.Add(out, nil); !added {
		return nil
	}
	return out
}

// plan records that a pod is to get a GPU, or, without one, a place; it is not nil unless the pod
// has gone or is being bound already.
func (r *rig) plan(uid types.UID, node, gpu string) *Reservation {
	out := r.reservation(uid, node, gpu)
	if _, refused := r.AddAll([]*Reservation{out}); refused >= 0 {
		return nil
	}
	return out
}

// reservation is what plan records.
func (r *rig) reservation(uid types.UID, node, gpu string) *Reservation {
	out := &Reservation{UID: uid, Name: string(uid), Node: r.node(node)}
	if gpu != "" {
		out.Allocation = chosen(uid, node, gpu)
	}
	return out
}

// sweep drops all that is settled.
func (r *rig) sweep() Change { return r.Drop(r.Settled()) }

// check compares what is kept twice with what it is kept of.
func (r *rig) check(tb testing.TB) {
	tb.Helper()
	writing, planned := int64(0), int64(0)
	settled, reading := map[*Reservation]struct{}{}, 0
	byNode := map[string][]string{}
	for _, l := range r.List() {
		if l.Writing {
			writing++
		}
		if l.reading {
			reading++
		}
		if l.Phase == Planned {
			planned++
		}
		if l.Phase.settled() {
			settled[l.Reservation] = struct{}{}
		}
		if l.Allocation == nil {
			continue // it holds nothing
		}
		byNode[l.Node.name] = append(byNode[l.Node.name], fmt.Sprintf("%p %s", l.Reservation, l.Phase))
	}
	if r.Writing() != writing {
		tb.Fatalf("%d reservations are said to be written, %d are", r.Writing(), writing)
	}
	if got := r.planned.Load(); got != planned {
		tb.Fatalf("%d reservations and places are said to be planned, %d are", got, planned)
	}
	if r.resolving < reading { // one that was dropped is still being read
		tb.Fatalf("%d reservations are said to be read, %d are", r.resolving, reading)
	}
	if !maps.Equal(r.settled, settled) {
		tb.Fatalf("%d reservations are said to be settled, %d are", len(r.settled), len(settled))
	}
	kept := map[string][]*Nominated{}
	for _, n := range r.ListNominated() {
		kept[n.Node.name] = append(kept[n.Node.name], n)
	}
	for name, n := range r.nodes {
		v := n.View()
		var states []string
		doubts := 0
		for i, s := range v.states {
			states = append(states, fmt.Sprintf("%p %s", s.r, s.phase))
			if s.phase == Doubtful {
				doubts++
			}
			if got := v.Reservations[i]; got.UID != s.r.UID || got.Allocation != s.r.Allocation {
				tb.Fatalf("node %s: reservation %d is of pod %s, its state of pod %s", name, i, got.UID, s.r.UID)
			}
		}
		slices.Sort(states)
		slices.Sort(byNode[name])
		if !slices.Equal(states, byNode[name]) || v.Doubtful() != (doubts > 0) {
			tb.Fatalf("node %s: the view has %v, the table %v", name, states, byNode[name])
		}
		if len(v.Nominated) != len(kept[name]) || slices.ContainsFunc(v.Nominated, func(n *Nominated) bool { return !slices.Contains(kept[name], n) }) {
			tb.Fatalf("node %s: the view has %d nominated reservations, the table %d", name, len(v.Nominated), len(kept[name]))
		}
	}
}
