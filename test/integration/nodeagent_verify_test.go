// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/verify"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// recordedPod is what kubelet's file says of a pod: container -> devices.
type recordedPod map[string][]string

// nodeUnderTest is a node whose kubelet is a file that the test writes, and whose
// agent is a verifier with informers of its own.
type nodeUnderTest struct {
	*testEnv
	name     string
	graph    *nvtopo.Graph
	path     string
	topology cache.SharedIndexInformer

	mu      sync.Mutex
	records map[types.UID]recordedPod
	known   map[string]bool // pod -> kubelet knows it; true when absent
	cpus    map[types.UID]string

	stop context.CancelFunc
	done chan struct{}
}

// Name is that nobody knows.
func (*nodeUnderTest) Name(context.Context, string, types.UID) (namespace, name string, ok bool) {
	return "", "", false
}

func (n *nodeUnderTest) Active(_ context.Context, _ types.UID, namespace, name string) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	known, ok := n.known[namespace+"/"+name]
	return known || !ok, nil
}

func (n *nodeUnderTest) CPUs(uid types.UID, _ string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cpus[uid]
}

// nodeWithAgent makes a node of a machine and publishes its graph, and starts the
// verifier with the shipped account's rights where those are installed.
func (e *testEnv) nodeWithAgent(t *testing.T, name, machine string) *nodeUnderTest {
	t.Helper()
	spec := e.addNode(t, name, machine)
	n := e.agentOf(t, name)
	e.publish(t, devcluster.ExporterOptions{Unenforced: true}, spec)
	n.start(t)
	return n
}

func (e *testEnv) agentOf(t *testing.T, name string) *nodeUnderTest {
	t.Helper()
	return &nodeUnderTest{
		testEnv: e, name: name, graph: e.graphs[name], path: filepath.Join(t.TempDir(), kubelet.CheckpointName),
		records: map[types.UID]recordedPod{}, known: map[string]bool{}, cpus: map[types.UID]string{},
	}
}

// storedPods are an informer's.
type storedPods struct{ store cache.Store }

func (p storedPods) Pods() []*v1.Pod {
	var out []*v1.Pod
	for _, obj := range p.store.List() {
		if pod, ok := obj.(*v1.Pod); ok {
			out = append(out, pod)
		}
	}
	return out
}

// start runs the agent until the test or halt ends it.
func (n *nodeUnderTest) start(t *testing.T) {
	t.Helper()
	cfg := n.RESTConfig()
	if n.schedulerAccount != "" {
		var err error
		if cfg, err = n.NodeBoundConfig(t.Context(), systemNamespace, agentAccount, n.name); err != nil {
			t.Fatal(err)
		}
	}
	kube, dyn := kubernetes.NewForConfigOrDie(cfg), dynamic.NewForConfigOrDie(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	ofNode := func(field string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) { o.FieldSelector = fields.OneTermEqualSelector(field, n.name).String() }
	}
	pods := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTweakListOptions(ofNode("spec.nodeName")))
	topologies := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dyn, 0, "", ofNode("metadata.name"))
	n.topology = topologies.ForResource(v1alpha1.GroupVersionResource).Informer()
	broadcaster := events.NewBroadcaster(nodeagent.NewEventSink(kube, n.name))
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	podInformer := pods.Core().V1().Pods().Informer()
	v, err := verify.New(verify.Config{
		Node: n.name, CheckpointPath: n.path, Registerer: prometheus.NewRegistry(), Active: n, Extra: n,
		Topology: func() *v1alpha1.NodeGPUTopology { return stored(t, n.topology.GetStore(), n.name) },
	}, storedPods{podInformer.GetStore()}, kube, dyn, broadcaster.NewRecorder(runtime.NewScheme(), "nvtopo-node-agent"), clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	v.SetResources(func() []interposer.ResourceStatus {
		return []interposer.ResourceStatus{{Resource: string(gpuResource), InnerConnected: true, Registered: true}}
	})
	v.SetKubelet(&v1alpha1.Kubelet{TopologyManagerPolicy: "none", CPUManagerPolicy: "none"})
	v.SetPinned(metav1.Condition{Status: metav1.ConditionFalse, Reason: "Off", Message: "pinning was not asked for"})
	trigger := cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { v.Trigger() }, UpdateFunc: func(_, _ any) { v.Trigger() }, DeleteFunc: func(any) { v.Trigger() },
	}
	for _, i := range []cache.SharedIndexInformer{podInformer, n.topology} {
		if _, err := i.AddEventHandler(trigger); err != nil {
			t.Fatal(err)
		}
	}
	pods.Start(ctx.Done())
	topologies.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), podInformer.HasSynced, n.topology.HasSynced) {
		t.Fatal("the agent's informers do not sync")
	}
	n.done = make(chan struct{})
	go func() {
		defer close(n.done)
		if err := v.Run(ctx); err != nil {
			t.Errorf("the verifier of %s: %v", n.name, err)
		}
		pods.Shutdown()
		topologies.Shutdown()
		broadcaster.Shutdown()
	}()
	n.stop = func() { cancel(); <-n.done }
	t.Cleanup(n.stop)
}

