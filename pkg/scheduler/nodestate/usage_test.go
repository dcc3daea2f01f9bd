// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"reflect"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// fixedStore is an informer store with the given pods.
type fixedStore map[types.UID]*v1.Pod

func (s fixedStore) pod(_, _ string, uid types.UID) *v1.Pod { return s[uid] }

// on returns a copy of a pod on a node, with an annotation that gives it the
// GPUs at the given positions; without positions there is no annotation.
func on(tb testing.TB, s *State, pod *v1.Pod, node string, positions ...int) *v1.Pod {
	tb.Helper()
	p := pod.DeepCopy()
	p.Spec.NodeName = node
	if len(positions) == 0 {
		return p
	}
	a := &allocation.Allocation{Version: allocation.Version, Node: node, PodUID: p.UID, Assumed: s.clock.Now()}
	c := allocation.Container{Name: "main", Resource: testResource}
	for _, i := range positions {
		c.GPUs = append(c.GPUs, s.Nodes.Node(node).Accel(testResource).Graph.GPUs[i].UUID)
	}
	a.Containers = append(a.Containers, c)
	text, err := a.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, allocation.Key, text)
	return p
}

type testEnv struct {
	*State
	clock *tickClock
	node  *v1.Node
}

func newTestEnv(t *testing.T, kind string) *testEnv {
	t.Helper()
	clk := &tickClock{now: time.Unix(1_700_000_000, 0)}
	s := New(testConfig(), clk)
	s.listers.pods = fixedStore{}
	return &testEnv{State: s, clock: clk, node: addNode(t, s, "n", kind)}
}

// view returns the node in a snapshot with the given pods.
func (e *testEnv) view(t *testing.T, pods ...*v1.Pod) (fwk.NodeInfo, fwk.NodeInfoLister) {
	t.Helper()
	l := schedcache.NewSnapshot(pods, []*v1.Node{e.node}).NodeInfos()
	info, err := l.Get("n")
	if err != nil {
		t.Fatal(err)
	}
	return info, l
}

// TestUsageSources: the usage takes each pod from the best source.
func TestUsageSources(t *testing.T) {
	two := schedtest.Pod("two").GPUs(2).Obj()
	tests := map[string]struct {
		// arrange prepares the state and returns the pods of the snapshot.
		arrange     func(t *testing.T, r *testEnv) []*v1.Pod
		wantUsed    []int
		wantCounted int
		wantForeign bool
	}{
		"an annotation that names this node and pod": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				return []*v1.Pod{on(t, r.State, two, "n", 3, 5)}
			},
			wantUsed: []int{3, 5},
		},
		"a copied annotation of another pod only counts": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				p := on(t, r.State, two, "n", 3, 5)
				p.UID = "somebody-else"
				return []*v1.Pod{p}
			},
			wantCounted: 2, wantForeign: true,
		},
		"an unreadable annotation only counts": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				p := on(t, r.State, two, "n")
				p.Annotations = map[string]string{allocation.Key: "{"}
				return []*v1.Pod{p}
			},
			wantCounted: 2, wantForeign: true,
		},
		"a nominated pod counts but is not foreign": {
			arrange:     func(*testing.T, *testEnv) []*v1.Pod { return []*v1.Pod{two} },
			wantCounted: 2,
		},
		"an assumed pod is known by its reservation": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				info, l := r.view(t)
				if _, reason := r.Allocations.Assume(demandOf(t, two), two, info, l); reason != placement.Fits {
					t.Fatal(reason)
				}
				return []*v1.Pod{on(t, r.State, two, "n")}
			},
			wantUsed: []int{0, 3},
		},
		"a reservation counts although the snapshot does not list its pod": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				info, l := r.view(t)
				if _, reason := r.Allocations.Assume(demandOf(t, two), two, info, l); reason != placement.Fits {
					t.Fatal(reason)
				}
				return nil
			},
			wantUsed: []int{0, 3},
		},
		"the informer's store fills in for a snapshot that is behind": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				r.listers.pods = fixedStore{two.UID: on(t, r.State, two, "n", 1, 2)}
				return []*v1.Pod{on(t, r.State, two, "n")}
			},
			wantUsed: []int{1, 2},
		},
		"kubelet's record is added to the annotation": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				r.record(t, two.UID, 6, 7)
				return []*v1.Pod{on(t, r.State, two, "n", 3, 5)}
			},
			wantUsed: []int{3, 5, 6, 7},
		},
		"kubelet's record makes a foreign pod known": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				r.record(t, two.UID, 6, 7)
				return []*v1.Pod{on(t, r.State, two, "n")}
			},
			wantUsed: []int{6, 7},
		},
		"kubelet's record of a pod nobody lists counts": {
			arrange: func(t *testing.T, r *testEnv) []*v1.Pod {
				t.Helper()
				r.record(t, "static", 4)
				return nil
			},
			wantUsed: []int{4},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			pods := tc.arrange(t, r)
			info, l := r.view(t, pods...)
			for _, pod := range pods {
				if pod.Spec.NodeName == "" { // the framework adds nominated pods to a copy
					info = info.Snapshot()
					pi, err := framework.NewPodInfo(pod)
					if err != nil {
						t.Fatal(err)
					}
					info.AddPodInfo(pi)
				}
			}
			u := r.Nodes.View(&placement.Demand{Request: &podrequest.Request{}}, info, l)
			if u == nil {
				t.Fatal("the node's graph does not count")
			}
			if got := u.Used[0].Positions(); !slices.Equal(got, append([]int{}, tc.wantUsed...)) {
				t.Errorf("used %v, want %v", got, tc.wantUsed)
			}
			if u.Counted[0] != tc.wantCounted || u.Foreign[0] != tc.wantForeign {
				t.Errorf("counted %d foreign %t, want %d %t", u.Counted[0], u.Foreign[0], tc.wantCounted, tc.wantForeign)
			}
		})
	}
}

