// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	schedconfigv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

const (
	profileName = "with-gangs"
	gpuResource = "nvidia.com/gpu"
	rackLabel   = "topology.kubernetes.io/rack"
)

// testEnv is a real framework with the real plugins, on nodes in racks. The test runs the cycles.
type testEnv struct {
	t        *testing.T
	fw       framework.Framework
	client   *fake.Clientset
	shared   *lifecycle.Shared
	state    *nodestate.State
	snapshot *schedcache.Snapshot
	factory  informers.SharedInformerFactory
	nodes    []*v1.Node
	placed   []*v1.Pod // in the snapshot
	awake    awake
	events   recorder
}

// recorder has the texts of events, after their reason and pod.
type recorder struct {
	mu    sync.Mutex
	notes []string
}

func (r *recorder) Eventf(on, related runtime.Object, _, reason, _, note string, args ...any) {
	text := reason + " " + nameOf(on) + ": " + fmt.Sprintf(note, args...)
	if related != nil {
		text += " (" + nameOf(related) + ")"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, text)
}

func nameOf(object runtime.Object) string {
	if o, ok := object.(metav1.Object); ok {
		return o.GetNamespace() + "/" + o.GetName()
	}
	return ""
}

// of returns the texts of events with a reason.
func (r *recorder) of(reason string) (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, note := range r.notes {
		if text, ok := strings.CutPrefix(note, reason+" "); ok {
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

// picky is another plugin. It refuses the nodes that a pod's label names.
type picky struct{}

const pickyName, refusesLabel = "Picky", "test/refuses"

func newPicky(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return picky{}, nil }

func (picky) Name() string { return pickyName }

func (picky) Filter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	if prefix := pod.Labels[refusesLabel]; prefix != "" && strings.HasPrefix(info.Node().Name, prefix) {
		return fwk.NewStatus(fwk.Unschedulable, "it is not to its liking")
	}
	return nil
}

// awake holds the pods that were activated.
type awake struct {
	mu    sync.Mutex
	pods  []*v1.Pod
	queue *internalqueue.PriorityQueue // hears of them, if there is one
}

// forward passes the pods that are activated from now on to a queue.
func (a *awake) forward(queue *internalqueue.PriorityQueue) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = queue
}

func (a *awake) Activate(logger klog.Logger, pods map[string]*v1.Pod) {
	a.mu.Lock()
	a.pods = slices.AppendSeq(a.pods, maps.Values(pods))
	queue := a.queue
	a.mu.Unlock()
	if queue != nil {
		queue.Activate(logger, pods)
	}
}

func (a *awake) has(name string) bool { return a.times(name) > 0 }

// times is the number of times that a pod was activated.
func (a *awake) times(name string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pod := range a.pods {
		if pod.Name == name {
			n++
		}
	}
	return n
}

// of is the number of times that members of a gang were activated.
func (a *awake) of(gang gangrequest.Key) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pod := range a.pods {
		if key, is := gangrequest.KeyOf(pod); is && key == gang {
			n++
		}
	}
	return n
}

// newTestEnv makes racks with these numbers of nodes of eight GPUs each.
func newTestEnv(t *testing.T, racks ...int) *testEnv {
	t.Helper()
	return newTestEnvWith(t, `{}`, racks...)
}

// newTestEnvWith is newTestEnv with arguments of GangPlacement.
func newTestEnvWith(t *testing.T, args string, racks ...int) *testEnv {
	t.Helper()
	return newTestEnvAt(t, clock.RealClock{}, args, racks...)
}

// newTestEnvAt is newTestEnvWith with a clock.
func newTestEnvAt(t *testing.T, clk clock.WithTicker, args string, racks ...int) *testEnv {
	t.Helper()
	return newTestEnvOf(t, clk, args, `{}`, racks...)
}

// newTestEnvOf is newTestEnvAt with arguments of TopologyAware, too.
func newTestEnvOf(t *testing.T, clk clock.WithTicker, gangArgs, topologyArgs string, racks ...int) *testEnv {
	t.Helper()
	r := startTestEnv(t, clk, gangArgs, topologyArgs, func(*fake.Clientset) {}, racks...)
	r.ready()
	return r
}