func stored(t *testing.T, store cache.Store, name string) *v1alpha1.NodeGPUTopology {
	t.Helper()
	obj, ok, err := store.GetByKey(name)
	u, is := obj.(*unstructured.Unstructured)
	if err != nil || !ok || !is {
		return nil
	}
	out := &v1alpha1.NodeGPUTopology{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		t.Errorf("NodeGPUTopology %s: %v", name, err)
		return nil
	}
	return out
}

// gave makes kubelet record devices of pods, and forget those recorded with nil.
func (n *nodeUnderTest) gave(t *testing.T, what map[types.UID]recordedPod) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	var entries []checkpoint.PodDevicesEntry
	for uid, r := range what {
		if n.records[uid] = r; r == nil {
			delete(n.records, uid)
		}
	}
	for uid, r := range n.records {
		for container, ids := range r {
			entries = append(entries, checkpoint.PodDevicesEntry{
				PodUID: string(uid), ContainerName: container, ResourceName: string(gpuResource), DeviceIDs: checkpoint.DevicesPerNUMA{0: ids},
			})
		}
	}
	data, err := checkpoint.New(entries, nil).MarshalCheckpoint()
	if err == nil {
		err = errors.Join(os.WriteFile(n.path+".new", data, 0o600), os.Rename(n.path+".new", n.path))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ids names GPUs of the node by their positions.
func (n *nodeUnderTest) ids(positions ...int) []string {
	out := make([]string, len(positions))
	for i, p := range positions {
		out[i] = n.graph.GPUs[p].UUID
	}
	return out
}

// chosen is what was chosen for the container of a pod that has one.
func (n *nodeUnderTest) chosen(t *testing.T, pod *v1.Pod) []string {
	t.Helper()
	return choiceOf(t, pod, n.graph).Containers[0].GPUs
}

func (n *nodeUnderTest) status(ctx context.Context) (*v1alpha1.NodeGPUTopology, error) {
	dyn, err := dynamic.NewForConfig(n.RESTConfig())
	if err != nil {
		return nil, err
	}
	u, err := dyn.Resource(v1alpha1.GroupVersionResource).Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	out := &v1alpha1.NodeGPUTopology{}
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}

// published waits until status.allocations is "pod container state" for each line,
// in the order of the lines, and returns the object.
func (n *nodeUnderTest) published(t *testing.T, want ...string) *v1alpha1.NodeGPUTopology {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	var obj *v1alpha1.NodeGPUTopology
	testkit.Eventually(t, waitLimit, "the allocations of "+n.name+" are published", func(ctx context.Context) (bool, string) {
		var err error
		if obj, err = n.status(ctx); err != nil {
			return false, err.Error()
		}
		got := []string{}
		for _, a := range obj.Status.Allocations {
			got = append(got, a.Pod+" "+a.Container+" "+a.State)
		}
		slices.Sort(got)
		slices.Sort(want)
		return slices.Equal(got, want), cmp.Diff(want, got)
	})
	return obj
}

// said waits for an event on a pod with a reason and returns its note.
func (e *testEnv) said(t *testing.T, pod *v1.Pod, reason string) string {
	t.Helper()
	var note string
	testkit.Eventually(t, waitLimit, "event "+reason+" on pod "+pod.Name, func(ctx context.Context) (bool, string) {
		notes, err := e.events(ctx, pod, reason)
		if err != nil {
			return false, err.Error()
		}
		if len(notes) > 0 {
			note = notes[0]
		}
		return len(notes) > 0, fmt.Sprint(len(notes), " such events")
	})
	return note
}

func (l *testEnv) events(ctx context.Context, pod *v1.Pod, reason string) ([]string, error) {
	list, err := l.client.EventsV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.UID == pod.UID && e.Reason == reason {
			out = append(out, e.Note)
		}
	}
	return out, nil
}

// bindTo binds a pod as a scheduler without our plugins would.
func (e *testEnv) bindTo(t *testing.T, node, name string) *v1.Pod {
	t.Helper()
	err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Bind(t.Context(), &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}, Target: v1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return e.get(t, name)
}

