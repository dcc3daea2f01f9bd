// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// TestEvictionMemory: the victims of a plan cost memory once for each node. All victims were copied once
// for each node. Not parallel, as the memory is that of the process.
func TestEvictionMemory(t *testing.T) { //nolint:paralleltest // see above
	const nodes, times = 250, 8
	of := func(nodes int) uint64 {
		s := &search{q: &Question{}, units: units{leaving: map[string][]*v1.Pod{}}, cleared: map[string]*Cleared{}, last: &Answer{}}
		for i := range nodes {
			node := schedtest.Node(fmt.Sprintf("node-%04d", i)).Obj()
			info := framework.NewNodeInfo()
			info.SetNode(node)
			s.q.Nodes = append(s.q.Nodes, fwk.NodeInfo(info))
			s.units.leaving[node.Name] = []*v1.Pod{schedtest.Pod("leaving-" + node.Name).Obj()}
			s.last.Members = append(s.last.Members, nodestate.GangMember{Node: node.Name})
		}
		if e := s.eviction(nil); len(e.Gone) != nodes || len(e.Awaited) != nodes { // reads each node the first time
			t.Fatalf("%d go and %d are awaited, want %d", len(e.Gone), len(e.Awaited), nodes)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.eviction(nil)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := of(nodes), of(times*nodes)
	if many > 4*times*few {
		t.Errorf("%d bytes for %d nodes and %d for %d, want no more than four times as many a node", few, nodes, many, times*nodes)
	}
}

// BenchmarkOthers reads a gang of which all members but one are above its minimum.
func BenchmarkOthers(b *testing.B) {
	const pods = 16_000
	g := New(clocktesting.NewFakePassiveClock(time.Unix(0, 0)), Config{}, idle{})
	g.Serve(testProfile)
	g.SetGroup(testGroup(1, isWhole))
	for _, pod := range groupMembers(pods, pods) {
		g.SetPod(pod)
	}
	for b.Loop() {
		if others := g.Others(1); len(others) != 1 || len(others[0].Surplus) != pods-1 {
			b.Fatal("the gang is not seen")
		}
	}
}
