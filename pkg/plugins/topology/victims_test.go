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

	"github.com/nvtopo/nvtopo/internal/testrig"
	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/eviction"
	"github.com/nvtopo/nvtopo/pkg/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/plugins/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

const gpus = v1.ResourceName(v1alpha1.DefaultResource)

// stage is a real framework, with kube-scheduler's filters for resources and ports
// beside the plugin, over one snapshot.
type stage struct {
	tb       testing.TB
	ctx      context.Context
	fw       framework.Framework
	plugin   *Plugin
	factory  informers.SharedInformerFactory
	client   *fake.Clientset
	nodes    []*v1.Node
	pods     []*v1.Pod
	snapshot *schedcache.Snapshot
	queue    *internalqueue.PriorityQueue
	clock    testrig.Ahead
}

// lister gives the framework whatever snapshot is current.
type lister struct{ s *stage }

func (l lister) NodeInfos() fwk.NodeInfoLister       { return l.s.snapshot.NodeInfos() }
func (l lister) StorageInfos() fwk.StorageInfoLister { return l.s.snapshot.StorageInfos() }

// newStage makes nodes, each with a machine of the catalogue.
func newStage(tb testing.TB, machines ...string) *stage {
	tb.Helper()
	return newStageWith(tb, []string{defaultpreemption.Name}, machines...)
}

// newStageWith is newStage with other plugins beside ours.
func newStageWith(tb testing.TB, others []string, machines ...string) *stage {
	tb.Helper()
	metrics.Register()
	_, ctx := ktesting.NewTestContext(tb)
	ctx = klog.NewContext(ctx, klog.Background().V(9))
	ctx, cancel := context.WithCancel(ctx)
	tb.Cleanup(cancel)
	s := &stage{tb: tb, ctx: ctx, snapshot: schedcache.NewEmptySnapshot()}
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
	testrig.Watched(tb, s.client.Actions, "pods")
	for _, obj := range graphs {
		if _, err := s.plugin.State().Apply(obj); err != nil {
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
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: obj.Spec.NodeUID}}
	node.Status.Allocatable = v1.ResourceList{
		gpus: *resource.NewQuantity(int64(g.Len()), resource.DecimalSI), "cpu": resource.MustParse("64"),
		"memory": resource.MustParse("1Ti"), "pods": resource.MustParse("110"),
	}
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

func (s *stage) build(others []string) {
	s.tb.Helper()
	shared := lifecycle.NewShared(&s.clock)
	registry := frameworkruntime.Registry{
		queuesort.Name: queuesort.New, defaultbinder.Name: defaultbinder.New,
		nodeports.Name:         frameworkruntime.FactoryAdapter(feature.Features{}, nodeports.New),
		noderesources.Name:     frameworkruntime.FactoryAdapter(feature.Features{}, noderesources.NewFit),
		defaultpreemption.Name: frameworkruntime.FactoryAdapter(feature.Features{EnableAsyncPreemption: true}, newDefaultPreemption),
		Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			p, err := New(shared)(ctx, args, h)
			s.plugin, _ = p.(*Plugin)
			return p, err
		},
	}
	profile := &schedconfig.KubeSchedulerProfile{SchedulerName: "ours", Plugins: &schedconfig.Plugins{}}
	for _, name := range append([]string{queuesort.Name, defaultbinder.Name, Name, noderesources.Name, nodeports.Name}, others...) {
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, schedconfig.Plugin{Name: name, Weight: 1})
	}
	profile.PluginConfig = []schedconfig.PluginConfig{
		{Name: Name, Args: decoded(s.tb, Name+"Args", `{"narrowTo":0}`)},
		{Name: noderesources.Name, Args: decoded(s.tb, "NodeResourcesFitArgs", `{}`)},
	}
	for _, name := range others {
		profile.PluginConfig = append(profile.PluginConfig, schedconfig.PluginConfig{Name: name, Args: decoded(s.tb, name+"Args", `{}`)})
	}
	fw, err := frameworkruntime.NewFramework(s.ctx, registry, profile,
		frameworkruntime.WithClientSet(s.client), frameworkruntime.WithInformerFactory(s.factory),
		frameworkruntime.WithSnapshotSharedLister(lister{s}), frameworkruntime.WithEventRecorder(&events.FakeRecorder{}),
		frameworkruntime.WithPodActivator(s.queue), frameworkruntime.WithPodNominator(s.queue),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()))
	if err != nil {
		s.tb.Fatal(err)
	}
	s.fw = fw
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
func (s *stage) settle() {
	s.tb.Helper()
	testrig.Soon(s.tb, "the Leases are known", s.plugin.State().Synced)
}

// show makes the snapshot that of the pods there are.
func (s *stage) show() { s.snapshot = schedcache.NewSnapshot(s.pods, s.nodes) }