// TestVerifierPublication lets the verifier alone, with the rights of the
// shipped account, publish what a file says that kubelet recorded.
func TestVerifierPublication(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	spec := l.addNode(t, "n1", "dgx-h100")
	n := l.agentOf(t, "n1")
	l.create(t, gpuPod("early", "other", 2).Obj())
	early := l.bindTo(t, "n1", "early")
	n.gave(t, map[types.UID]recordedPod{early.UID: {"main": n.ids(0, 1)}})

	n.start(t) // before there is anything to publish to
	l.publish(t, devcluster.ExporterOptions{Unenforced: true, Interval: time.Second}, spec)
	start := time.Now()
	obj := n.published(t, "early main foreign")
	t.Logf("a foreign pod was published %v after the graph", time.Since(start))
	if diff := cmp.Diff(slices.Sorted(slices.Values(n.ids(0, 1))), obj.Status.Allocations[0].GPUs); diff != "" {
		t.Errorf("its GPUs (-want,+got):\n%s", diff)
	}
	checkParts(t, obj)

	l.create(t, gpuPod("late", "other", 1).Obj())
	late := l.bindTo(t, "n1", "late")
	start = time.Now()
	n.gave(t, map[types.UID]recordedPod{late.UID: {"main": n.ids(7)}})
	n.published(t, "early main foreign", "late main foreign")
	t.Logf("a foreign pod was published %v after kubelet recorded it", time.Since(start))

	t.Run("annotations of others are ignored and said to be", func(t *testing.T) {
		pod := gpuPod("copied", "other", 1).Annotations(notes{allocation.Key: `{"version":1,"node":"n1","podUID":"` + string(early.UID) + `",` +
			`"assumed":"2026-01-01T00:00:00Z","enforced":true,"containers":[{"name":"main","resource":"nvidia.com/gpu","gpus":["` + n.ids(6)[0] + `"]}]}`}).Obj()

		l.create(t, pod, gpuPod("broken", "other", 1).Annotations(notes{allocation.Key: `{"version":2}`}).Obj())
		copied, broken := l.bindTo(t, "n1", "copied"), l.bindTo(t, "n1", "broken")
		n.gave(t, map[types.UID]recordedPod{copied.UID: {"main": n.ids(6)}, broken.UID: {"main": n.ids(5)}})
		n.published(t, "early main foreign", "late main foreign", "copied main foreign", "broken main foreign")
		if note := l.said(t, copied, "StaleAllocation"); !strings.Contains(note, "podUID") {
			t.Errorf("the event does not name the field: %s", note)
		}
		if note := l.said(t, broken, "MalformedAllocation"); !strings.Contains(note, "version 2") {
			t.Errorf("the event does not name the field: %s", note)
		}
		n.gave(t, map[types.UID]recordedPod{copied.UID: nil, broken.UID: nil})
		n.published(t, "early main foreign", "late main foreign")
	})

	t.Run("an ended pod counts until kubelet lets it go", func(t *testing.T) {
		l.remove(t, "late")
		time.Sleep(time.Second)
		n.published(t, "early main foreign", "late main foreign")
		n.mu.Lock()
		n.known["default/late"] = false
		n.mu.Unlock()
		n.published(t, "early main foreign") // the file has it still
	})

	t.Run("a new agent finds what the old one published", func(t *testing.T) {
		n.stop()
		// To a new agent this would be the record of a pod that nobody knows, which counts for a while.
		n.gave(t, map[types.UID]recordedPod{late.UID: nil})
		l.remove(t, "early")
		start = time.Now()
		n.start(t)
		time.Sleep(time.Second)
		n.published(t, "early main foreign")
		n.mu.Lock()
		n.known["default/early"] = false
		n.mu.Unlock()
		n.published(t)
	})

	t.Run("exporter and agent leave each other's part alone", func(t *testing.T) {
		obj := n.published(t)
		checkParts(t, obj)
		testkit.Eventually(t, waitLimit, "the agent that was started last renews its Lease", func(ctx context.Context) (bool, string) {
			lease, err := l.client.CoordinationV1().Leases(systemNamespace).Get(ctx, "agent-n1", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			return lease.Spec.RenewTime.After(start) && lease.OwnerReferences[0].UID == obj.Spec.NodeUID, fmt.Sprintf("%+v", lease)
		})
		version := obj.ResourceVersion
		time.Sleep(3 * time.Second) // three of the exporter's intervals
		if again, err := n.status(t.Context()); err != nil || again.ResourceVersion != version {
			t.Errorf("version %s became %s with nothing to say: %v", version, again.ResourceVersion, err)
		}
	})
}

// checkParts fails the test unless both halves of a status are there.
func checkParts(t *testing.T, obj *v1alpha1.NodeGPUTopology) {
	t.Helper()
	want := map[string]string{
		v1alpha1.ConditionReady: "True Read", v1alpha1.ConditionEnforced: "True Steering", v1alpha1.ConditionPinned: "False Off",
	}
	got := map[string]string{}
	for name := range want {
		if c := meta.FindStatusCondition(obj.Status.Conditions, name); c != nil {
			got[name] = fmt.Sprintf("%s %s", c.Status, c.Reason)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conditions (-want,+got):\n%s", diff)
	}
	if obj.Status.Summary == nil || obj.Status.Kubelet == nil || obj.Status.Kubelet.TopologyManagerPolicy != "none" {
		t.Errorf("status %+v lacks a part", obj.Status)
	}
}
