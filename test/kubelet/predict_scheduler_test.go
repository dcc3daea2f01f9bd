// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

const predictNode = "n"

func podNumber(i int) *v1.Pod { return devicemanager.Pod("pod-"+strconv.Itoa(i), i) }

// schedulerHandle implements the part of a scheduler's handle that nodestate needs.
type schedulerHandle struct {
	fwk.Handle
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
}

func (h *schedulerHandle) ClientSet() kubernetes.Interface                        { return h.client }
func (h *schedulerHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h *schedulerHandle) EventRecorder() events.EventRecorder                    { return silent{} }
func (h *schedulerHandle) Activate(klog.Logger, map[string]*v1.Pod)               {}

// KubeConfig returns nil: no API server has a ClusterTopology here.
func (h *schedulerHandle) KubeConfig() *rest.Config { return nil }

type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// scheduler is our side: it knows the node from the objects of exporter and agent.
type scheduler struct {
	state    *nodestate.State
	versions int
	node     *v1.Node
	pods     []*v1.Pod // on the node, as in the scheduler's cache
}

func newScheduler(t *testing.T) *scheduler {
	t.Helper()
	const namespace = release.Namespace
	client := fake.NewClientset()
	for _, prefix := range []string{nodelease.ExporterPrefix, nodelease.AgentPrefix} {
		now, duration := metav1.NewMicroTime(time.Now()), int32(24*time.Hour/time.Second)
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: prefix + predictNode, Namespace: namespace},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &now, LeaseDurationSeconds: &duration},
		}
		if _, err := client.CoordinationV1().Leases(namespace).Create(t.Context(), l, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s := &scheduler{state: nodestate.New(nodestate.Config{Namespace: namespace, Weights: nvtopo.DefaultWeights(), RequestTimeout: time.Minute}, clock.RealClock{})}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	h := &schedulerHandle{client: client, factory: informers.NewSharedInformerFactory(client, 0)}
	if err := s.state.Connect(ctx, h); err != nil {
		t.Fatal(err)
	}
	s.state.Lists.AwaitSync(ctx)
	testkit.Soon(t, "the Leases are seen", s.state.Lists.Synced)
	return s
}

// add appends the GPUs of another resource to those of spec.
func add(spec, other *v1alpha1.NodeGPUTopologySpec) {
	names := map[string]string{}
	for _, kind := range other.LinkKinds {
		names[kind.Name] = fmt.Sprintf("%d/%s", len(spec.LinkKinds), kind.Name)
		kind.Name = names[kind.Name]
		spec.LinkKinds = append(spec.LinkKinds, kind)
	}
	rows := make([]string, 0, len(spec.GPUs)+len(other.GPUs)-1)
	for i := range spec.GPUs {
		row := strings.Repeat(" -", len(other.GPUs))
		if i < len(spec.LinkRows) {
			row = spec.LinkRows[i] + row
		}
		rows = append(rows, row)
	}
	for _, row := range other.LinkRows {
		words := strings.Fields(row)
		for i := range words {
			words[i] = names[words[i]]
		}
		rows = append(rows, strings.Join(words, " "))
	}
	spec.GPUs, spec.LinkRows = append(spec.GPUs, other.GPUs...), rows
}

// publish writes the objects of exporter and agent about the machine's present state.
func (s *scheduler) publish(t *testing.T, m *machineLayout, setup *kubeletSetup, k *wholeKubelet, unhealthy map[string]bool) {
	t.Helper()
	s.versions++
	var obj *v1alpha1.NodeGPUTopology
	for _, name := range m.resources() {
		g, err := m.graph(name, unhealthy)
		if err != nil {
			t.Fatal(err)
		}
		if one := v1alpha1.FromGraph(predictNode, name, g); obj == nil {
			obj = one
		} else {
			add(&obj.Spec, &one.Spec)
			obj.Status.GPUHealth = append(obj.Status.GPUHealth, one.Status.GPUHealth...)
		}
	}
	obj.UID, obj.ResourceVersion = "topology", strconv.Itoa(s.versions)
	obj.Spec.NodeUID = s.node.UID
	obj.Status.Kubelet = k.published(setup)
	for _, pod := range k.pods() {
		state := v1alpha1.StateConfirmed
		if pod.Annotations[allocation.Key] == "" {
			state = v1alpha1.StateForeign
		}
		for _, c := range containersOf(pod) {
			for _, name := range m.resources() {
				if ids := k.recorded(pod, c.Name, name); len(ids) > 0 {
					obj.Status.Allocations = append(obj.Status.Allocations, v1alpha1.Allocation{
						PodUID: pod.UID, Container: c.Name, Resource: name, GPUs: ids, State: state,
					})
				}
			}
		}
	}
	if _, err := s.state.Graphs.Apply(obj); err != nil {
		t.Fatal(err)
	}
}