// record writes a node agent's record: kubelet gave the pod these GPUs.
func (e *testEnv) record(t *testing.T, uid types.UID, positions ...int) {
	t.Helper()
	obj := topologyOf(t, "n", "dgx1-v100")
	obj.ResourceVersion = "2"
	a := v1alpha1.Allocation{PodUID: uid, Container: "main", Resource: testResource, State: "confirmed"}
	for _, p := range positions {
		a.GPUs = append(a.GPUs, obj.Spec.GPUs[p].ID)
	}
	obj.Status.Allocations = []v1alpha1.Allocation{a}
	if changed, err := e.Graphs.Apply(obj); err != nil || !changed {
		t.Fatalf("applying the record: changed %t, %v", changed, err)
	}
}

// checkMemos recomputes every usage that a cycle with this snapshot would take from memory, and returns
// their number. Usages that depend on the informer's store are left out: it may change without a sign.
func checkMemos(tb testing.TB, s *State, snapshot fwk.NodeInfoLister) (compared int) {
	tb.Helper()
	nodes, err := snapshot.List()
	if err != nil {
		tb.Fatal(err)
	}
	for _, info := range nodes {
		name := info.Node().Name
		x, n := s.Nodes.cells.get(name), s.Nodes.Node(name)
		if n == nil || n.NodeUID != info.Node().UID {
			continue
		}
		was, now := s.Nodes.remembered(x, n, info), s.Nodes.computeUsage(x, n, info.GetGeneration(), info.GetPods(), snapshot)
		if was == nil || was.FromStore || now.FromStore {
			continue
		}
		compared++
		if !reflect.DeepEqual(was, now) {
			tb.Fatalf("node %s: remembered as used %v (counted %v), computed %v (counted %v)\nremembered %+v\n  computed %+v",
				name, was.Used, was.Counted, now.Used, now.Counted, was, now)
		}
	}
	return compared
}

// TestDryRunDevices: a dry run frees the devices of the victims.
func TestDryRunDevices(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	victim := schedtest.Pod("victim").GPUs(8).Obj()
	info, l := r.view(t)
	if _, reason := r.Allocations.Assume(demandOf(t, victim), victim, info, l); reason != placement.Fits {
		t.Fatal(reason)
	}
	// The victim is assumed: in the snapshot without an annotation, its reservation in the table.
	assumed := on(t, r.State, victim, "n")
	info, l = r.view(t, assumed)
	d := demandOf(t, schedtest.Pod("preemptor").GPUs(4).Obj())
	if v := r.Nodes.Judge(d, info, l); v.Reason != placement.FewGPUs || v.Never {
		t.Fatalf("verdict with the victim %+v, want %q and an eviction to help", v, placement.FewGPUs)
	}
	dry := info.Snapshot()
	logger, _ := ktesting.NewTestContext(t)
	if err := dry.RemovePod(logger, assumed); err != nil {
		t.Fatal(err)
	}
	if v := r.Nodes.Judge(d, dry, l); v.Reason != placement.Fits {
		t.Errorf("verdict without the victim %q, want that it fits", v.Reason)
	}
	if v := r.Nodes.Judge(d, info, l); v.Reason != placement.FewGPUs {
		t.Errorf("the dry run changed the real view: %q", v.Reason)
	}
}

