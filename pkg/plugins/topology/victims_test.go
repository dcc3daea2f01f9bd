// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	schedconfigv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeports"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

const gpus = v1.ResourceName(v1alpha1.DefaultResource)

// testEnv is a real framework, with kube-scheduler's filters for resources and ports
// beside the plugin, over one snapshot.
type testEnv struct {
	tb       testing.TB
	ctx      context.Context
	fw       framework.Framework
	plugin   *Plugin
	state    *nodestate.State
	factory  informers.SharedInformerFactory
	client   *fake.Clientset
	nodes    []*v1.Node
	pods     []*v1.Pod
	snapshot *schedcache.Snapshot
	queue    *internalqueue.PriorityQueue
	clock    testkit.Ahead
}

// lister gives the framework whatever snapshot is current.
type lister struct{ s *testEnv }

func (l lister) NodeInfos() fwk.NodeInfoLister       { return l.s.snapshot.NodeInfos() }
func (l lister) StorageInfos() fwk.StorageInfoLister { return l.s.snapshot.StorageInfos() }

// newTestEnv makes nodes, each with a machine of the catalogue.
func newTestEnv(tb testing.TB, machines ...string) *testEnv {
	tb.Helper()
	return newTestEnvWith(tb, []string{defaultpreemption.Name}, machines...)
}

// newTestEnvWith is newTestEnv with other plugins beside ours.
func newTestEnvWith(tb testing.TB, others []string, machines ...string) *testEnv {
	tb.Helper()
	metrics.Register()
	_, ctx := ktesting.NewTestContext(tb)
	ctx = klog.NewContext(ctx, klog.Background().V(9))
	ctx, cancel := context.WithCancel(ctx)
	tb.Cleanup(cancel)
	s := &testEnv{tb: tb, ctx: ctx, snapshot: schedcache.NewEmptySnapshot()}
	var objects []runtime.Object
	var graphs []*v1alpha1.NodeGPUTopology
	for i, kind := range machines {
		node, obj := nodeOf(tb, fmt.Sprintf("node-%d", i), kind)
		s.nodes, graphs = append(s.nodes, node), append(graphs, obj)
		objects = append(objects, leasesOf(node.Name)...)
	}
	s.client = fake.NewClientset(objects...)
	s.factory = informers.NewSharedInformerFactory(s.client, 0)
	s.queue = internalqueue.NewTestQueueWithInformerFactory(ctx, (&queuesort.PrioritySort{}).Less, s.factory)
	s.build(others)
	s.factory.Start(ctx.Done())
	s.factory.WaitForCacheSync(ctx.Done())
	testkit.Watched(tb, s.client.Actions, "pods")
	for _, obj := range graphs {
		if _, err := s.state.Graphs.Apply(obj); err != nil {
			tb.Fatal(err)
		}
	}
	s.settle()
	return s
}

func nodeOf(tb testing.TB, name, kind string) (*v1.Node, *v1alpha1.NodeGPUTopology) {
	tb.Helper()
	m, err := machine.Lookup(kind)
	if err != nil {
		tb.Fatal(err)
	}
	g, err := m.GraphFor(name)
	if err != nil {
		tb.Fatal(err)
	}
	obj := v1alpha1.FromGraph(name, v1alpha1.DefaultResource, g)
	obj.UID, obj.ResourceVersion, obj.Spec.NodeUID = types.UID("graph-"+name), "1", types.UID("uid-"+name)
	node := schedtest.Node(name).UID(string(obj.Spec.NodeUID)).GPUs(g.Len()).CPU("64").Memory("1Ti").Obj()
	return node, obj
}

func leasesOf(node string) []runtime.Object {
	var out []runtime.Object
	for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
		out = append(out, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "nvtopo-system", Name: prefix + node},
			Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(time.Now())), LeaseDurationSeconds: new(int32(86400))},
		})
	}
	return out
}

