// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
)

// cachedState is a State beside the scheduler's own cache and snapshot.
type cachedState struct {
	*State
	tb        testing.TB
	ticks     *tickClock
	logger    klog.Logger
	cache     schedcache.Cache
	snapshot  *schedcache.Snapshot
	framework framework.Framework
	nodes     map[string]*v1.Node
	pods      map[string]*v1.Pod // bound
	assumed   map[string]*v1.Pod
	made      int
	spared    int // searches that the fabric decided
	reserved  int // searches in which machines were left to larger pods
	oracles   map[nvtopo.ClassID]*oracle.Oracle
}

func newCachedState(tb testing.TB) *cachedState {
	tb.Helper()
	metrics.Register()
	logger, ctx := ktesting.NewTestContext(tb)
	clk := &tickClock{now: time.Unix(1_700_000_000, 0)}
	s := &cachedState{ // its index checks only nodes with events, and new lists
		State: newState(testConfig(), clk, 0), ticks: clk, tb: tb, logger: logger, cache: schedcache.New(ctx, 0, nil),
		snapshot: schedcache.NewEmptySnapshot(), nodes: map[string]*v1.Node{}, pods: map[string]*v1.Pod{}, assumed: map[string]*v1.Pod{},
		oracles: map[nvtopo.ClassID]*oracle.Oracle{},
	}
	s.listers.pods = fixedStore{}
	s.Profiles.Serve("profile", []string{testResource})
	fw, err := frameworkruntime.NewFramework(ctx, nil, &schedconfig.KubeSchedulerProfile{},
		frameworkruntime.WithSnapshotSharedLister(s.snapshot), frameworkruntime.WithPodNominator(internalqueue.NewTestQueue(ctx, nil)))
	if err != nil {
		tb.Fatal(err)
	}
	s.framework = fw
	return s
}

func (s *cachedState) must(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatal(err)
	}
}

func (s *cachedState) add(name, kind string) {
	s.tb.Helper()
	n := addNode(s.tb, s.State, name, kind)
	n.Status.Allocatable[testResource] = resource.MustParse("64") // the graph decides, also when it changes
	s.nodes[name] = n
	s.cache.AddNode(s.logger, n)
}

// plain adds a node that has no accelerators.
func (s *cachedState) plain(name string) {
	n := schedtest.Node(name).UID("node-uid-" + name).CPU("4").Memory("8Gi").Obj()
	s.nodes[name] = n
	s.cache.AddNode(s.logger, n)
}

func (s *cachedState) list() []fwk.NodeInfo {
	s.tb.Helper()
	s.must(s.cache.UpdateSnapshot(s.logger, s.snapshot))
	nodes, err := s.snapshot.NodeInfos().List()
	s.must(err)
	return nodes
}

func (s *cachedState) candidates(pod *v1.Pod, how *candidates.Narrowing) sets.Set[string] {
	s.tb.Helper()
	names, _ := s.rated(pod, how)
	return names
}

// rated is candidates with the offers that rated them.
func (s *cachedState) rated(pod *v1.Pod, how *candidates.Narrowing) (sets.Set[string], nodeindex.Best) {
	s.tb.Helper()
	nodes := s.list()
	return s.PreSelector.Candidates(demandOf(s.tb, pod), pod, how, s.framework, nodes)
}

func narrowing() *candidates.Narrowing {
	return &candidates.Narrowing{Limit: 64, Order: nodeindex.DefaultOrder(), KeepOff: true}
}

// assume takes a pod through Reserve and into the cache.
func (s *cachedState) assume(pod *v1.Pod, node string) {
	s.tb.Helper()
	info, err := s.snapshot.Get(node)
	s.must(err)
	if _, reason := s.Allocations.Assume(demandOf(s.tb, pod), pod, info, s.snapshot.NodeInfos()); reason != placement.Fits {
		s.tb.Fatalf("node %s was listed for pod %s, but Reserve says: %s", node, pod.Name, reason)
	}
	p := pod.DeepCopy()
	p.Spec.NodeName = node
	s.must(s.cache.AssumePod(s.logger, p))
	s.assumed[p.Name] = p
}

