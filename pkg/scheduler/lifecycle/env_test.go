// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
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
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

const gpuResource = "nvidia.com/gpu"

// refusal is an answer that proves that the API server did not bind.
var refusal error = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", nil)

// testEnv is a real framework over one DGX-1V node and a fake API server.
type testEnv struct {
	fw        framework.Framework
	client    *fake.Clientset
	shared    *lifecycle.Shared
	factory   informers.SharedInformerFactory
	snapshot  *schedcache.Snapshot
	node      *v1.Node
	logger    klog.Logger
	instances map[string]fwk.Plugin
	made      *nodestate.State
	profiles  int
	activated activations
}

// setting is the configuration of the plugins; all but write may be missing.
type setting struct {
	write          string
	requestTimeout string
	clock          clock.WithTicker
	through        func(kubernetes.Interface) kubernetes.Interface // wraps the plugins' API client
	others         []fwk.Plugin                                    // further plugins of the profile, after these
	gangs          lifecycle.StartGangs                            // of a plugin that places gangs, nil if there is none
	events         chan string                                     // gets the events, nil for none
	disable        func(*schedconfig.Plugins)                      // takes plugins out of extension points
}

func newTestEnv(tb testing.TB, write string, plugins ...string) *testEnv {
	tb.Helper()
	return newTestEnvOf(tb, setting{write: write}, plugins...)
}

func newTestEnvOf(tb testing.TB, set setting, plugins ...string) *testEnv {
	tb.Helper()
	metrics.Register()
	logger, ctx := ktesting.NewTestContext(tb)
	ctx, cancel := context.WithCancel(ctx)
	tb.Cleanup(cancel)
	obj, node := topologyOf(tb)
	if set.clock == nil {
		set.clock = clock.RealClock{}
	}
	b := &testEnv{
		client: fake.NewClientset(leases("n")...),
		node:   node, logger: logger, snapshot: schedcache.NewSnapshot(nil, []*v1.Node{node}), instances: map[string]fwk.Plugin{},
	}
	b.shared = lifecycle.NewShared(set.clock, b.attach)
	b.factory = informers.NewSharedInformerFactory(b.client, 0)
	if set.gangs != nil {
		if err := b.shared.ServeGangs("profile-1", set.gangs); err != nil {
			tb.Fatal(err)
		}
	}
	b.fw = b.build(ctx, tb, set, plugins)
	b.factory.Start(ctx.Done())
	b.factory.WaitForCacheSync(ctx.Done())
	testkit.Watched(tb, b.client.Actions, "pods")
	if _, err := b.state(tb).Graphs.Apply(obj); err != nil {
		tb.Fatal(err)
	}
	b.waitFresh(tb)
	return b
}

// another returns a second profile of the same process.
func (e *testEnv) another(tb testing.TB, write string, plugins ...string) framework.Framework {
	tb.Helper()
	_, ctx := ktesting.NewTestContext(tb)
	return e.build(ctx, tb, setting{write: write}, plugins)
}

func (e *testEnv) build(ctx context.Context, tb testing.TB, set setting, plugins []string) framework.Framework {
	tb.Helper()
	var client kubernetes.Interface = e.client
	if set.through != nil {
		client = set.through(client)
	}
	e.profiles++
	registry := frameworkruntime.Registry{queuesort.Name: queuesort.New}
	record := func(name string, f frameworkruntime.PluginFactory) frameworkruntime.PluginFactory {
		return func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			p, err := f(ctx, args, h)
			if _, ok := e.instances[name]; !ok {
				e.instances[name] = p
			}
			return p, err
		}
	}
	registry[topology.Name] = record(topology.Name, topology.New(e.shared))
	registry[numa.Name] = record(numa.Name, numa.New(e.shared))
	profile := &schedconfig.KubeSchedulerProfile{SchedulerName: fmt.Sprintf("profile-%d", e.profiles), Plugins: &schedconfig.Plugins{}}
	profile.Plugins.QueueSort.Enabled = []schedconfig.Plugin{{Name: queuesort.Name}}
	for _, name := range plugins {
		weight := int32(1)
		if name == topology.Name {
			weight = 25 // as shipped
		}
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, schedconfig.Plugin{Name: name, Weight: weight})
		profile.PluginConfig = append(profile.PluginConfig, schedconfig.PluginConfig{Name: name, Args: argsOf(tb, name, set)})
	}
	if set.disable != nil {
		set.disable(profile.Plugins)
	}
	for _, p := range set.others {
		registry[p.Name()] = func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return p, nil }
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, schedconfig.Plugin{Name: p.Name()})
	}
	fw, err := frameworkruntime.NewFramework(ctx, registry, profile,
		frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(e.factory),
		frameworkruntime.WithSnapshotSharedLister(e.snapshot), frameworkruntime.WithEventRecorder(&events.FakeRecorder{Events: set.events}),
		frameworkruntime.WithPodActivator(&e.activated), frameworkruntime.WithPodNominator(internalqueue.NewTestQueue(ctx, nil)),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()))
	if err != nil {
		tb.Fatal(err)
	}
	return fw
}

// activations takes the place of the scheduling queue for woken pods, and lists them.
type activations struct {
	mu   sync.Mutex
	pods []string
}

func (a *activations) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pod := range pods {
		a.pods = append(a.pods, pod.Name)
	}
}

// take returns the names of the pods woken since the last call.
func (a *activations) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	pods := a.pods
	a.pods = nil
	return pods
}