// startTestEnv is newTestEnvOf without waiting until everything is known. prepare is called on the API
// server before its first request.
func startTestEnv(t *testing.T, clk clock.WithTicker, gangArgs, topologyArgs string, prepare func(*fake.Clientset), racks ...int) *testEnv {
	t.Helper()
	metrics.Register()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	var objects []runtime.Object
	var nodes []*v1.Node
	var graphs []*v1alpha1.NodeGPUTopology
	for rack, n := range racks {
		for i := range n {
			node, graph, leases := nodeOf(t, fmt.Sprintf("node-%d-%d", rack, i), fmt.Sprintf("rack-%d", rack))
			nodes, graphs, objects = append(nodes, node), append(graphs, graph), append(append(objects, node), leases...)
		}
	}
	r := &testEnv{t: t, client: fake.NewClientset(objects...), snapshot: schedcache.NewSnapshot(nil, nodes), nodes: nodes}
	r.shared = lifecycle.NewShared(clk, func(_ context.Context, _ fwk.Handle, _ string, state *nodestate.State) cache.ResourceEventHandler {
		r.state = state
		return cache.ResourceEventHandlerFuncs{}
	})
	prepare(r.client)
	factory := informers.NewSharedInformerFactory(r.client, 0)
	r.factory = factory
	r.fw = r.framework(ctx, factory, gangArgs, topologyArgs)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	testkit.Watched(t, r.client.Actions, "pods")
	for _, graph := range graphs {
		if _, err := r.state.Graphs.Apply(graph); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// ready waits until graphs, Leases and racks are known.
func (e *testEnv) ready() {
	e.t.Helper()
	d := &placement.Demand{Request: &podrequest.Request{}}
	testkit.Soon(e.t, "graphs, Leases and racks are known", func() bool {
		for _, node := range e.nodes {
			if info, err := e.snapshot.Get(node.Name); err != nil || e.state.Nodes.View(d, info, e.snapshot.NodeInfos()) == nil {
				return false
			}
		}
		view := e.state.Fabric.Current()
		return e.state.Lists.Synced() && view.HasLevels() && view.Tree.Len() == len(e.nodes)
	})
}

func nodeOf(t *testing.T, name, rack string) (*v1.Node, *v1alpha1.NodeGPUTopology, []runtime.Object) {
	t.Helper()
	m, err := machine.Lookup("dgx-h100")
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.GraphFor(name)
	if err != nil {
		t.Fatal(err)
	}
	graph := v1alpha1.FromGraph(name, gpuResource, g)
	uid := types.UID(name + "-uid")
	graph.UID, graph.ResourceVersion, graph.Spec.NodeUID = types.UID(name), "1", uid
	node := schedtest.Node(name).UID(string(uid)).Label(v1.LabelHostname, name).Label(rackLabel, rack).
		GPUs(g.Len()).CPU("80").Memory("512Gi").Obj()
	var leases []runtime.Object
	for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
		leases = append(leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: prefix + name, Namespace: "nvtopo-system"},
			Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro()), LeaseDurationSeconds: ptr.To[int32](3600)},
		})
	}
	return node, graph, leases
}

func (e *testEnv) framework(ctx context.Context, factory informers.SharedInformerFactory, gangArgs, topologyArgs string) framework.Framework {
	e.t.Helper()
	registry := frameworkruntime.Registry{
		queuesort.Name: queuesort.New, defaultpreemption.Name: frameworkruntime.FactoryAdapter(feature.Features{}, defaultpreemption.New), pickyName: newPicky, noderesources.Name: frameworkruntime.FactoryAdapter(feature.Features{}, noderesources.NewFit), topology.Name: topology.New(e.shared), gang.Name: gang.New(gang.NewProcess(e.shared)),
	}
	profile := &schedconfig.KubeSchedulerProfile{SchedulerName: profileName, Plugins: &schedconfig.Plugins{}}
	profile.Plugins.QueueSort.Enabled = []schedconfig.Plugin{{Name: queuesort.Name}}
	profile.Plugins.MultiPoint.Enabled = []schedconfig.Plugin{{Name: gang.Name}, {Name: topology.Name, Weight: 25}, {Name: noderesources.Name}, {Name: pickyName}, {Name: defaultpreemption.Name}}
	for name, text := range map[string]string{gang.Name: gangArgs, topology.Name: topologyArgs, defaultpreemption.Name: `{}`, noderesources.Name: `{}`} {
		gvk := schedconfigv1.SchemeGroupVersion.WithKind(name + "Args")
		args, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), &gvk, nil)
		if err != nil {
			e.t.Fatal(err)
		}
		profile.PluginConfig = append(profile.PluginConfig, schedconfig.PluginConfig{Name: name, Args: args})
	}
	fw, err := frameworkruntime.NewFramework(ctx, registry, profile,
		frameworkruntime.WithClientSet(e.client), frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(e.snapshot), frameworkruntime.WithEventRecorder(&e.events),
		frameworkruntime.WithPodActivator(&e.awake), frameworkruntime.WithPodNominator(internalqueue.NewTestQueueWithInformerFactory(ctx, nil, factory)),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()))
	if err != nil {
		e.t.Fatal(err)
	}
	return fw
}