func (e *testEnv) build(others []string) {
	e.tb.Helper()
	shared := lifecycle.NewShared(&e.clock, func(_ context.Context, _ fwk.Handle, _ string, state *nodestate.State) cache.ResourceEventHandler {
		e.state = state
		return cache.ResourceEventHandlerFuncs{}
	})
	registry := frameworkruntime.Registry{
		queuesort.Name: queuesort.New, defaultbinder.Name: defaultbinder.New,
		nodeports.Name:         frameworkruntime.FactoryAdapter(feature.Features{}, nodeports.New),
		noderesources.Name:     frameworkruntime.FactoryAdapter(feature.Features{}, noderesources.NewFit),
		defaultpreemption.Name: frameworkruntime.FactoryAdapter(feature.Features{EnableAsyncPreemption: true}, newDefaultPreemption),
		Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			p, err := New(shared)(ctx, args, h)
			e.plugin, _ = p.(*Plugin)
			return p, err
		},
	}
	profile := &schedconfig.KubeSchedulerProfile{SchedulerName: "ours", Plugins: &schedconfig.Plugins{}}
	for _, name := range append([]string{queuesort.Name, defaultbinder.Name, Name, noderesources.Name, nodeports.Name}, others...) {
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, schedconfig.Plugin{Name: name, Weight: 1})
	}
	profile.PluginConfig = []schedconfig.PluginConfig{
		{Name: Name, Args: decoded(e.tb, Name+"Args", `{"narrowTo":0}`)},
		{Name: noderesources.Name, Args: decoded(e.tb, "NodeResourcesFitArgs", `{}`)},
	}
	for _, name := range others {
		profile.PluginConfig = append(profile.PluginConfig, schedconfig.PluginConfig{Name: name, Args: decoded(e.tb, name+"Args", `{}`)})
	}
	fw, err := frameworkruntime.NewFramework(e.ctx, registry, profile,
		frameworkruntime.WithClientSet(e.client), frameworkruntime.WithInformerFactory(e.factory),
		frameworkruntime.WithSnapshotSharedLister(lister{e}), frameworkruntime.WithEventRecorder(&events.FakeRecorder{}),
		frameworkruntime.WithPodActivator(e.queue), frameworkruntime.WithPodNominator(e.queue),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()))
	if err != nil {
		e.tb.Fatal(err)
	}
	e.fw = fw
}

func newDefaultPreemption(ctx context.Context, args runtime.Object, h fwk.Handle, f feature.Features) (fwk.Plugin, error) {
	return defaultpreemption.New(ctx, args, h, f)
}

func decoded(tb testing.TB, kind, text string) runtime.Object {
	tb.Helper()
	gvk := schedconfigv1.SchemeGroupVersion.WithKind(kind)
	obj, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), &gvk, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return obj
}

// settle waits until the first lists are in.
func (e *testEnv) settle() {
	e.tb.Helper()
	testkit.Soon(e.tb, "the Leases are known", e.state.Lists.Synced)
}

// show sets the snapshot to the present pods.
func (e *testEnv) show() { e.snapshot = schedcache.NewSnapshot(e.pods, e.nodes) }

// tenant puts a pod on a node; with positions it has those GPUs, without it has `count` untracked ones.
func (e *testEnv) tenant(name string, node int, priority int32, count int, positions ...int) *v1.Pod {
	e.tb.Helper()
	pod := asks(name, priority, count).Node(e.nodes[node].Name).Obj()
	if len(positions) > 0 {
		a := allocation.Allocation{Version: allocation.Version, Node: pod.Spec.NodeName, PodUID: pod.UID, Assumed: time.Now()}
		g := e.state.Nodes.Node(pod.Spec.NodeName).Accel(v1alpha1.DefaultResource).Graph
		c := allocation.Container{Name: "main", Resource: v1alpha1.DefaultResource}
		for _, p := range positions {
			c.GPUs = append(c.GPUs, g.GPUs[p].UUID)
		}
		a.Containers = append(a.Containers, c)
		text, err := a.Encode()
		if err != nil {
			e.tb.Fatal(err)
		}
		pod.Annotations = map[string]string{allocation.Key: text}
	}
	e.pods = append(e.pods, pod)
	return pod
}