// published returns status.kubelet.
func (k *wholeKubelet) published(setup *kubeletSetup) *v1alpha1.Kubelet {
	out := &v1alpha1.Kubelet{
		TopologyManagerPolicy: setup.policy, Scope: setup.scope, TopologyManagerOptions: setup.topologyOptions,
		CPUManagerPolicy: "none", MemoryManagerPolicy: "None",
	}
	if setup.unaligned {
		out.UnalignedResources = []string{gpu}
	}
	if setup.staticCPUs {
		out.CPUManagerPolicy, out.CPUManagerOptions = "static", setup.cpuOptions
		out.ReservedCPUs, out.ExclusiveCPUs = setup.reserved.String(), k.exclusive().String()
	}
	if setup.staticMemory {
		out.MemoryManagerPolicy = "Static"
		for id, n := range k.memory.State().GetMachineState() {
			table := n.MemoryMap[v1.ResourceMemory]
			m := v1alpha1.KubeletMemory{
				NUMANode: int32(id), Allocatable: *resource.NewQuantity(int64(table.Allocatable), resource.BinarySI),
				Free: *resource.NewQuantity(int64(table.Free), resource.BinarySI),
			}
			for _, c := range n.Cells {
				m.Cells = append(m.Cells, int32(c))
			}
			out.Memory = append(out.Memory, m)
		}
	}
	return out
}

func containersOf(pod *v1.Pod) []v1.Container {
	return append(append([]v1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...)
}

// newNode replaces the last machine by a new one.
func (s *scheduler) newNode(m *machineLayout, setup *kubeletSetup, i int) {
	s.pods = nil
	cpus, memory := m.cpus()-max(1, len(setup.reserved)), int64(0)
	for j := range m.nodes {
		memory += m.nodes[j].Memory - m.reserved
	}
	s.node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: predictNode, UID: types.UID("node-" + strconv.Itoa(i))}}
	s.node.Status.Allocatable = v1.ResourceList{
		"cpu":    *resource.NewQuantity(int64(cpus), resource.DecimalSI),
		"memory": *resource.NewQuantity(memory, resource.BinarySI), "pods": resource.MustParse("500"),
	}
	for name, numa := range m.numa {
		s.node.Status.Allocatable[v1.ResourceName(name)] = *resource.NewQuantity(int64(len(numa)), resource.DecimalSI)
	}
}

func (s *scheduler) view(t *testing.T) (fwk.NodeInfo, fwk.NodeInfoLister) {
	t.Helper()
	l := schedcache.NewSnapshot(s.pods, []*v1.Node{s.node}).NodeInfos()
	info, err := l.Get(predictNode)
	if err != nil {
		t.Fatal(err)
	}
	return info, l
}

// fits is the scheduler's own filter by the sums of the node's resources.
func fits(info fwk.NodeInfo, r *podrequest.Request) bool {
	have, used := info.GetAllocatable(), info.GetRequested()
	for _, res := range r.Resources {
		name := v1.ResourceName(res.Name)
		if int64(res.Count) > have.GetScalarResources()[name]-used.GetScalarResources()[name] {
			return false
		}
	}
	return r.MilliCPU <= have.GetMilliCPU()-used.GetMilliCPU() && r.Memory <= have.GetMemory()-used.GetMemory()
}

// schedule calls our Filter and Reserve, and binds the pod if they succeed.
func (s *scheduler) schedule(t *testing.T, pod *v1.Pod) (a *allocation.Allocation, reason string, fit bool) {
	t.Helper()
	r, err := podrequest.Parse(pod, &podrequest.Options{Resources: []string{gpu, fpga}, Supported: podrequest.AllPolicies()})
	if err != nil {
		t.Fatal(err)
	}
	info, l := s.view(t)
	if !fits(info, r) {
		return nil, "", false
	}
	s.state.Allocations.Sweep(l)
	d := &placement.Demand{Request: r}
	verdict := s.state.Nodes.Judge(d, info, l)
	a, reserve := s.state.Allocations.Assume(d, pod, info, l)
	if verdict.Reason != reserve {
		t.Fatalf("Filter says %q, Reserve %q", verdict.Reason, reserve)
	}
	if reserve != placement.Fits {
		return nil, reserve.String(), true
	}
	s.bind(t, pod, a)
	return a, "", true
}

// bind writes the annotation and drops the assumed allocation, since the snapshot shows the pod.
func (s *scheduler) bind(t *testing.T, pod *v1.Pod, a *allocation.Allocation) {
	t.Helper()
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	pod.Spec.NodeName = predictNode
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[allocation.Key] = text
	s.pods = append(s.pods, pod)
	s.state.Allocations.Forget(pod.UID, predictNode)
}