// TestGraphValidity: a graph is valid only while it is that of the node and its Lease has not expired.
func TestGraphValidity(t *testing.T) {
	d := func(t *testing.T) *placement.Demand { t.Helper(); return demandOf(t, schedtest.Pod("p").GPUs(1).Obj()) }
	t.Run("the node was made anew", func(t *testing.T) {
		r := newTestEnv(t, "dgx1-v100")
		r.node.UID = "another"
		info, l := r.view(t)
		if v := r.Nodes.Judge(d(t), info, l); v.Reason != placement.NodeReplaced {
			t.Errorf("verdict %q, want %q", v.Reason, placement.NodeReplaced)
		}
	})
	// The watches of Nodes and graphs may be broken while that of Leases is not.
	t.Run("the Lease is heard of the exporter of a node made anew", func(t *testing.T) {
		r := newTestEnv(t, "dgx1-v100")
		renew := func(node types.UID) (back bool) {
			l := lease(nodelease.ExporterPrefix+"n", r.clock.now, 2*time.Minute)
			l.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n", UID: node}}
			return r.PodDevices.leases.Set(l, r.clock.now)
		}
		renew(r.node.UID)
		for _, step := range []struct {
			owner types.UID
			want  placement.Reason
			back  bool
		}{{r.node.UID, placement.Fits, false}, {"another", placement.NodeReplaced, true}, {"another", placement.NodeReplaced, false}, {r.node.UID, placement.Fits, true}, {"", placement.Fits, true}} {
			back := renew(step.owner)
			info, l := r.view(t)
			if v := r.Nodes.Judge(d(t), info, l); v.Reason != step.want || back != step.back {
				t.Errorf("renewed for node %q: verdict %q, others woken %t, want %q, %t", step.owner, v.Reason, back, step.want, step.back)
			}
		}
	})
	t.Run("the exporter's Lease ran out and came back", func(t *testing.T) {
		r := newTestEnv(t, "dgx1-v100")
		now := r.clock.now
		r.PodDevices.leases.Set(lease(nodelease.ExporterPrefix+"n", now, 2*time.Minute), now)
		r.clock.now = now.Add(3 * time.Minute)
		info, l := r.view(t)
		if v := r.Nodes.Judge(d(t), info, l); v.Reason != placement.StaleGraph {
			t.Errorf("verdict %q, want %q", v.Reason, placement.StaleGraph)
		}
		if back := r.PodDevices.leases.Set(lease(nodelease.ExporterPrefix+"n", r.clock.now, 2*time.Minute), r.clock.now); !back {
			t.Error("the return of a Lease that had run out was not reported")
		}
		if v := r.Nodes.Judge(d(t), info, l); v.Reason != placement.Fits {
			t.Errorf("verdict after renewal %q, want that it fits", v.Reason)
		}
	})
	t.Run("policy none needs no graph", func(t *testing.T) {
		r := newTestEnv(t, "dgx1-v100")
		r.Graphs.Remove("n", types.UID("topology-n"))
		info, l := r.view(t)
		pod := schedtest.Pod("p").GPUs(1).Annotation(podrequest.TopologyPolicyKey, "none").Obj()
		if v := r.Nodes.Judge(demandOf(t, pod), info, l); v.Reason != placement.Fits {
			t.Errorf("verdict for policy none %q, want that it fits", v.Reason)
		}
		if v := r.Nodes.Judge(d(t), info, l); v.Reason != placement.NoGraph || !v.Never {
			t.Errorf("verdict for best-effort %+v, want %q", v, placement.NoGraph)
		}
	})
	t.Run("a delete of an older object of the name is ignored", func(t *testing.T) {
		r := newTestEnv(t, "dgx1-v100")
		if r.Graphs.Remove("n", "older") {
			t.Error("the graph of the present object was removed")
		}
	})
	t.Run("an older version is ignored", func(t *testing.T) {
		r := newTestEnv(t, "dgx1-v100")
		obj := topologyOf(t, "n", "dgx1-v100")
		obj.Spec.GPUs[0].Model = "changed"
		if changed, err := r.Graphs.Apply(obj); changed || err != nil {
			t.Errorf("version %s over itself: changed %t, %v", obj.ResourceVersion, changed, err)
		}
	})
}