// asks returns a waiting pod.
func asks(name string, priority int32, count int) *schedtest.PodWrapper {
	return schedtest.Pod(name).Label("name", name).Priority(priority).Scheduler("ours").CPU("1").Memory("1Gi").GPUs(count)
}

// linkedPair starts one with two GPUs and an NVLink between them.
func linkedPair(name string, priority int32) *schedtest.PodWrapper {
	return asks(name, priority, 2).Annotation(podrequest.MinLinkKey, "NVLINK")
}

// setResource changes the pod's request for a resource.
func setResource(pod *v1.Pod, name v1.ResourceName, n int) {
	r := pod.Spec.Containers[0].Resources
	for _, list := range []v1.ResourceList{r.Limits, r.Requests} {
		list[name] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
}

// cycle runs a pod's PreFilter and returns the state.
func (e *testEnv) cycle(pod *v1.Pod) fwk.CycleState {
	e.tb.Helper()
	state := framework.NewCycleState()
	if _, status, _ := e.fw.RunPreFilterPlugins(e.ctx, state, pod); !status.IsSuccess() {
		e.tb.Fatalf("PreFilter: %v", status)
	}
	return state
}

// victims are the names of the pods that would be evicted from a node, sorted, the violated budgets, and
// the cost. If the pods that are ending anyway suffice, they are returned, at no cost.
func (e *testEnv) victims(pod *v1.Pod, node int, pdbs ...*policyv1.PodDisruptionBudget) ([]string, eviction.Cost, *fwk.Status) {
	e.tb.Helper()
	state := e.cycle(pod)
	info, err := e.snapshot.NodeInfos().Get(e.nodes[node].Name)
	if err != nil {
		e.tb.Fatal(err)
	}
	p := e.plugin.preemptor
	if w := p.waitOn(e.ctx, state, lifecycle.ReadCycle(state), pod, info); w != nil && w.within <= p.patience {
		return namesOf(w.awaited), eviction.CostOf(nil, nil, w.quality), nil
	}
	a := newAttempt()
	ctx := context.WithValue(e.ctx, attemptKey{}, a)
	pods, violations, status := e.plugin.preemptor.SelectVictimsOnNode(ctx, state, pod, info.Snapshot(), pdbs)
	if !status.IsSuccess() {
		return nil, eviction.Cost{}, status
	}
	b := eviction.NewBudgets(pdbs)
	c := eviction.CostOf(e.plugin.preemptor.podsOf(pods, b), b.Allowed, a.plan(info.Node().Name).quality)
	if c.Violations != violations {
		e.tb.Errorf("%d violations reported, %d counted", violations, c.Violations)
	}
	return namesOf(pods), c, nil
}

func namesOf(pods []*v1.Pod) []string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// brute tries every subset of the lower-priority pods with the framework's filters.
func (e *testEnv) brute(pod *v1.Pod, node int, pdbs ...*policyv1.PodDisruptionBudget) (best eviction.Cost, names []string, found bool) {
	e.tb.Helper()
	state := e.cycle(pod)
	info, err := e.snapshot.NodeInfos().Get(e.nodes[node].Name)
	if err != nil {
		e.tb.Fatal(err)
	}
	var could []*v1.Pod
	for _, p := range e.pods {
		if p.Spec.NodeName == e.nodes[node].Name && *p.Spec.Priority < *pod.Spec.Priority {
			could = append(could, p)
		}
	}
	c := lifecycle.ReadCycle(state)
	b := eviction.NewBudgets(pdbs)
	slices.SortStableFunc(could, func(a, b *v1.Pod) int {
		if e.plugin.preemptor.MoreImportantPod(a, b) {
			return -1
		}
		return 1
	})
	for set := range uint64(1) << len(could) {
		copied := info.Snapshot()
		var gone []*v1.Pod
		for i, p := range could {
			if set>>i&1 != 0 {
				gone = append(gone, p)
				if err := copied.RemovePod(klog.Background(), p); err != nil {
					e.tb.Fatal(err)
				}
			}
		}
		if !e.fw.RunFilterPluginsWithNominatedPods(e.ctx, state, pod, copied).IsSuccess() {
			continue
		}
		_, q := e.state.Nodes.Plan(&c.Demand, copied, e.snapshot.NodeInfos())
		cost := eviction.CostOf(e.plugin.preemptor.podsOf(gone, b), b.Allowed, q)
		if !found || cost.Compare(&best) < 0 {
			best, names, found = cost, namesOf(gone), true
		}
	}
	return best, names, found
}

// TestVictimBruteForce: the victims are the cheapest. The test compares the choice with all subsets of
// pods, on random nodes with random pods, with the framework's own filters as judge of both.
func TestVictimBruteForce(t *testing.T) {
	machines := []string{"dgx1-v100", "a100-pcie-4-bridged", "v100-pcie-8", "l40s-8"}
	s := newTestEnv(t, machines...)
	possible, dearer := 0, 0
	const seeds = 400
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 11))
		node := r.IntN(len(machines))
		s.pods = nil
		fillNode(s, r, node)
		s.show()
		pod := wants(r, len(s.state.Nodes.Node(s.nodes[node].Name).Accel(v1alpha1.DefaultResource).Graph.GPUs))
		pdbs := budgets(r)
		want, names, ok := s.brute(pod, node, pdbs...)
		if ok && want.Pods == 0 {
			continue // it fits
		}
		got, cost, status := s.victims(pod, node, pdbs...)
		if ok != status.IsSuccess() {
			t.Fatalf("seed %d on %s: %v (%v), brute force finds %v", seed, machines[node], status, got, names)
		}
		if !ok {
			continue
		}
		possible++
		if d := cmp.Diff(want, cost); d != "" {
			t.Fatalf("seed %d on %s: victims %v, brute force %v; cost (-brute force +choice):\n%s", seed, machines[node], got, names, d)
		}
		if theirs := s.defaults(pod, node, pdbs...); theirs.Violations > want.Violations || theirs.Priority > want.Priority || theirs.Pods > want.Pods {
			dearer++
		}
	}
	t.Logf("%d of %d seeds had victims; the default preemption would evict more, more important or guarded pods for %d", possible, seeds, dearer)
	if possible < seeds/4 {
		t.Errorf("only %d of %d seeds test anything", possible, seeds)
	}
}