// tenant puts a pod on a node; with positions it has those GPUs, without it has as
// many as nobody knows.
func (s *stage) tenant(name string, node int, priority int32, count int, positions ...int) *v1.Pod {
	s.tb.Helper()
	pod := asks(name, priority, count)
	pod.Spec.NodeName = s.nodes[node].Name
	if len(positions) > 0 {
		a := allocation.Allocation{Version: allocation.Version, Node: pod.Spec.NodeName, PodUID: pod.UID, Assumed: time.Now()}
		g := s.plugin.State().Node(pod.Spec.NodeName).Accel(v1alpha1.DefaultResource).Graph
		c := allocation.Container{Name: "main", Resource: v1alpha1.DefaultResource}
		for _, p := range positions {
			c.GPUs = append(c.GPUs, g.GPUs[p].UUID)
		}
		a.Containers = append(a.Containers, c)
		text, err := a.Encode()
		if err != nil {
			s.tb.Fatal(err)
		}
		pod.Annotations = map[string]string{allocation.Key: text}
	}
	s.pods = append(s.pods, pod)
	return pod
}

// asks is a waiting pod.
func asks(name string, priority int32, count int) *v1.Pod {
	list := v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
	if count > 0 {
		list[gpus] = *resource.NewQuantity(int64(count), resource.DecimalSI)
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Labels: map[string]string{"name": name}},
		Spec: v1.PodSpec{
			Priority: &priority, SchedulerName: "ours",
			Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: list, Requests: list}}},
		},
	}
}

// cycle runs a pod's PreFilter and returns the state.
func (s *stage) cycle(pod *v1.Pod) fwk.CycleState {
	s.tb.Helper()
	state := framework.NewCycleState()
	if _, status, _ := s.fw.RunPreFilterPlugins(s.ctx, state, pod); !status.IsSuccess() {
		s.tb.Fatalf("PreFilter: %v", status)
	}
	return state
}

// victims are the names of the pods that would have to go from a node, sorted, the
// budgets violated, and the cost. If those that are going anyway will do, it is they, and
// cost nothing.
func (s *stage) victims(pod *v1.Pod, node int, pdbs ...*policyv1.PodDisruptionBudget) ([]string, eviction.Cost, *fwk.Status) {
	s.tb.Helper()
	state := s.cycle(pod)
	info, err := s.snapshot.NodeInfos().Get(s.nodes[node].Name)
	if err != nil {
		s.tb.Fatal(err)
	}
	p := s.plugin.preemptor
	if w := p.waitOn(s.ctx, state, lifecycle.ReadCycle(state), pod, info); w != nil && w.within <= p.patience {
		return namesOf(w.awaited), eviction.CostOf(nil, nil, w.quality), nil
	}
	a := &attempt{plans: map[string]plan{}}
	a.steps.Store(maxSteps)
	ctx := context.WithValue(s.ctx, attemptKey{}, a)
	pods, violations, status := s.plugin.preemptor.SelectVictimsOnNode(ctx, state, pod, info.Snapshot(), pdbs)
	if !status.IsSuccess() {
		return nil, eviction.Cost{}, status
	}
	b := eviction.NewBudgets(pdbs)
	c := eviction.CostOf(s.plugin.preemptor.podsOf(pods, b), b.Allowed, a.plan(info.Node().Name).quality)
	if c.Violations != violations {
		s.tb.Errorf("%d violations reported, %d counted", violations, c.Violations)
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
func (s *stage) brute(pod *v1.Pod, node int, pdbs ...*policyv1.PodDisruptionBudget) (best eviction.Cost, names []string, found bool) {
	s.tb.Helper()
	state := s.cycle(pod)
	info, err := s.snapshot.NodeInfos().Get(s.nodes[node].Name)
	if err != nil {
		s.tb.Fatal(err)
	}
	var could []*v1.Pod
	for _, p := range s.pods {
		if p.Spec.NodeName == s.nodes[node].Name && *p.Spec.Priority < *pod.Spec.Priority {
			could = append(could, p)
		}
	}
	c := lifecycle.ReadCycle(state)
	b := eviction.NewBudgets(pdbs)
	slices.SortStableFunc(could, func(a, b *v1.Pod) int {
		if s.plugin.preemptor.MoreImportantPod(a, b) {
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
					s.tb.Fatal(err)
				}
			}
		}
		if !s.fw.RunFilterPluginsWithNominatedPods(s.ctx, state, pod, copied).IsSuccess() {
			continue
		}
		_, q := s.plugin.State().Plan(&c.Demand, copied, s.snapshot.NodeInfos())
		cost := eviction.CostOf(s.plugin.preemptor.podsOf(gone, b), b.Allowed, q)
		if !found || cost.Compare(&best) < 0 {
			best, names, found = cost, namesOf(gone), true
		}
	}
	return best, names, found
}

// TestVictimsAreTheCheapest compares the choice with all subsets of pods, on random
// nodes with random pods, with the framework's own filters as judge of both.
func TestVictimsAreTheCheapest(t *testing.T) {
	machines := []string{"dgx1-v100", "a100-pcie-4-bridged", "v100-pcie-8", "l40s-8"}
	s := newStage(t, machines...)
	possible, dearer := 0, 0
	const seeds = 400
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 11))
		node := r.IntN(len(machines))
		s.pods = nil
		crowd(s, r, node)
		s.show()
		pod := wants(r, len(s.plugin.State().Node(s.nodes[node].Name).Accel(v1alpha1.DefaultResource).Graph.GPUs))
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