// confirm delivers the informer's event that an assumed pod is bound.
func (s *cachedState) confirm(name string) {
	p := s.assumed[name]
	delete(s.assumed, name)
	bound := p.DeepCopy()
	s.made++
	bound.ResourceVersion = strconv.Itoa(s.made)
	text, err := s.Binder.Attempt(p.UID, p.Spec.NodeName).Pending().Encode()
	s.must(err)
	bound.Annotations = map[string]string{allocation.Key: text}
	s.pods[name] = bound
	s.must(s.cache.AddPod(s.logger, bound))
	s.handlers.podEvent(nil, bound)
}

func (s *cachedState) forget(name string) {
	p := s.assumed[name]
	delete(s.assumed, name)
	s.Allocations.Forget(p.UID, p.Spec.NodeName)
	s.must(s.cache.ForgetPod(s.logger, p))
}

func (s *cachedState) remove(name string) {
	p := s.pods[name]
	delete(s.pods, name)
	s.must(s.cache.RemovePod(s.logger, p))
	s.handlers.podHandler().OnDelete(p)
}

// linear lists the best nodes by judging every node of the snapshot by itself, and returns the offers
// that rated them.
func (s *cachedState) linear(pod *v1.Pod, how *candidates.Narrowing) (sets.Set[string], nodeindex.Best) {
	s.tb.Helper()
	return s.linearWithout(pod, how, nil)
}

// linearWithout leaves some nodes out.
func (s *cachedState) linearWithout(pod *v1.Pod, how *candidates.Narrowing, out sets.Set[string]) (sets.Set[string], nodeindex.Best) {
	s.tb.Helper()
	d := demandOf(s.tb, pod)
	offers := map[string]nodeindex.Offer{}
	r := &d.Resources[0]
	demand := nodeindex.Demand{GPUs: r.Count}
	reserved := s.leftToLarger(r.Count)
	if reserved != (nodeindex.Reserved{}) {
		s.reserved++
	}
	best := nodeindex.NoBest(nodeindex.TermsOf(&demand, &how.Order, reserved))
	for i, info := range s.list() {
		if out.Has(info.Node().Name) || s.Nodes.Judge(d, info, s.snapshot.NodeInfos()).Reason != placement.Fits {
			continue
		}
		u := s.Nodes.View(d, info, s.snapshot.NodeInfos())
		if u == nil {
			continue
		}
		if o, ok := placement.Rate(u, d.Request); ok {
			offers[info.Node().Name] = o
			best.Lead(&o, i)
		}
	}
	if len(offers) == 0 {
		return nil, nodeindex.Best{}
	}
	for _, o := range offers {
		if best.Among(&o) {
			best.Add(&o)
		}
	}
	names, most := sets.Set[string]{}, int64(-1)
	for name, o := range offers {
		if raw := how.Order.Weights.Raw(&o, &best); best.Among(&o) && raw >= most {
			if raw > most {
				names, most = sets.Set[string]{}, raw
			}
			names.Insert(name)
		}
	}
	return s.leastSpare(d.Request, names), best
}

// leftToLarger returns the machines that are left to pods with more than this number of GPUs: each node's
// graph and pods are read again, and a brute force finds which sizes are left.
func (s *cachedState) leftToLarger(gpus int) (out nodeindex.Reserved) {
	s.tb.Helper()
	var nodes []oracle.Node
	for _, info := range s.list() {
		n := s.Nodes.Node(info.Node().Name)
		if n == nil || n.NodeUID != info.Node().UID {
			continue
		}
		a := n.Accel(testResource)
		whole := a.Healthy &^ a.Degraded
		if whole == 0 {
			continue
		}
		of := s.oracles[a.Tables.Class()]
		if of == nil {
			of = oracle.New(a.Graph)
			s.oracles[a.Tables.Class()] = of
		}
		node := oracle.Node{Oracle: of, Whole: whole}
		for _, p := range info.GetPods() {
			if count := demandOf(s.tb, p.GetPod()).Resources; len(count) > 0 {
				node.Pods = append(node.Pods, count[0].Count)
			}
		}
		nodes = append(nodes, node)
	}
	left := oracle.LeftToLarger(nodes, gpus)
	for _, size := range left.GPUs {
		out.GPUs |= 1 << (size - 1)
	}
	for _, size := range left.Together {
		out.Together |= 1 << (size - 1)
	}
	return out
}