// TestVictimCostBound: the choice is never dearer than the default plugin's. CPUs are short as well, where
// the choice is not exact: the pod fits afterwards, no victim could stay, and by the cost's order it costs
// no more than the default preemption's choice.
func TestVictimCostBound(t *testing.T) {
	machines := []string{"dgx1-v100", "a100-pcie-4-bridged"}
	s := newTestEnv(t, machines...)
	possible, cheaper := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 12))
		node := r.IntN(len(machines))
		s.pods = nil
		fillNode(s, r, node)
		for i := range 3 {
			s.tenant(fmt.Sprintf("plain-%d", i), node, int32(r.IntN(4)), 0).Labels["team"] = string(rune('a' + r.IntN(3)))
		}
		for _, pod := range s.pods {
			setResource(pod, v1.ResourceCPU, r.IntN(12))
		}
		s.show()
		pod := wants(r, s.state.Nodes.Node(s.nodes[node].Name).Accel(v1alpha1.DefaultResource).Graph.Len())
		setResource(pod, v1.ResourceCPU, 20+r.IntN(40))
		pdbs := budgets(r)
		state := s.cycle(pod)
		info, err := s.snapshot.NodeInfos().Get(s.nodes[node].Name)
		if err != nil {
			t.Fatal(err)
		}
		if s.fw.RunFilterPluginsWithNominatedPods(s.ctx, state, pod, info).IsSuccess() {
			continue
		}
		theirs, _, status := s.plugin.preemptor.DefaultPreemption.SelectVictimsOnNode(s.ctx, state, pod, info.Snapshot(), pdbs)
		got, cost, own := s.victims(pod, node, pdbs...)
		if own.IsSuccess() != status.IsSuccess() {
			t.Fatalf("seed %d: ours %v, the default's %v", seed, own, status)
		}
		if !own.IsSuccess() {
			continue
		}
		possible++
		b := eviction.NewBudgets(pdbs)
		limit := eviction.CostOf(s.plugin.preemptor.podsOf(theirs, b), b.Allowed, cost.Quality)
		limit.Started = cost.Started
		switch c := cost.Compare(&limit); {
		case c > 0:
			t.Errorf("seed %d: %v cost %+v, the default's %v %+v", seed, got, cost, namesOf(theirs), limit)
		case c < 0:
			cheaper++
		}
		s.minimal(pod, state, info, got, seed)
	}
	t.Logf("%d preemptions, %d of them cheaper than the default's", possible, cheaper)
	if possible < 50 || cheaper == 0 {
		t.Errorf("%d preemptions, %d cheaper: the seeds test nothing", possible, cheaper)
	}
}

