// SPDX-License-Identifier: Apache-2.0

package fabricview

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const rackLabel = "topology.kubernetes.io/rack"

// testEnv is Views over nodes that the test changes, as their informer would.
type testEnv struct {
	*Views
	t     *testing.T
	clock *clocktesting.FakeClock
	nodes cache.Indexer
	told  atomic.Int32
}

func newTestEnv(t *testing.T, nodes ...*v1.Node) *testEnv {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0))
	r := &testEnv{Views: New(clk), t: t, clock: clk, nodes: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
	r.Views.nodes = corelisters.NewNodeLister(r.nodes)
	r.OnChange(func() { r.told.Add(1) })
	for _, n := range nodes {
		r.put(n)
	}
	return r
}

// start runs the Views until the test ends.
func (e *testEnv) start(synced ...cache.InformerSynced) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.run(ctx, synced...)
	}()
	e.t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// put delivers a node as an event of the informer.
func (e *testEnv) put(n *v1.Node) {
	e.t.Helper()
	before, known, err := e.nodes.Get(n)
	if err == nil {
		err = e.nodes.Update(n)
	}
	if err != nil {
		e.t.Fatal(err)
	}
	if known {
		e.nodeHandler().OnUpdate(before, n)
	} else {
		e.nodeHandler().OnAdd(n, false)
	}
}

// revision waits for a view; time passes meanwhile.
func (e *testEnv) revision(want uint64) *View {
	e.t.Helper()
	testkit.Eventually(e.t, 2*time.Minute, "the view is made", func(context.Context) (bool, string) {
		e.clock.Step(delay)
		return e.Current().Revision >= want, ""
	})
	if got := e.Current().Revision; got != want {
		e.t.Fatalf("revision is %d, want %d", got, want)
	}
	return e.Current()
}

// domain returns the name of a node's innermost domain.
func domain(v *View, name string) string {
	n, ok := v.NodeOf(name)
	if !ok {
		return "not in the tree"
	}
	return v.Tree.DomainName(v.Tree.Depth(), v.Tree.DomainOf(v.Tree.Depth(), n))
}

func topology(name string, levels ...string) *v1alpha1.ClusterTopology {
	ct := &v1alpha1.ClusterTopology{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := 0; i < len(levels); i += 2 {
		ct.Spec.Levels = append(ct.Spec.Levels, v1alpha1.FabricLevel{Name: levels[i], NodeLabel: levels[i+1]})
	}
	return ct
}

// TestInitialView: nothing is known before the nodes are read.
func TestInitialView(t *testing.T) {
	r := newTestEnv(t, schedtest.Node("a").Obj())
	if v := r.Current(); v.Revision != 0 || v.HasLevels() || v.Tree.Len() != 0 {
		t.Errorf("view %+v, want that of no nodes", v)
	}
}

// TestViewLabels: the view follows the labels.
func TestViewLabels(t *testing.T) {
	r := newTestEnv(t, schedtest.Node("a").Label(rackLabel, "r1").Obj(), schedtest.Node("b").Label(rackLabel, "r1").Obj(),
		schedtest.Node("c").Obj())
	r.start()
	v := r.revision(1)
	if !v.HasLevels() || domain(v, "a") != "r1" || domain(v, "c") != "c" {
		t.Errorf("a is in %q, c in %q, want r1 and alone", domain(v, "a"), domain(v, "c"))
	}
	if _, ok := v.NodeOf("d"); ok {
		t.Error("a node that does not exist is in the tree")
	}
	r.put(schedtest.Node("b").Label(rackLabel, "r2").Obj())
	r.put(schedtest.Node("d").Label(rackLabel, "r2").Obj())
	if v := r.revision(2); domain(v, "b") != "r2" || domain(v, "d") != "r2" {
		t.Errorf("b is in %q, d in %q, want r2", domain(v, "b"), domain(v, "d"))
	}
	if domain(v, "b") != "r1" {
		t.Error("the view of before has changed")
	}
	if err := r.nodes.Delete(schedtest.Node("a").Obj()); err != nil {
		t.Fatal(err)
	}
	r.nodeHandler().OnDelete(schedtest.Node("a").Obj())
	if v := r.revision(3); v.Tree.Len() != 3 {
		t.Errorf("%d nodes are in the tree, want the 3 that are left", v.Tree.Len())
	}
	if got := r.told.Load(); got != 3 {
		t.Errorf("told of %d views, want 3", got)
	}
}

// TestViewTriggers: only changes that matter make a new view. Nodes report every few seconds.
func TestViewTriggers(t *testing.T) {
	r := newTestEnv(t, schedtest.Node("a").Label(rackLabel, "r1").Label("unrelated", "a").Obj())
	r.setTopology(topology("default", "rack", "example.com/rack"))
	<-r.changed
	r.put(schedtest.Node("a").Label(rackLabel, "another").Label("unrelated", "another").Obj())
	ct := topology("default", "rack", "example.com/rack")
	ct.Status.Nodes = 7
	r.topologyHandler().OnUpdate(nil, ct)
	r.topologyHandler().OnAdd(topology("other", "x", "example.com/x"), false)
	if len(r.changed) != 0 {
		t.Error("a view is due although nothing changed that decides about the fabric")
	}
	r.put(schedtest.Node("a").Label("example.com/rack", "r1").Obj())
	if len(r.changed) != 1 {
		t.Error("no view is due although a label of the fabric changed")
	}
}

// TestViewClusterTopology: the view follows the ClusterTopology.
func TestViewClusterTopology(t *testing.T) {
	r := newTestEnv(t, schedtest.Node("a").Label(rackLabel, "r1").Label("example.com/leaf", "l1").Obj(),
		schedtest.Node("b").Label(rackLabel, "r1").Label("example.com/leaf", "l2").Obj())
	r.start()
	r.revision(1)
	r.topologyHandler().OnAdd(topology("default", "pod", rackLabel, "leaf", "example.com/leaf"), true)
	v := r.revision(2)
	for level, want := range map[string]int{"cluster": 0, "pod": 1, rackLabel: 1, "leaf": 2, "example.com/leaf": 2, "node": 3, "kubernetes.io/hostname": 3, "rack": -1} {
		got, ok := v.DepthOf(level)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("level %q has depth %d, want %d", level, got, want)
		}
	}
	if domain(v, "a") != "l1" || domain(v, "b") != "l2" {
		t.Errorf("a is in %q, b in %q, want l1 and l2", domain(v, "a"), domain(v, "b"))
	}
	r.topologyHandler().OnUpdate(nil, topology("default"))
	if v := r.revision(3); v.HasLevels() || v.Tree.Len() != 2 {
		t.Errorf("depth %d and %d nodes, want 2 nodes without levels", v.Tree.Depth(), v.Tree.Len())
	}
	r.topologyHandler().OnDelete(topology("default"))
	if v := r.revision(4); domain(v, "a") != "r1" {
		t.Errorf("a is in %q, want the rack of its label", domain(v, "a"))
	}
}

// TestUnlistableTopology: an unreadable kind is not waited for long. The ClusterTopology here cannot be
// listed.
func TestUnlistableTopology(t *testing.T) {
	r := newTestEnv(t, schedtest.Node("a").Label(rackLabel, "r1").Obj())
	r.start(func() bool { return false })
	if v := r.revision(1); domain(v, "a") != "r1" {
		t.Errorf("a is in %q, want the rack of its label", domain(v, "a"))
	}
	if waited := r.clock.Since(time.Unix(1_700_000_000, 0)); waited < patience {
		t.Errorf("went on after %s, want to wait for %s", waited, patience)
	}
}
