// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"weak"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/waking"
)

// changingCluster is a cluster whose nodes come and go.
type changingCluster struct {
	*cachedState
	t       *testing.T
	pending *v1.Pod // waits for ever
	came    int
}

func newChangingCluster(t *testing.T) *changingCluster {
	t.Helper()
	c := &changingCluster{cachedState: newCachedState(t), t: t}
	c.listers.nodes = c
	c.Lists.in.Store(true)
	c.pending = schedtest.Pod("pending").GPUs(64).Obj()
	c.listers.pods = fixedStore{c.pending.UID: c.pending}
	c.Waiting.Add(&waking.RefusedPod{Pod: c.pending, Demand: *demandOf(t, c.pending)})
	return c
}

func (c *changingCluster) node(name string) *v1.Node { return c.nodes[name] }

func (c *changingCluster) podsOn(string) []*v1.Pod { return nil }

// come adds a node, another one each time.
func (c *changingCluster) come(name string) {
	c.t.Helper()
	c.came++
	obj := topologyOf(c.t, name, "a100-pcie-4-bridged")
	obj.UID, obj.Spec.NodeUID = types.UID(fmt.Sprint("topology-", c.came)), types.UID(fmt.Sprint("node-", c.came))
	node := schedtest.Node(name).UID(string(obj.Spec.NodeUID)).GPUs(len(obj.Spec.GPUs)).CPU("512").Memory("4Ti").Obj()
	c.nodes[name] = node
	c.handlers.nodeHandler().OnAdd(node, false)
	c.cache.AddNode(c.logger, node)
	c.Changes.passOn(c.t.Context())(c.Nodes.topologies.Apply(obj))
	for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
		c.PodDevices.leases.Set(lease(prefix+name, c.clock.Now(), forgetAfter*1000), c.clock.Now())
	}
}

// goAway removes a node, its object and its Leases.
func (c *changingCluster) goAway(name string) {
	c.t.Helper()
	node, object := c.nodes[name], c.Nodes.cells.get(name).entry.Object()
	delete(c.nodes, name)
	c.handlers.nodeHandler().OnDelete(node)
	c.must(c.cache.RemoveNode(c.logger, node))
	c.Graphs.Remove(name, object)
	for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
		c.Changes.leaseGone(prefix + name)
	}
}

// TestForgetNodes has nodes come and go, always with new names.
func TestForgetNodes(t *testing.T) {
	const nodes, inASweep = 10_000, 250
	c := newChangingCluster(t)
	c.come("stays")
	stays := c.Nodes.cells.get("stays")
	var cells []weak.Pointer[cell]
	for i := range nodes {
		name := fmt.Sprint("node-", i)
		c.come(name)
		cells = append(cells, weak.Make(c.Nodes.cells.get(name)))
		c.goAway(name)
		if i%inASweep == 0 {
			c.ticks.now = c.ticks.now.Add(forgetAfter)
			c.collector.forgetNodes()
			c.Waiting.waker.Round()
			if i%(4*inASweep) == 0 { // cycles are rare
				c.candidates(schedtest.Pod("p").GPUs(1).Obj(), narrowing())
			}
		}
	}
	wantCells := 2*inASweep + 1 // cells of the last two sweeps
	if got := countCells(c.State); got > wantCells {
		t.Errorf("after %d nodes came and went, %d are kept, want %d at most", nodes, got, wantCells)
	}
	c.ticks.now = c.ticks.now.Add(forgetAfter)
	c.collector.forgetNodes() // sees the last of them gone
	c.ticks.now = c.ticks.now.Add(forgetAfter)
	c.collector.forgetNodes()
	c.Waiting.waker.Round()
	c.candidates(schedtest.Pod("p").GPUs(1).Obj(), narrowing())
	if got := countCells(c.State); got != 1 || c.Nodes.cells.get("stays") != stays {
		t.Errorf("in the end %d nodes are kept, want the one that stays", got)
	}
	runtime.GC()
	kept := 0
	for _, p := range cells {
		if p.Value() != nil {
			kept++
		}
	}
	if kept > 4 { // memory that cycles reuse
		t.Errorf("something has the cells of %d nodes that are forgotten", kept)
	}
	runtime.KeepAlive(c)
}

func countCells(s *State) (n int) {
	for range s.Nodes.cells.all() {
		n++
	}
	return n
}

// TestForgetNodesWithReservations: nodes with reservations are not forgotten.
func TestForgetNodesWithReservations(t *testing.T) {
	t.Parallel()
	pod := schedtest.Pod("p").GPUs(1).Obj()
	cases := map[string]struct {
		reserve func(t *testing.T, c *changingCluster)
		end     func(c *changingCluster)
	}{
		"a node with a choice on its way is kept until the choice ends": {
			reserve: func(t *testing.T, c *changingCluster) {
				t.Helper()
				c.list()
				info, err := c.snapshot.NodeInfos().Get("n")
				c.must(err)
				if a, reason := c.Allocations.Assume(demandOf(t, pod), pod, info, c.snapshot.NodeInfos()); a == nil {
					t.Fatalf("nothing was chosen: %v", reason)
				}
			},
			end: func(c *changingCluster) { c.Allocations.Forget(pod.UID, "n") },
		},
		"a node with GPUs kept for a nominated pod is kept until the nomination ends": {
			reserve: func(_ *testing.T, c *changingCluster) {
				c.Nominator.ReserveNominated(pod.UID, &allocation.Allocation{Node: "n"}, reservations.WaitsFor{Until: c.clock.Now().Add(forgetAfter * 100)})
			},
			end: func(c *changingCluster) { c.Nominator.EndNominated(pod.UID) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChangingCluster(t)
			c.come("n")
			tc.reserve(t, c)
			x := c.Nodes.cells.get("n")
			c.goAway("n")
			sweep := func() {
				for range 2 {
					c.ticks.now = c.ticks.now.Add(forgetAfter)
					c.collector.forgetNodes()
				}
			}
			if sweep(); c.Nodes.cells.get("n") != x {
				t.Error("the node is forgotten while something is reserved there")
			}
			tc.end(c)
			if sweep(); c.Nodes.cells.get("n") != nil {
				t.Error("the node is kept with nothing reserved there")
			}
		})
	}
}