// TestIndexListing: the index lists the nodes that a linear search finds. Pods come, are forgotten, bound
// and deleted, nodes come, go and return, graphs change and vanish and nodes are rewired; every list is
// compared with a search over each node, and both remembered usages with recomputed ones.
func TestIndexListing(t *testing.T) {
	kinds := []string{"dgx1-v100", "l40s-8", "a6000-8-bridged", "a100-pcie-4-bridged"}
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			s, kinds := newCachedState(t), kinds
			if seed%2 == 1 {
				kinds = kinds[:1] // so that many nodes differ only in where they are
			}
			for i := range 10 {
				s.add(fmt.Sprintf("n%d", i), kinds[i%len(kinds)])
			}
			listed, compared := 0, 0
			for step := range 400 {
				s.ticks.now = s.ticks.now.Add(candidates.SnapshotDelay / 2) // nodes without further events are not checked
				if seed%2 == 1 && step%20 == 0 {
					s.wire(r)
				}
				s.disturb(r, kinds, step)
				s.Allocations.Sweep(s.snapshot.NodeInfos())
				asks := schedtest.Pod(fmt.Sprintf("p%d", step)).GPUs(1 + r.IntN(8))
				switch r.IntN(6) {
				case 3:
					asks.Spec.Containers = append(asks.Spec.Containers, container("second", 1+r.IntN(2)))
				case 0:
					asks.Annotation(podrequest.TopologyPolicyKey, "single-numa-node").CPU("8").Memory("16Gi")
				case 1:
					asks.Annotation(podrequest.GPUModelKey, "L40S")
				case 2:
					asks.Annotation(podrequest.MinLinkKey, "NVLINK")
				case 4:
					asks.Annotation(gangrequest.GangKey, "train")
				}
				pod := asks.Obj()
				got, ratedBy := s.rated(pod, narrowing())
				want, wantRatedBy := s.linear(pod, narrowing())
				if len(got) != len(want) || !got.Equal(want) {
					t.Fatalf("step %d, %d GPUs, %v: listed %v, a linear search finds %v",
						step, demandOf(t, pod).Resources[0].Count, pod.Annotations, sets.List(got), sets.List(want))
				}
				if ratedBy.Left.Seconds == wantRatedBy.Left.Seconds {
					wantRatedBy.Left = ratedBy.Left // of equally fast machines any may be named
				}
				if ratedBy != wantRatedBy {
					t.Fatalf("step %d, %d GPUs, %v: rated by %+v, a linear search by %+v",
						step, demandOf(t, pod).Resources[0].Count, pod.Annotations, ratedBy, wantRatedBy)
				}
				compared += checkMemos(t, s.State, s.snapshot.NodeInfos())
				if len(got) > 0 {
					listed++
					s.assume(pod, sets.List(got)[r.IntN(len(got))])
				}
			}
			if listed < 50 {
				t.Errorf("only %d of 400 pods had a list", listed)
			}
			if seed%2 == 1 && s.spared < 10 {
				t.Errorf("the fabric decided only %d of 400 lists", s.spared)
			}
			if seed%2 == 0 && s.reserved < 10 {
				t.Errorf("machines were left to larger pods in only %d of 400 lists", s.reserved)
			}
			if compared < 1000 {
				t.Errorf("only %d remembered usages were computed again in 400 steps", compared)
			}
		})
	}
}