// gpuPod starts a pod of the profile.
func gpuPod(name string, gpus int) *schedtest.PodWrapper {
	return schedtest.Pod(name).Scheduler(profileName).CPU("2").Memory("1Gi").GPUs(gpus)
}

// member starts the member i of a gang of a size.
func member(gang string, size, i, gpus int) *schedtest.PodWrapper {
	return gpuPod(fmt.Sprintf("%s-%d", gang, i), gpus).
		Annotation(gangrequest.GangKey, gang).Annotation(gangrequest.GangSizeKey, strconv.Itoa(size))
}

// gang makes members at the API server.
func (e *testEnv) gang(name string, pods, gpus int, notes map[string]string) []*v1.Pod {
	e.t.Helper()
	out := make([]*v1.Pod, pods)
	for i := range out {
		out[i] = e.create(member(name, pods, i, gpus).Annotations(notes).Obj())
	}
	return out
}

// gangOf is gang with a priority, and changes to the pods.
func (e *testEnv) gangOf(name string, pods, gpus int, priority int32, change ...func(*v1.Pod)) []*v1.Pod {
	e.t.Helper()
	out := make([]*v1.Pod, pods)
	for i := range out {
		out[i] = member(name, pods, i, gpus).Priority(priority).Obj()
		for _, c := range change {
			c(out[i])
		}
		e.create(out[i])
	}
	return out
}

// inNamespace puts a pod into a namespace.
func inNamespace(namespace string) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Namespace = namespace }
}

// create makes a pod at the API server.
func (e *testEnv) create(pod *v1.Pod) *v1.Pod {
	e.t.Helper()
	if _, err := e.client.CoreV1().Pods(pod.Namespace).Create(e.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	return pod
}

// cycle is one scheduling cycle of a pod, up to Permit.
type cycle struct {
	state  fwk.CycleState
	node   string
	status *fwk.Status
}

func (e *testEnv) cycle(pod *v1.Pod) *cycle {
	e.t.Helper()
	ctx := e.t.Context()
	c := &cycle{state: framework.NewCycleState()}
	result, status, _ := e.fw.RunPreFilterPlugins(ctx, c.state, pod)
	if c.status = status; !status.IsSuccess() {
		return c
	}
	if result.AllNodes() || len(result.NodeNames) != 1 {
		e.t.Fatalf("pod %s: PreFilter answers %v, want one node", pod.Name, result)
	}
	for name := range result.NodeNames {
		c.node = name
	}
	info, err := e.snapshot.Get(c.node)
	if err != nil {
		e.t.Fatal(err)
	}
	if c.status = e.fw.RunFilterPlugins(ctx, c.state, pod, info); !c.status.IsSuccess() {
		return c
	}
	if c.status = e.fw.RunReservePluginsReserve(ctx, c.state, pod, c.node); !c.status.IsSuccess() {
		e.fw.RunReservePluginsUnreserve(ctx, c.state, pod, c.node)
		return c
	}
	c.status = e.fw.RunPermitPlugins(ctx, c.state, pod, c.node)
	return c
}

// place puts pods on nodes, at the API server and in the next cycle's snapshot.
func (e *testEnv) place(pods ...*v1.Pod) {
	e.t.Helper()
	e.placed = append(e.placed, pods...)
	*e.snapshot = *schedcache.NewSnapshot(e.placed, e.nodes)
}

// leave removes the pods from their nodes that the API server no longer has.
func (e *testEnv) leave() {
	e.t.Helper()
	e.placed = slices.DeleteFunc(e.placed, func(pod *v1.Pod) bool {
		_, err := e.client.CoreV1().Pods(pod.Namespace).Get(e.t.Context(), pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	*e.snapshot = *schedcache.NewSnapshot(e.placed, e.nodes)
}

// known waits until a member of a pod's gang is woken, which is when all are known.
func (e *testEnv) known(pod *v1.Pod) {
	e.t.Helper()
	key, _ := gangrequest.KeyOf(pod)
	testkit.Soon(e.t, "a member of "+key.String()+" is woken", func() bool { return e.awake.of(key) > 0 })
}

// held returns the pods for which devices are reserved, with the phase.
func (e *testEnv) held() []string {
	var out []string
	for _, l := range e.state.Allocations.Dump() {
		out = append(out, l.Pod+" "+l.Phase)
	}
	return out
}