func TestUnenforcedNodes(t *testing.T) {
	tests := map[string]struct {
		gpus  int
		mode  placement.Unenforced
		trust bool
		want  placement.Reason
	}{
		"allowed by default":                        {gpus: 2, mode: placement.AllowUnenforced},
		"refused":                                   {gpus: 8, mode: placement.RefuseUnenforced, want: placement.NotEnforced},
		"part of a node is refused":                 {gpus: 2, mode: placement.WholeNodeOnly, want: placement.NotEnforced},
		"a whole node leaves kubelet no choice":     {gpus: 8, mode: placement.WholeNodeOnly},
		"a pod that reads our output is not risked": {gpus: 2, mode: placement.AllowUnenforced, trust: true, want: placement.NotEnforced},
		"unless it takes the whole node":            {gpus: 8, mode: placement.AllowUnenforced, trust: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, "dgx1-v100")
			r.PodDevices.leases.Drop(nodelease.AgentPrefix + "n")
			info, l := r.view(t)
			d := demandOf(t, schedtest.Pod("p").GPUs(tc.gpus).Obj())
			d.Unenforced = tc.mode
			d.TrustsOutput = tc.trust
			if v := r.Nodes.Judge(d, info, l); v.Reason != tc.want {
				t.Errorf("verdict %q, want %q", v.Reason, tc.want)
			}
		})
	}
}

// TestForeignPodLinks: foreign pods prevent only link policies.
func TestForeignPodLinks(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	info, l := r.view(t, on(t, r.State, schedtest.Pod("foreign").GPUs(2).Obj(), "n"))
	if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("p").GPUs(2).Obj()), info, l); v.Reason != placement.Fits {
		t.Errorf("best-effort: %q, want that it fits", v.Reason)
	}
	pod := schedtest.Pod("q").GPUs(2).Annotation(podrequest.MinLinkKey, "NVLINK").Obj()
	if v := r.Nodes.Judge(demandOf(t, pod), info, l); v.Reason != placement.UnknownDevices {
		t.Errorf("min-link: %q, want %q", v.Reason, placement.UnknownDevices)
	}
	if v := r.Nodes.Judge(demandOf(t, schedtest.Pod("all").GPUs(7).Obj()), info, l); v.Reason != placement.FewGPUs {
		t.Errorf("seven beside two unknown: %q, want %q", v.Reason, placement.FewGPUs)
	}
	a, reason := r.Allocations.Assume(demandOf(t, schedtest.Pod("p").GPUs(2).Obj()), schedtest.Pod("p").GPUs(2).Obj(), info, l)
	if reason != placement.Fits || !a.Unconfirmed {
		t.Errorf("choice beside a foreign pod %+v (%q), want it marked unconfirmed", a, reason)
	}
}

// TestFilterScoreAllocations: Filter and Score do not allocate memory.
func TestFilterScoreAllocations(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	pods := []*v1.Pod{on(t, r.State, schedtest.Pod("a").GPUs(2).Obj(), "n", 0, 3), on(t, r.State, schedtest.Pod("b").GPUs(1).Obj(), "n", 5)}
	info, l := r.view(t, pods...)
	pod := schedtest.Pod("p").GPUs(2).Request("cpu", "4").Obj()
	for name, annotations := range map[string]map[string]string{
		"best-effort": nil, "single-numa-node": {podrequest.TopologyPolicyKey: "single-numa-node"}, "required": {podrequest.NUMAAffinityKey: "required"},
		"min-link": {podrequest.MinLinkKey: "NV1"},
	} {
		pod.Annotations = annotations
		d := demandOf(t, pod)
		if v := r.Nodes.Judge(d, info, l); v.Reason != placement.Fits {
			t.Fatalf("%s: %s", name, v.Reason)
		}
		if n := testing.AllocsPerRun(100, func() { r.Nodes.Judge(d, info, l) }); n != 0 {
			t.Errorf("%s: Judge allocates %v times", name, n)
		}
		if n := testing.AllocsPerRun(100, func() {
			u := r.Nodes.View(d, info, l)
			placement.Rate(u, d.Request)
			placement.Align(u, d.Request)
		}); n != 0 {
			t.Errorf("%s: scoring allocates %v times", name, n)
		}
	}
}