// argsOf decodes a plugin's arguments as the scheduler would.
func argsOf(tb testing.TB, name string, set setting) runtime.Object {
	tb.Helper()
	gvk := schedconfigv1.SchemeGroupVersion.WithKind(name + "Args")
	text := `{"annotationWrite":"` + set.write + `"`
	if set.requestTimeout != "" {
		text += `,"requestTimeout":"` + set.requestTimeout + `"`
	}
	text += "}"
	obj, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), &gvk, nil)
	if err != nil {
		tb.Fatal(err)
	}
	switch obj.(type) {
	case *config.TopologyAwareArgs, *config.NUMAAffinityArgs:
		return obj
	}
	tb.Fatalf("args of %s decode to %T", name, obj)
	return nil
}

func (e *testEnv) state(tb testing.TB) *nodestate.State {
	tb.Helper()
	if e.made == nil {
		tb.Fatal("no plugin was made")
	}
	return e.made
}

// attach keeps the State.
func (e *testEnv) attach(_ context.Context, _ fwk.Handle, _ string, state *nodestate.State) cache.ResourceEventHandler {
	e.made = state
	return cache.ResourceEventHandlerFuncs{}
}

// waitFresh waits until the informer has the node's Leases.
func (e *testEnv) waitFresh(tb testing.TB) {
	tb.Helper()
	d := &placement.Demand{Request: &podrequest.Request{}}
	testkit.Soon(tb, "the node's Leases are known", func() bool {
		return e.state(tb).Lists.Synced() && e.state(tb).Nodes.View(d, e.info(tb), e.snapshot.NodeInfos()) != nil
	})
}

func (e *testEnv) info(tb testing.TB) fwk.NodeInfo {
	tb.Helper()
	info, err := e.snapshot.Get(e.node.Name)
	if err != nil {
		tb.Fatal(err)
	}
	return info
}

// pod makes a pod in the API server.
func (e *testEnv) pod(name string, gpus int, annotations map[string]string) *v1.Pod {
	pod := schedtest.Pod(name).CPU("2").Memory("1Gi").GPUs(gpus).Annotations(annotations).Obj()
	// A fake tracker that has the pod already keeps the first; names are unique here.
	_ = e.client.Tracker().Add(pod)
	return pod
}

// place takes a pod through a successful cycle up to PreBind.
func (e *testEnv) place(tb testing.TB, pod *v1.Pod) {
	tb.Helper()
	ctx, state := tb.Context(), framework.NewCycleState()
	node := e.node.Name
	_, status, _ := e.fw.RunPreFilterPlugins(ctx, state, pod)
	if status.IsSuccess() {
		status = e.fw.RunFilterPlugins(ctx, state, pod, e.info(tb))
	}
	if status.IsSuccess() {
		status = e.fw.RunReservePluginsReserve(ctx, state, pod, node)
	}
	if status.IsSuccess() {
		status = e.fw.RunPreBindPlugins(ctx, state, pod, node)
	}
	if !status.IsSuccess() {
		tb.Fatalf("placing pod %s: %v", pod.Name, status)
	}
}

func topologyOf(tb testing.TB) (*v1alpha1.NodeGPUTopology, *v1.Node) {
	tb.Helper()
	m, err := machine.Lookup("dgx1-v100")
	if err != nil {
		tb.Fatal(err)
	}
	g, err := m.GraphFor("n")
	if err != nil {
		tb.Fatal(err)
	}
	obj := v1alpha1.FromGraph("n", gpuResource, g)
	obj.UID, obj.ResourceVersion, obj.Spec.NodeUID = "t", "1", "n-uid"
	return obj, schedtest.Node("n").UID("n-uid").GPUs(g.Len()).CPU("80").Memory("512Gi").Obj()
}

func leases(node string) []runtime.Object {
	var out []runtime.Object
	for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
		out = append(out, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: prefix + node, Namespace: "nvtopo-system"},
			Spec: coordinationv1.LeaseSpec{
				RenewTime: new(metav1.NowMicro()), LeaseDurationSeconds: ptr.To[int32](3600),
			},
		})
	}
	return out
}

func BenchmarkFilterAndScore(b *testing.B) {
	x := newTestEnv(b, "PreBind", topology.Name, numa.Name)
	pod := x.pod("p", 2, nil)
	ctx, state := context.Background(), framework.NewCycleState()
	if _, status, _ := x.fw.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		b.Fatal(status)
	}
	info := x.info(b)
	if status := x.fw.RunPreScorePlugins(ctx, state, pod, []fwk.NodeInfo{info}); !status.IsSuccess() {
		b.Fatal(status)
	}
	for _, name := range []string{topology.Name, numa.Name} {
		p := x.instances[name]
		b.Run(name+"/Filter", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if s := p.(fwk.FilterPlugin).Filter(ctx, state, pod, info); !s.IsSuccess() {
					b.Fatal(s)
				}
			}
		})
		b.Run(name+"/Score", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, s := p.(fwk.ScorePlugin).Score(ctx, state, pod, info); !s.IsSuccess() {
					b.Fatal(s)
				}
			}
		})
	}
	reject := x.pod("too-many", 8, map[string]string{podrequest.MinLinkKey: "NVLINK"})
	rejected := framework.NewCycleState()
	if _, status, _ := x.fw.RunPreFilterPlugins(ctx, rejected, reject); !status.IsSuccess() {
		b.Fatal(status)
	}
	b.Run("TopologyAware/Filter rejects", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if s := x.instances[topology.Name].(fwk.FilterPlugin).Filter(ctx, rejected, reject, info); s.IsSuccess() {
				b.Fatal("not rejected")
			}
		}
	})
}