// TestOurChoiceIsNeverDearerThanTheDefaults makes CPUs short as well, where the choice
// is not exact: the pod fits afterwards, no victim could stay, and by our order it
// costs no more than what the default preemption would do.
func TestOurChoiceIsNeverDearerThanTheDefaults(t *testing.T) {
	machines := []string{"dgx1-v100", "a100-pcie-4-bridged"}
	s := newStage(t, machines...)
	possible, cheaper := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 12))
		node := r.IntN(len(machines))
		s.pods = nil
		crowd(s, r, node)
		for i := range 3 {
			s.tenant(fmt.Sprintf("plain-%d", i), node, int32(r.IntN(4)), 0).Labels["team"] = string(rune('a' + r.IntN(3)))
		}
		for _, pod := range s.pods {
			pod.Spec.Containers[0].Resources.Requests["cpu"] = *resource.NewQuantity(int64(r.IntN(12)), resource.DecimalSI)
		}
		s.show()
		pod := wants(r, s.plugin.State().Node(s.nodes[node].Name).Accel(v1alpha1.DefaultResource).Graph.Len())
		pod.Spec.Containers[0].Resources.Requests["cpu"] = *resource.NewQuantity(int64(20+r.IntN(40)), resource.DecimalSI)
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

// TestSearchesOn16GPUsStayWithinTheirSteps counts the questions, on nodes with up to 16
// holders, that one node is allowed to ask.
func TestSearchesOn16GPUsStayWithinTheirSteps(t *testing.T) {
	s := newStage(t, "dgx2")
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
		list := pod.Spec.Containers[0].Resources.Requests
		list[gpus] = *resource.NewQuantity(int64(1+r.IntN(16)), resource.DecimalSI)
		a := &attempt{plans: map[string]plan{}}
		a.steps.Store(maxSteps)
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

// minimal checks that the pod fits without the victims, and with any of them does not.
func (s *stage) minimal(pod *v1.Pod, state fwk.CycleState, info fwk.NodeInfo, victims []string, seed uint64) {
	s.tb.Helper()
	for _, spared := range append([]string{""}, victims...) {
		copied := info.Snapshot()
		for _, p := range s.pods {
			if slices.Contains(victims, p.Name) && p.Name != spared {
				if err := copied.RemovePod(klog.Background(), p); err != nil {
					s.tb.Fatal(err)
				}
			}
		}
		if fits := s.fw.RunFilterPluginsWithNominatedPods(s.ctx, state, pod, copied).IsSuccess(); fits != (spared == "") {
			s.tb.Errorf("seed %d: victims %v, with %q spared the pod fits: %t", seed, victims, spared, fits)
		}
	}
}

// defaults is what the default preemption's choice costs, but for what it frees.
func (s *stage) defaults(pod *v1.Pod, node int, pdbs ...*policyv1.PodDisruptionBudget) eviction.Cost {
	s.tb.Helper()
	info, err := s.snapshot.NodeInfos().Get(s.nodes[node].Name)
	if err != nil {
		s.tb.Fatal(err)
	}
	pods, _, status := s.plugin.preemptor.DefaultPreemption.SelectVictimsOnNode(s.ctx, s.cycle(pod), pod, info.Snapshot(), pdbs)
	if !status.IsSuccess() {
		s.tb.Fatalf("the default preemption: %v", status)
	}
	b := eviction.NewBudgets(pdbs)
	return eviction.CostOf(s.plugin.preemptor.podsOf(pods, b), b.Allowed, eviction.Quality{})
}

// crowd fills a node with up to nine pods of one to three GPUs.
func crowd(s *stage, r *rand.Rand, node int) {
	g := s.plugin.State().Node(s.nodes[node].Name).Accel(v1alpha1.DefaultResource).Graph
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
			pod = s.tenant(name, node, int32(r.IntN(4)), n) // nobody knows which
		} else {
			pod = s.tenant(name, node, int32(r.IntN(4)), n, mine...)
		}
		pod.Labels["team"] = string(rune('a' + r.IntN(3)))
		pod.Status.StartTime = &metav1.Time{Time: time.Unix(1_700_000_000+int64(r.IntN(4)), 0)}
	}
}