// TestSearchSteps: searches on 16 GPUs stay within their steps. The test counts the steps for one node, on
// nodes with up to 16 holders.
func TestSearchSteps(t *testing.T) {
	s := newTestEnv(t, "dgx2")
	most := map[bool]int64{}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 13))
		s.pods = nil
		free := r.Uint32() & r.Uint32() & r.Uint32()
		for g := 0; g < 16; g++ {
			n := 1
			if g < 15 && r.IntN(6) == 0 {
				n = 2
			}
			if free>>g&1 == 0 {
				pod := s.tenant(fmt.Sprintf("pod-%d", g), 0, int32(r.IntN(3)), n, []int{g, g + 1}[:n]...)
				pod.Labels["team"] = string(rune('a' + r.IntN(3)))
				pod.Status.StartTime = &metav1.Time{Time: time.Unix(1_700_000_000+int64(r.IntN(100)), 0)}
			}
			g += n - 1
		}
		s.show()
		pod := wants(r, 16)
		setResource(pod, gpus, 1+r.IntN(16))
		a := newAttempt()
		state := s.cycle(pod)
		info, err := s.snapshot.NodeInfos().Get("node-0")
		if err != nil {
			t.Fatal(err)
		}
		s.plugin.preemptor.SelectVictimsOnNode(context.WithValue(s.ctx, attemptKey{}, a), state, pod, info.Snapshot(), budgets(r))
		exact := pod.Annotations[podrequest.TopologyPolicyKey] == "single-numa-node"
		most[exact] = max(most[exact], maxSteps-a.steps.Load())
	}
	t.Logf("at most %d questions of devices only, and %d of whole usages, of %d and %d", most[false], most[true]/exactSteps, nodeSteps, nodeSteps/exactSteps)
	if most[false] >= nodeSteps || most[true] >= nodeSteps {
		t.Errorf("a node asked %v steps, want fewer than %d", most, nodeSteps)
	}
}

// minimal checks that the pod fits without the victims, and does not with any of them.
func (e *testEnv) minimal(pod *v1.Pod, state fwk.CycleState, info fwk.NodeInfo, victims []string, seed uint64) {
	e.tb.Helper()
	for _, spared := range append([]string{""}, victims...) {
		copied := info.Snapshot()
		for _, p := range e.pods {
			if slices.Contains(victims, p.Name) && p.Name != spared {
				if err := copied.RemovePod(klog.Background(), p); err != nil {
					e.tb.Fatal(err)
				}
			}
		}
		if fits := e.fw.RunFilterPluginsWithNominatedPods(e.ctx, state, pod, copied).IsSuccess(); fits != (spared == "") {
			e.tb.Errorf("seed %d: victims %v, with %q spared the pod fits: %t", seed, victims, spared, fits)
		}
	}
}