// disturb makes one random change.
func (s *cachedState) disturb(r *rand.Rand, kinds []string, step int) {
	s.tb.Helper()
	any := func(m map[string]*v1.Pod) string {
		names := sets.List(sets.KeySet(m))
		return names[r.IntN(len(names))]
	}
	node := fmt.Sprintf("n%d", r.IntN(10))
	switch what := r.IntN(12); {
	case what < 3 && len(s.assumed) > 0:
		s.confirm(any(s.assumed))
	case what < 5 && len(s.assumed) > 0:
		s.forget(any(s.assumed))
	case what < 9 && len(s.pods) > 0:
		s.remove(any(s.pods))
	case what == 9: // one GPU fails, or all are well again
		obj := topologyOf(s.tb, node, kinds[r.IntN(len(kinds))])
		obj.ResourceVersion = strconv.Itoa(step + 2)
		if obj.Spec.NodeUID = s.nodes[node].UID; r.IntN(3) == 0 {
			obj.Spec.NodeUID = "another"
		}
		if at := r.IntN(2 * len(obj.Status.GPUHealth)); at < len(obj.Status.GPUHealth) {
			obj.Status.GPUHealth[at].Healthy, obj.Status.GPUHealth[at].Degraded = r.IntN(2) == 0, true
		}
		if r.IntN(2) == 0 {
			obj.Status.Kubelet = &v1alpha1.Kubelet{
				TopologyManagerPolicy: []string{"best-effort", "restricted", "single-numa-node"}[r.IntN(3)],
				Scope:                 []string{"container", "pod"}[r.IntN(2)],
			}
		}
		_, err := s.Graphs.Apply(obj)
		s.must(err)
	case what == 10 && r.IntN(2) == 0: // the node returns under its name; its graph is the old one's
		if n := s.nodes[node]; !strings.HasSuffix(string(n.UID), "-again") {
			s.must(s.cache.RemoveNode(s.logger, n))
			s.nodes[node] = n.DeepCopy()
			s.nodes[node].UID += "-again"
			s.cache.AddNode(s.logger, s.nodes[node])
			s.handlers.nodeHandler().OnAdd(s.nodes[node], false)
		}
	case what == 10: // a node like it, under a new name, in the middle of the list
		s.add(fmt.Sprintf("extra%d", step), kinds[r.IntN(len(kinds))])
	case what == 11:
		if n := s.Nodes.Node(node); n != nil {
			s.Graphs.Remove(node, n.ObjectUID)
		}
	}
}

// TestNarrowingExemptions: the list is not narrowed for certain pods.
func TestNarrowingExemptions(t *testing.T) {
	pinnedBy := func(fields bool) func(*v1.Pod) {
		return func(p *v1.Pod) {
			term := v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n0"}}}}
			if !fields {
				term = v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"b"}}}}
			}
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}},
			}}
		}
	}
	tests := map[string]struct {
		gpus   int
		change func(*v1.Pod)
		how    func(*candidates.Narrowing)
		want   []string
	}{
		"the bridged pair beats the broken bridge and the socket": {gpus: 2, want: []string{"n0"}},
		"a nominated pod keeps its node":                          {gpus: 2, change: func(p *v1.Pod) { p.Status.NominatedNodeName = "n1" }},
		"a pod that names its node":                               {gpus: 2, change: pinnedBy(true)},
		"no narrowing wanted":                                     {gpus: 2, how: func(n *candidates.Narrowing) { n.Limit = 0 }},
		"a label only the other nodes have":                       {gpus: 2, change: pinnedBy(false), want: []string{"n1"}},
		"a selector only the other nodes match": {
			gpus: 2, change: func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }, want: []string{"n1"},
		},
		"more CPU than the best node has left": {
			gpus: 2, change: func(p *v1.Pod) { *p = *schedtest.PodFrom(p).CPU("600").Memory("1Gi").Obj() },
		},
		"a wish lists the whole band": {gpus: 1, change: func(p *v1.Pod) {
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: "zone"}}
		}, want: []string{"n0", "n1"}},
		"no GPUs asked: the nodes without any": {gpus: 0, want: []string{"p0", "p1"}},
		"no GPUs asked, and none reserved":     {gpus: 0, how: func(n *candidates.Narrowing) { n.KeepOff = false }},
		"no GPUs asked, too much for the nodes without": {
			gpus: 0, change: func(p *v1.Pod) { *p = *schedtest.PodFrom(p).Request("cpu", "5").Request("memory", "1Gi").Obj() },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newCachedState(t)
			s.add("n0", "a100-pcie-4-bridged")
			s.add("n1", "a100-pcie-4-bridged")
			s.nodes["n1"].Labels = map[string]string{"zone": "b"}
			s.plain("p0")
			s.plain("p1")
			// n1's bridges are both broken.
			for i, gpu := range []int{0, 2} {
				p := on(t, s.State, schedtest.Pod(fmt.Sprint("held", i)).GPUs(1).Obj(), "n1", gpu)
				s.must(s.cache.AddPod(s.logger, p))
			}
			pod := schedtest.Pod("pod").GPUs(tc.gpus).Obj()
			if tc.change != nil {
				tc.change(pod)
			}
			how := narrowing()
			if tc.how != nil {
				tc.how(how)
			}
			if got := sets.List(s.candidates(pod, how)); !slices.Equal(got, tc.want) {
				t.Errorf("listed %v, want %v", got, tc.want)
			}
		})
	}
}