// TestForgottenNodesAlias has a few nodes come, go and come back in random order, with choices, cycles
// and sweeps in between: every long-lived reference to a cell is to that of the live node.
func TestForgottenNodesAlias(t *testing.T) {
	t.Parallel()
	names, forgotten := []string{"a", "b", "c", "d"}, uint64(0)
	for seed := range uint64(20) {
		c, rng := newChangingCluster(t), rand.New(rand.NewPCG(seed, 35))
		stamper, chosen := c.Nodes.Stamper(names), map[types.UID]string{}
		steps := []func(name string){
			func(name string) {
				if c.node(name) == nil {
					c.come(name)
				} else {
					c.goAway(name)
				}
			},
			func(name string) { c.chooseOn(name, chosen, len(chosen)+rng.IntN(1<<30)) },
			func(name string) {
				for uid, node := range chosen {
					if node == name {
						c.Allocations.Forget(uid, node)
						delete(chosen, uid)
					}
				}
			},
			func(string) { c.ticks.now = c.ticks.now.Add(forgetAfter) },
			func(string) { c.collector.forgetNodes() },
			func(string) { c.Waiting.waker.Round() },
			func(string) { c.candidates(schedtest.Pod("p").GPUs(1).Obj(), narrowing()) },
		}
		for step := range 600 {
			steps[rng.IntN(len(steps))](names[rng.IntN(len(names))])
			if rng.IntN(8) == 0 {
				c.checkIndex()
			}
			if !c.checkAliases(stamper, chosen) {
				t.Fatalf("seed %d, step %d", seed, step)
			}
		}
		forgotten += c.Nodes.cells.forgotten.Load()
	}
	if forgotten < 100 {
		t.Errorf("nodes were forgotten %d times, want some hundred: the test shows nothing", forgotten)
	}
}

// chooseOn gives a new pod a GPU on a node of the scheduler's snapshot.
func (c *changingCluster) chooseOn(name string, chosen map[types.UID]string, serial int) {
	c.t.Helper()
	info, err := c.snapshot.NodeInfos().Get(name)
	if err != nil {
		return
	}
	pod := schedtest.Pod(fmt.Sprint("pod-", serial)).GPUs(1).Obj()
	if a, _ := c.Allocations.Assume(demandOf(c.t, pod), pod, info, c.snapshot.NodeInfos()); a != nil {
		chosen[pod.UID] = name
	}
}

// checkAliases reports whether everything that keeps cells has those of the live nodes.
func (c *changingCluster) checkAliases(stamper *Stamper, chosen map[types.UID]string) bool {
	c.t.Helper()
	failed := c.t.Failed()
	for name := range c.nodes {
		x := c.Nodes.cells.get(name)
		if x == nil {
			c.t.Errorf("node %s has no cell", name)
			continue
		}
		if e := c.Nodes.topologies.Entry(name); x.entry != e || e.Node() == nil {
			c.t.Errorf("node %s: its cell has another entry than the cache, or none with its graph", name)
		}
	}
	stamper.Begin()
	for i, name := range stamper.nodes {
		if x := c.Nodes.cells.get(name); stamper.cells[i] != x {
			c.t.Errorf("node %s: a Stamper has the cell of a node before", name)
		}
	}
	for _, r := range c.Allocations.reservations.List() {
		if x := c.Nodes.cells.get(r.Node.Name()); x == nil || r.Node != &x.reserved {
			c.t.Errorf("pod %s: its choice is not seen on node %s", r.UID, r.Node.Name())
		}
	}
	for uid, node := range chosen {
		if c.Allocations.reservations.Present(uid, node) == nil {
			c.t.Errorf("pod %s: its choice on node %s is lost", uid, node)
		}
	}
	return c.t.Failed() == failed
}

// checkIndex begins a cycle and compares the index with the live nodes.
func (c *changingCluster) checkIndex() {
	c.t.Helper()
	nodes := c.list()
	c.candidates(schedtest.Pod("p").GPUs(1).Obj(), narrowing())
	seen := c.PreSelector.index.Seen()
	for _, info := range nodes {
		name := info.Node().Name
		x := c.Nodes.cells.get(name)
		has, ok := seen[&x.candidate]
		if live := c.node(name); live == nil || live.UID != info.Node().UID {
			continue // the cycle's snapshot is older
		}
		if !ok || has.Topology != x.entry.Node() {
			c.t.Errorf("node %s: the index has not the graph of the live node", name)
		}
		if want := c.Nodes.usage(x, x.entry.Node(), info, c.snapshot.NodeInfos()).FreeAt(0); has.Free[testResource] != want {
			c.t.Errorf("node %s: the index has %v free, want %v", name, has.Free[testResource], want)
		}
	}
}
