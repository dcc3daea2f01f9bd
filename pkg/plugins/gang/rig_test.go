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
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/internal/testrig"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nodestate"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/plugins/gang"
	"github.com/nvtopo/nvtopo/pkg/plugins/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

const (
	profileName = "with-gangs"
	gpuResource = "nvidia.com/gpu"
	rackLabel   = "topology.kubernetes.io/rack"
)

// rig is a real framework with the real plugins, on nodes in racks. The test runs the cycles.
type rig struct {
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

// awake are the pods that were activated.
type awake struct {
	mu   sync.Mutex
	pods []*v1.Pod
}

func (a *awake) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods = slices.AppendSeq(a.pods, maps.Values(pods))
}

func (a *awake) has(name string) bool { return a.times(name) > 0 }

// times is how often a pod was activated.
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

// of is how often members of a gang were activated.
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

// newRig makes racks of so many nodes of eight GPUs each.
func newRig(t *testing.T, racks ...int) *rig {
	t.Helper()
	return newRigWith(t, `{}`, racks...)
}

// newRigWith is newRig with arguments of GangPlacement.
func newRigWith(t *testing.T, args string, racks ...int) *rig {
	t.Helper()
	return newRigAt(t, clock.RealClock{}, args, racks...)
}

// newRigAt is newRigWith with a clock.
func newRigAt(t *testing.T, clk clock.WithTicker, args string, racks ...int) *rig {
	t.Helper()
	r := startRig(t, clk, args, func(*fake.Clientset) {}, racks...)
	r.ready()
	return r
}

// startRig is newRigAt that does not wait until everything is known. The API server is prepared
// before anybody asks it.
func startRig(t *testing.T, clk clock.WithTicker, args string, prepare func(*fake.Clientset), racks ...int) *rig {
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
	r := &rig{t: t, client: fake.NewClientset(objects...), shared: lifecycle.NewShared(clk), snapshot: schedcache.NewSnapshot(nil, nodes), nodes: nodes}
	prepare(r.client)
	factory := informers.NewSharedInformerFactory(r.client, 0)
	r.factory = factory
	r.fw = r.framework(ctx, factory, args)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	testrig.Watched(t, r.client.Actions, "pods")
	for _, graph := range graphs {
		if _, err := r.state.Apply(graph); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// ready waits until graphs, Leases and racks are known.
func (r *rig) ready() {
	r.t.Helper()
	d := &placement.Demand{Request: &podrequest.Request{}}
	testrig.Soon(r.t, "graphs, Leases and racks are known", func() bool {
		for _, node := range r.nodes {
			if info, err := r.snapshot.Get(node.Name); err != nil || r.state.View(d, info, r.snapshot.NodeInfos()) == nil {
				return false
			}
		}
		view := r.state.Fabric()
		return r.state.Synced() && view.HasLevels() && view.Tree.Len() == len(r.nodes)
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
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid, Labels: map[string]string{v1.LabelHostname: name, rackLabel: rack}}}
	node.Status.Allocatable = v1.ResourceList{
		gpuResource: *resource.NewQuantity(int64(g.Len()), resource.DecimalSI), v1.ResourceCPU: resource.MustParse("80"),
		v1.ResourceMemory: resource.MustParse("512Gi"), v1.ResourcePods: resource.MustParse("110"),
	}
	var leases []runtime.Object
	for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
		leases = append(leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: prefix + name, Namespace: "nvtopo-system"},
			Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro()), LeaseDurationSeconds: ptr.To[int32](3600)},
		})
	}
	return node, graph, leases
}

func (r *rig) framework(ctx context.Context, factory informers.SharedInformerFactory, gangArgs string) framework.Framework {
	r.t.Helper()
	keep := func(ctx context.Context, obj runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		p, err := topology.New(r.shared)(ctx, obj, h)
		if s, ok := p.(interface{ State() *nodestate.State }); ok && err == nil {
			r.state = s.State()
		}
		return p, err
	}
	registry := frameworkruntime.Registry{
		queuesort.Name: queuesort.New, defaultpreemption.Name: frameworkruntime.FactoryAdapter(feature.Features{}, defaultpreemption.New), pickyName: newPicky, topology.Name: keep, gang.Name: gang.New(gang.NewProcess(r.shared)),
	}
	profile := &schedconfig.KubeSchedulerProfile{SchedulerName: profileName, Plugins: &schedconfig.Plugins{}}
	profile.Plugins.QueueSort.Enabled = []schedconfig.Plugin{{Name: queuesort.Name}}
	profile.Plugins.MultiPoint.Enabled = []schedconfig.Plugin{{Name: gang.Name}, {Name: topology.Name, Weight: 25}, {Name: pickyName}, {Name: defaultpreemption.Name}}
	for name, text := range map[string]string{gang.Name: gangArgs, topology.Name: `{}`, defaultpreemption.Name: `{}`} {
		gvk := schedconfigv1.SchemeGroupVersion.WithKind(name + "Args")
		args, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), &gvk, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		profile.PluginConfig = append(profile.PluginConfig, schedconfig.PluginConfig{Name: name, Args: args})
	}
	fw, err := frameworkruntime.NewFramework(ctx, registry, profile,
		frameworkruntime.WithClientSet(r.client), frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSnapshotSharedLister(r.snapshot), frameworkruntime.WithEventRecorder(&events.FakeRecorder{}),
		frameworkruntime.WithPodActivator(&r.awake), frameworkruntime.WithPodNominator(internalqueue.NewTestQueue(ctx, nil)),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()))
	if err != nil {
		r.t.Fatal(err)
	}
	return fw
}