// TestWidenedPod: a widened pod is not narrowed in its next cycle.
func TestWidenedPod(t *testing.T) {
	s := newCachedState(t)
	s.add("n0", "dgx1-v100")
	pod := schedtest.Pod("pod").GPUs(2).Obj()
	if got := s.candidates(pod, narrowing()); len(got) != 1 {
		t.Fatalf("listed %v, want the node", sets.List(got))
	}
	s.PreSelector.retries.Add(pod)
	if got := s.candidates(pod, narrowing()); got != nil {
		t.Errorf("listed %v for a widened pod", sets.List(got))
	}
	s.handlers.podEvent(nil, on(t, s.State, pod, "n0", 0, 1)) // bound
	if s.PreSelector.RetriesOnAllNodes(pod.UID) {
		t.Error("a bound pod is still marked")
	}
	s.PreSelector.retries.Add(pod)
	s.podDeleted(pod.UID)
	if s.PreSelector.RetriesOnAllNodes(pod.UID) {
		t.Error("a deleted pod is still marked")
	}
}

// TestRefusingNodesListed: nodes whose kubelets refuse pods are not listed, and if there are no others
// the cycle is not narrowed.
func TestRefusingNodesListed(t *testing.T) {
	s := newCachedState(t)
	s.add("n0", "dgx-h100")
	s.add("n1", "l40s-8")
	refuse := func(node string) {
		for i := range refusals.Enough {
			p := schedtest.Pod(fmt.Sprint("refused-", node, i)).Node(node).Phase(v1.PodFailed).Obj()
			p.Status.Reason = "OutOf" + testResource
			s.PreSelector.refusals.Sent(p.UID, node)
			s.PreSelector.refusals.See(p)
		}
	}
	pod := schedtest.Pod("pod").GPUs(2).Obj()
	want := func(when string, names ...string) {
		t.Helper()
		if got := sets.List(s.candidates(pod, narrowing())); !slices.Equal(got, names) {
			t.Errorf("%s: listed %v, want %v", when, got, names)
		}
	}
	want("at first", "n0")
	refuse("n0")
	want("once the kubelet of the better node refuses pods", "n1")
	refuse("n1")
	want("once both do")
	s.ticks.now = s.ticks.now.Add(refusals.Window)
	want("after a while", "n0")
}

// TestBestNodeWithCPUs: pods that need CPUs beside their GPUs get the best node that has them. The CPUs
// of one NUMA node are used, so that the node gives less than its bucket offers.
func TestBestNodeWithCPUs(t *testing.T) {
	s := newCachedState(t)
	s.add("n0", "l40s-8") // all GPUs free, no CPUs on NUMA node 0
	s.add("n1", "l40s-8") // the second half of every switch's pair is taken: a worse band
	held := schedtest.Pod("held").Request("cpu", "60").Request("memory", "1Gi").Node("n0").Obj()
	a := &allocation.Allocation{Version: allocation.Version, Node: "n0", PodUID: held.UID, NUMANodes: []int{0}}
	text, err := a.Encode()
	s.must(err)
	held.Annotations = map[string]string{allocation.Key: text}
	s.must(s.cache.AddPod(s.logger, held))
	s.must(s.cache.AddPod(s.logger, on(t, s.State, schedtest.Pod("odd").GPUs(4).Obj(), "n1", 1, 3, 5, 7)))
	pod := schedtest.Pod("pod").GPUs(2).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").CPU("16").Memory("1Gi").Obj()
	got := s.candidates(pod, narrowing())
	want, _ := s.linear(pod, narrowing())
	if !got.Equal(want) || !got.Has("n0") {
		t.Errorf("listed %v, a linear search finds %v, want n0", sets.List(got), sets.List(want))
	}
}

