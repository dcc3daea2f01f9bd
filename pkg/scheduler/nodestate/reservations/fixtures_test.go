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

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const requestTimeout = time.Minute

type testEnv struct {
	*Table
	clock *clocktesting.FakePassiveClock
	nodes map[string]*Node
}

func newTestEnv() *testEnv {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0))
	return &testEnv{Table: New(clk, requestTimeout), clock: clk, nodes: map[string]*Node{}}
}

func (e *testEnv) pass(d time.Duration) { e.clock.SetTime(e.clock.Now().Add(d)) }

func (e *testEnv) node(name string) *Node {
	if e.nodes[name] == nil {
		e.nodes[name] = &Node{}
		e.nodes[name].Init(name)
	}
	return e.nodes[name]
}

// chosen returns an allocation of one GPU for a pod.
func chosen(uid types.UID, node, gpu string) *allocation.Allocation {
	return &allocation.Allocation{
		Version: allocation.Version, Node: node, PodUID: uid,
		Containers: []allocation.Container{{Name: "main", Resource: "nvidia.com/gpu", GPUs: []string{gpu}}},
	}
}

// add records an allocation of one GPU for a pod; nil if the pod has gone.
func (e *testEnv) add(uid types.UID, node, gpu string) *Reservation {
	out := &Reservation{UID: uid, Name: string(uid), Node: e.node(node), Allocation: chosen(uid, node, gpu)}
	if _, added := e.Add(out, nil); !added {
		return nil
	}
	return out
}

// plan records a planned reservation of a GPU, or, without one, a place; it returns nil if the pod has
// gone or is being bound already.
func (e *testEnv) plan(uid types.UID, node, gpu string) *Reservation {
	out := e.reservation(uid, node, gpu)
	if _, refused := e.AddAll([]*Reservation{out}); refused >= 0 {
		return nil
	}
	return out
}

// reservation returns the reservation that plan records.
func (e *testEnv) reservation(uid types.UID, node, gpu string) *Reservation {
	out := &Reservation{UID: uid, Name: string(uid), Node: e.node(node)}
	if gpu != "" {
		out.Allocation = chosen(uid, node, gpu)
	}
	return out
}

// sweep drops all settled reservations.
func (e *testEnv) sweep() Change { return e.Drop(e.Settled()) }

// check compares redundant fields with their sources.
func (e *testEnv) check(tb testing.TB) {
	tb.Helper()
	writing, planned := int64(0), int64(0)
	settled, reading := map[*Reservation]struct{}{}, 0
	byNode := map[string][]string{}
	for _, l := range e.List() {
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
	if e.Writing() != writing {
		tb.Fatalf("%d reservations are said to be written, %d are", e.Writing(), writing)
	}
	if got := e.planned.Load(); got != planned {
		tb.Fatalf("%d reservations and places are said to be planned, %d are", got, planned)
	}
	if e.resolving < reading { // one that was dropped is still being read
		tb.Fatalf("%d reservations are said to be read, %d are", e.resolving, reading)
	}
	if !maps.Equal(e.settled, settled) {
		tb.Fatalf("%d reservations are said to be settled, %d are", len(e.settled), len(settled))
	}
	kept := map[string][]*Nominated{}
	for _, n := range e.ListNominated() {
		kept[n.Node.name] = append(kept[n.Node.name], n)
	}
	for name, n := range e.nodes {
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