// gang makes members that the API server has, and waits until the scheduler knows them.
func (r *rig) gang(name string, pods, gpus int, notes map[string]string) []*v1.Pod {
	r.t.Helper()
	out := make([]*v1.Pod, pods)
	for i := range out {
		out[i] = r.pod(name, pods, i, gpus, notes)
	}
	return out
}

// gangOf is gang with a priority, and changes to the pods.
func (r *rig) gangOf(name string, pods, gpus int, priority int32, change ...func(*v1.Pod)) []*v1.Pod {
	r.t.Helper()
	out := make([]*v1.Pod, pods)
	for i := range out {
		out[i] = r.pod(name, pods, i, gpus, nil, append(change, func(pod *v1.Pod) { pod.Spec.Priority = &priority })...)
	}
	return out
}

func (r *rig) pod(name string, size, i, gpus int, notes map[string]string, change ...func(*v1.Pod)) *v1.Pod {
	r.t.Helper()
	pod := podOf(name, size, i, gpus, notes)
	for _, c := range change {
		c(pod)
	}
	r.create(pod)
	return pod
}

func (r *rig) create(pod *v1.Pod) {
	r.t.Helper()
	if _, err := r.client.CoreV1().Pods(pod.Namespace).Create(r.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// podOf is a member of a gang that nobody knows yet.
func podOf(name string, size, i, gpus int, notes map[string]string) *v1.Pod {
	limits := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"), gpuResource: *resource.NewQuantity(int64(gpus), resource.DecimalSI),
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", name, i), Namespace: "default", UID: types.UID(fmt.Sprintf("%s-%d", name, i)),
			Annotations: map[string]string{gangrequest.GangKey: name, gangrequest.GangSizeKey: strconv.Itoa(size)},
		},
		Spec: v1.PodSpec{SchedulerName: profileName, Containers: []v1.Container{{
			Name: "main", Image: "x", Resources: v1.ResourceRequirements{Limits: limits, Requests: limits},
		}}},
	}
	maps.Copy(pod.Annotations, notes)
	return pod
}

// cycle is one scheduling cycle of a pod, up to Permit.
type cycle struct {
	state  fwk.CycleState
	node   string
	status *fwk.Status
}

func (r *rig) cycle(pod *v1.Pod) *cycle {
	r.t.Helper()
	ctx := r.t.Context()
	c := &cycle{state: framework.NewCycleState()}
	result, status, _ := r.fw.RunPreFilterPlugins(ctx, c.state, pod)
	if c.status = status; !status.IsSuccess() {
		return c
	}
	if result.AllNodes() || len(result.NodeNames) != 1 {
		r.t.Fatalf("pod %s: PreFilter answers %v, want one node", pod.Name, result)
	}
	for name := range result.NodeNames {
		c.node = name
	}
	info, err := r.snapshot.Get(c.node)
	if err != nil {
		r.t.Fatal(err)
	}
	if c.status = r.fw.RunFilterPlugins(ctx, c.state, pod, info); !c.status.IsSuccess() {
		return c
	}
	if c.status = r.fw.RunReservePluginsReserve(ctx, c.state, pod, c.node); !c.status.IsSuccess() {
		r.fw.RunReservePluginsUnreserve(ctx, c.state, pod, c.node)
		return c
	}
	c.status = r.fw.RunPermitPlugins(ctx, c.state, pod, c.node)
	return c
}

// place has pods be on nodes, as the API server and the next cycle's snapshot show it.
func (r *rig) place(pods ...*v1.Pod) {
	r.t.Helper()
	r.placed = append(r.placed, pods...)
	*r.snapshot = *schedcache.NewSnapshot(r.placed, r.nodes)
}

// leave takes the pods off their nodes that the API server no longer has.
func (r *rig) leave() {
	r.t.Helper()
	r.placed = slices.DeleteFunc(r.placed, func(pod *v1.Pod) bool {
		_, err := r.client.CoreV1().Pods(pod.Namespace).Get(r.t.Context(), pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	*r.snapshot = *schedcache.NewSnapshot(r.placed, r.nodes)
}

// single makes a pod of no gang on a node.
func (r *rig) single(name, node string, gpus int, priority int32, change ...func(*v1.Pod)) *v1.Pod {
	r.t.Helper()
	alone := func(pod *v1.Pod) {
		pod.Name, pod.UID, pod.Spec.NodeName, pod.Spec.Priority = name, types.UID(name), node, &priority
		delete(pod.Annotations, gangrequest.GangKey)
		delete(pod.Annotations, gangrequest.GangSizeKey)
	}
	pod := r.pod(name, 1, 0, gpus, nil, append([]func(*v1.Pod){alone}, change...)...)
	r.place(pod)
	return pod
}

// known waits until a member of a pod's gang is woken, which is when all are known.
func (r *rig) known(pod *v1.Pod) {
	r.t.Helper()
	key, _ := gangrequest.KeyOf(pod)
	testrig.Soon(r.t, "a member of "+key.String()+" is woken", func() bool { return r.awake.of(key) > 0 })
}

// held are the pods that something is reserved for, with the phase.
func (r *rig) held() []string {
	var out []string
	for _, l := range r.state.Dump() {
		out = append(out, l.Pod+" "+l.Phase)
	}
	return out
}