// TestListLength: the list has the requested length.
func TestListLength(t *testing.T) {
	s := newCachedState(t)
	for i := range 20 {
		s.add(fmt.Sprint("n", i), "dgx-h100")
	}
	half := on(t, s.State, schedtest.Pod("half").GPUs(4).Obj(), "n7", 0, 1, 2, 3)
	s.must(s.cache.AddPod(s.logger, half))
	how := narrowing()
	how.Limit = 5
	if got := s.candidates(schedtest.Pod("whole").GPUs(8).Obj(), how); len(got) != 5 {
		t.Errorf("listed %d nodes, want 5 of the 19 that are equal", len(got))
	}
	if got := sets.List(s.candidates(schedtest.Pod("four").GPUs(4).Obj(), how)); !slices.Equal(got, []string{"n7"}) {
		t.Errorf("listed %v, want the half-used node alone", got)
	}
	how.Tolerance = 100
	if got := s.candidates(schedtest.Pod("four").GPUs(4).Obj(), how); len(got) != 5 || !got.Has("n7") {
		t.Errorf("listed %v, want 5 with the half-used node", sets.List(got))
	}
}

// TestWholeNodes: whole nodes are reported.
func TestWholeNodes(t *testing.T) {
	s := newCachedState(t)
	if s.PreSelector.TakesWholeNodes(demandOf(t, schedtest.Pod("early").GPUs(8).Obj()).Request) {
		t.Error("8 GPUs are called a whole node before any node is known")
	}
	s.add("n0", "dgx-h100")
	s.candidates(schedtest.Pod("any").GPUs(1).Obj(), narrowing())
	for gpus, want := range map[int]bool{8: true, 4: false, 16: true} {
		if got := s.PreSelector.TakesWholeNodes(demandOf(t, schedtest.Pod("p").GPUs(gpus).Obj()).Request); got != want {
			t.Errorf("%d GPUs take whole nodes: %t, want %t", gpus, got, want)
		}
	}
	s.add("n1", "dgx2")
	s.candidates(schedtest.Pod("any").GPUs(1).Obj(), narrowing())
	if s.PreSelector.TakesWholeNodes(demandOf(t, schedtest.Pod("p").GPUs(8).Obj()).Request) {
		t.Error("8 GPUs are called a whole node where one has 16")
	}
}

// TestEventsDuringListing: events may come while a list is made. Graphs change, and Leases and
// reservations come and go in other goroutines, for the race detector; at the end the list equals that of
// a linear search.
func TestEventsDuringListing(t *testing.T) {
	s := newCachedState(t)
	for i := range 8 {
		s.add(fmt.Sprint("n", i), "dgx1-v100")
	}
	nodes := s.list()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 300 {
				name := fmt.Sprint("n", (g+i)%8)
				switch i % 3 {
				case 0:
					obj := topologyOf(t, name, "dgx1-v100")
					obj.ResourceVersion = strconv.Itoa(2 + g*300 + i)
					if _, err := s.Graphs.Apply(obj); err != nil {
						t.Error(err)
					}
				case 1:
					s.Changes.touchNode(name)
				default:
					s.PodDevices.leases.Set(lease(nodelease.ExporterPrefix+name, s.clock.Now(), 24*time.Hour), s.clock.Now())
				}
			}
		})
	}
	for i := range 300 {
		pod := schedtest.Pod(fmt.Sprint("p", i)).GPUs(1 + i%8).Obj()
		d := demandOf(t, pod)
		listed, _ := s.PreSelector.Candidates(d, pod, narrowing(), s.framework, nodes)
		for name := range listed {
			info, err := s.snapshot.Get(name)
			s.must(err)
			if _, reason := s.Allocations.Assume(d, pod, info, s.snapshot.NodeInfos()); reason == placement.Fits {
				s.Allocations.Forget(pod.UID, name)
			}
			break
		}
	}
	wg.Wait()
	pod := schedtest.Pod("last").GPUs(4).Obj()
	want, _ := s.linear(pod, narrowing())
	if got := s.candidates(pod, narrowing()); !got.Equal(want) {
		t.Errorf("listed %v, a linear search finds %v", sets.List(got), sets.List(want))
	}
}