// defaults is the cost of the default preemption's choice, without the quality of the freed devices.
func (e *testEnv) defaults(pod *v1.Pod, node int, pdbs ...*policyv1.PodDisruptionBudget) eviction.Cost {
	e.tb.Helper()
	info, err := e.snapshot.NodeInfos().Get(e.nodes[node].Name)
	if err != nil {
		e.tb.Fatal(err)
	}
	pods, _, status := e.plugin.preemptor.DefaultPreemption.SelectVictimsOnNode(e.ctx, e.cycle(pod), pod, info.Snapshot(), pdbs)
	if !status.IsSuccess() {
		e.tb.Fatalf("the default preemption: %v", status)
	}
	b := eviction.NewBudgets(pdbs)
	return eviction.CostOf(e.plugin.preemptor.podsOf(pods, b), b.Allowed, eviction.Quality{})
}

// fillNode fills a node with up to nine pods of one to three GPUs.
func fillNode(s *testEnv, r *rand.Rand, node int) {
	g := s.state.Nodes.Node(s.nodes[node].Name).Accel(v1alpha1.DefaultResource).Graph
	order := r.Perm(g.Len())
	for len(order) > 0 && len(s.pods) < 9 {
		n := min(1+r.IntN(3), len(order))
		mine := order[:n]
		order = order[n:]
		if r.IntN(5) == 0 {
			continue // free
		}
		name := fmt.Sprintf("pod-%d", len(s.pods))
		var pod *v1.Pod
		if r.IntN(15) == 0 {
			pod = s.tenant(name, node, int32(r.IntN(4)), n) // which ones is not known
		} else {
			pod = s.tenant(name, node, int32(r.IntN(4)), n, mine...)
		}
		pod.Labels["team"] = string(rune('a' + r.IntN(3)))
		pod.Status.StartTime = &metav1.Time{Time: time.Unix(1_700_000_000+int64(r.IntN(4)), 0)}
	}
}

func wants(r *rand.Rand, size int) *v1.Pod {
	pod := asks("wants", 3, 1+r.IntN(min(5, size)))
	switch r.IntN(5) {
	case 0:
		pod.Annotation(podrequest.MinLinkKey, "NVLINK")
	case 1:
		pod.Annotation(podrequest.TopologyPolicyKey, "single-numa-node")
	case 2:
		pod.Annotation(podrequest.TopologyPolicyKey, "restricted")
	case 3:
		pod.Annotation(podrequest.MinBandwidthKey, "24")
	}
	return pod.Obj()
}

func budgets(r *rand.Rand) []*policyv1.PodDisruptionBudget {
	var out []*policyv1.PodDisruptionBudget
	for _, team := range []string{"a", "b"} {
		if r.IntN(2) == 0 {
			out = append(out, budget(team, int32(r.IntN(3))))
		}
	}
	return out
}

func budget(team string, allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: team, Namespace: "default"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
}