func wants(r *rand.Rand, size int) *v1.Pod {
	pod := asks("wants", 3, 1+r.IntN(min(5, size)))
	pod.Annotations = map[string]string{}
	switch r.IntN(5) {
	case 0:
		pod.Annotations[podrequest.MinLinkKey] = "NVLINK"
	case 1:
		pod.Annotations[podrequest.TopologyPolicyKey] = "single-numa-node"
	case 2:
		pod.Annotations[podrequest.TopologyPolicyKey] = "restricted"
	case 3:
		pod.Annotations[podrequest.MinBandwidthKey] = "24"
	}
	return pod
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
	cpu := func(pod *v1.Pod, n string) *v1.Pod {
		pod.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(n)
		return pod
	}
	linked := func(pod *v1.Pod) *v1.Pod {
		pod.Annotations = map[string]string{podrequest.MinLinkKey: "NVLINK"}
		return pod
	}
	// a100-pcie-4-bridged: bridges join GPUs 0 and 1, and 2 and 3.
	tests := map[string]struct {
		arrange func(s *stage)
		pod     *v1.Pod
		want    []string
		refused string
	}{
		"a pod that is going costs nothing": {
			arrange: func(s *stage) {
				going(s.tenant("going", 0, 2, 2, 0, 1), 20*time.Second)
				s.tenant("low", 0, 0, 2, 2, 3)
			},
			pod: linked(asks("p", 3, 2)), want: []string{"going"},
		},
		"even one that matters more": {
			arrange: func(s *stage) {
				going(s.tenant("going", 0, 9, 2, 0, 1), 20*time.Second)
				s.tenant("low", 0, 0, 2, 2, 3)
			},
			pod: linked(asks("p", 3, 2)), want: []string{"going"},
		},
		"one that should have gone long ago is no help": {
			arrange: func(s *stage) {
				going(s.tenant("stuck", 0, 0, 2, 0, 1), -time.Hour)
				s.tenant("other", 0, 1, 2, 2, 3)
			},
			pod: linked(asks("p", 3, 2)), want: []string{"other"},
		},
		"CPUs are short as well: a pod without GPUs goes rather than a second one with": {
			arrange: func(s *stage) {
				cpu(s.tenant("holder", 0, 1, 2, 0, 1), "4")
				cpu(s.tenant("second", 0, 2, 2, 2, 3), "30")
				cpu(s.tenant("builder", 0, 1, 0), "30")
			},
			pod: cpu(linked(asks("p", 3, 2)), "20"), want: []string{"builder", "holder"},
		},
		"CPUs alone are short, and the GPUs free": {
			arrange: func(s *stage) {
				cpu(s.tenant("holder", 0, 2, 2, 0, 1), "30")
				cpu(s.tenant("builder", 0, 1, 0), "30")
			},
			pod: cpu(linked(asks("p", 3, 2)), "20"), want: []string{"builder"},
		},
		"a holder has the CPUs, and matters less than the pods without GPUs": {
			arrange: func(s *stage) {
				cpu(s.tenant("holder", 0, 1, 2, 0, 1), "4")
				cpu(s.tenant("second", 0, 1, 2, 2, 3), "30")
				cpu(s.tenant("builder", 0, 2, 0), "30")
			},
			pod: cpu(linked(asks("p", 3, 2)), "20"), want: []string{"second"},
		},
		"nobody matters less": {
			arrange: func(s *stage) { s.tenant("equal", 0, 3, 4, 0, 1, 2, 3) },
			pod:     linked(asks("p", 3, 2)), refused: noVictims,
		},
		"who matters less does not have what is missing": {
			arrange: func(s *stage) {
				s.tenant("high", 0, 5, 1, 0)
				s.tenant("higher", 0, 5, 1, 2)
				s.tenant("low", 0, 0, 1, 1)
				s.tenant("lower", 0, 0, 1, 3)
			},
			pod: linked(asks("p", 3, 2)), refused: "NVLink",
		},
		"all pods of which nobody knows the GPUs go for a link": {
			arrange: func(s *stage) {
				s.tenant("foreign", 0, 0, 1)
				s.tenant("stranger", 0, 0, 1)
				s.tenant("known", 0, 1, 2, 0, 1)
			},
			pod: linked(asks("p", 3, 2)), want: []string{"foreign", "stranger"},
		},
		"but only as many as are missing in number": {
			arrange: func(s *stage) {
				s.tenant("foreign", 0, 0, 2)
				s.tenant("stranger", 0, 1, 2)
			},
			pod: asks("p", 3, 2), want: []string{"foreign"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, "a100-pcie-4-bridged")
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