func TestVictims(t *testing.T) {
	going := func(pod *v1.Pod, in time.Duration) {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(in)}
	}
	// a100-pcie-4-bridged: bridges join GPUs 0 and 1, and 2 and 3.
	tests := map[string]struct {
		arrange func(s *testEnv)
		pod     *v1.Pod
		want    []string
		refused string
	}{
		"a pod that is going costs nothing": {
			arrange: func(s *testEnv) {
				going(s.tenant("going", 0, 2, 2, 0, 1), 20*time.Second)
				s.tenant("low", 0, 0, 2, 2, 3)
			},
			pod: linkedPair("p", 3).Obj(), want: []string{"going"},
		},
		"even one that matters more": {
			arrange: func(s *testEnv) {
				going(s.tenant("going", 0, 9, 2, 0, 1), 20*time.Second)
				s.tenant("low", 0, 0, 2, 2, 3)
			},
			pod: linkedPair("p", 3).Obj(), want: []string{"going"},
		},
		"one that should have gone long ago is no help": {
			arrange: func(s *testEnv) {
				going(s.tenant("stuck", 0, 0, 2, 0, 1), -time.Hour)
				s.tenant("other", 0, 1, 2, 2, 3)
			},
			pod: linkedPair("p", 3).Obj(), want: []string{"other"},
		},
		"CPUs are short as well: a pod without GPUs goes rather than a second one with": {
			arrange: func(s *testEnv) {
				setResource(s.tenant("holder", 0, 1, 2, 0, 1), v1.ResourceCPU, 4)
				setResource(s.tenant("second", 0, 2, 2, 2, 3), v1.ResourceCPU, 30)
				setResource(s.tenant("builder", 0, 1, 0), v1.ResourceCPU, 30)
			},
			pod: linkedPair("p", 3).CPU("20").Obj(), want: []string{"builder", "holder"},
		},
		"CPUs alone are short, and the GPUs free": {
			arrange: func(s *testEnv) {
				setResource(s.tenant("holder", 0, 2, 2, 0, 1), v1.ResourceCPU, 30)
				setResource(s.tenant("builder", 0, 1, 0), v1.ResourceCPU, 30)
			},
			pod: linkedPair("p", 3).CPU("20").Obj(), want: []string{"builder"},
		},
		"a holder has the CPUs, and matters less than the pods without GPUs": {
			arrange: func(s *testEnv) {
				setResource(s.tenant("holder", 0, 1, 2, 0, 1), v1.ResourceCPU, 4)
				setResource(s.tenant("second", 0, 1, 2, 2, 3), v1.ResourceCPU, 30)
				setResource(s.tenant("builder", 0, 2, 0), v1.ResourceCPU, 30)
			},
			pod: linkedPair("p", 3).CPU("20").Obj(), want: []string{"second"},
		},
		"nobody matters less": {
			arrange: func(s *testEnv) { s.tenant("equal", 0, 3, 4, 0, 1, 2, 3) },
			pod:     linkedPair("p", 3).Obj(), refused: noVictims,
		},
		"who matters less does not have what is missing": {
			arrange: func(s *testEnv) {
				s.tenant("high", 0, 5, 1, 0)
				s.tenant("higher", 0, 5, 1, 2)
				s.tenant("low", 0, 0, 1, 1)
				s.tenant("lower", 0, 0, 1, 3)
			},
			pod: linkedPair("p", 3).Obj(), refused: "NVLink",
		},
		"all pods of which nobody knows the GPUs go for a link": {
			arrange: func(s *testEnv) {
				s.tenant("foreign", 0, 0, 1)
				s.tenant("stranger", 0, 0, 1)
				s.tenant("known", 0, 1, 2, 0, 1)
			},
			pod: linkedPair("p", 3).Obj(), want: []string{"foreign", "stranger"},
		},
		"but only as many as are missing in number": {
			arrange: func(s *testEnv) {
				s.tenant("foreign", 0, 0, 2)
				s.tenant("stranger", 0, 1, 2)
			},
			pod: asks("p", 3, 2).Obj(), want: []string{"foreign"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newTestEnv(t, "a100-pcie-4-bridged")
			tc.arrange(s)
			s.show()
			got, _, status := s.victims(tc.pod, 0)
			if tc.refused != "" {
				if !strings.Contains(status.Message(), tc.refused) {
					t.Errorf("victims %v, status %q, want it to say %q", got, status.Message(), tc.refused)
				}
				return
			}
			if d := cmp.Diff(tc.want, got); d != "" || !status.IsSuccess() {
				t.Errorf("status %v, victims (-want +got):\n%s", status, d)
			}
		})
	}
}
