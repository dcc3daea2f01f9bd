// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/net/multiplex"
	"github.com/containerd/nri/pkg/runtime-tools/generate"
	"github.com/containerd/nri/pkg/stub"
	"github.com/containerd/ttrpc"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/visible"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// patience bounds waits for things that take milliseconds.
const patience = 2 * time.Minute

// testEnv is a plugin with everything around it; its fields may be changed under mu.
type testEnv struct {
	plugin *Plugin
	socket string

	mu         sync.Mutex
	records    []kubelet.Record
	recordsErr error
	slow       chan struct{} // closed when the record can be read; nil: it can
	kubelet    *v1alpha1.Kubelet
	topology   *v1alpha1.NodeGPUTopology
	allocation *allocation.Allocation
	escapes    []string
	misbound   []string // containers and which CPUs they name
	conditions []metav1.Condition
	asked      int // how often the record was read
	changes    int // of what containers are confined to
}

func newTestEnv(t *testing.T, mode Mode) *testEnv {
	t.Helper()
	t.Chdir(t.TempDir()) // a socket's path has to be short
	n := &testEnv{
		socket: "nri.sock", topology: machine(),
		kubelet: &v1alpha1.Kubelet{TopologyManagerPolicy: "none", CPUManagerPolicy: "none", MemoryManagerPolicy: "None", ReservedCPUs: "8"},
	}
	var err error
	n.plugin, err = New(Config{
		Node: testNode, Socket: n.socket, Mode: mode, SysfsRoot: sysfs(t, "0-15", "0-1"), Exempt: []string{"gpu-operator"},
		Records: func() ([]kubelet.Record, error) {
			n.mu.Lock()
			n.asked++
			slow, records, err := n.slow, n.records, n.recordsErr
			n.mu.Unlock()
			if slow != nil {
				<-slow
			}
			return records, err
		},
		Topology:   func() *v1alpha1.NodeGPUTopology { n.mu.Lock(); defer n.mu.Unlock(); return n.topology },
		Kubelet:    func() *v1alpha1.Kubelet { n.mu.Lock(); defer n.mu.Unlock(); return n.kubelet },
		Allocation: func(types.UID) *allocation.Allocation { n.mu.Lock(); defer n.mu.Unlock(); return n.allocation },
		Changed:    func() { n.mu.Lock(); defer n.mu.Unlock(); n.changes++ },
		Escaped: func(e Escape) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.escapes = append(n.escapes, e.Namespace+"/"+e.Pod+" "+e.Container+" "+e.String())
		},
		Misbound: func(_ types.UID, container, what string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.misbound = append(n.misbound, container+" "+what)
		},
		Pinned: func(c metav1.Condition) { n.mu.Lock(); defer n.mu.Unlock(); n.conditions = append(n.conditions, c) },
	}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	n.plugin.answer = patience // a busy machine takes more than budget
	return n
}

// run starts the plugin and ends it with the test.
func (e *testEnv) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.plugin.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run does not end with its context")
		}
	})
}

// awaitReason waits until the condition last told has the reason.
func (e *testEnv) awaitReason(t *testing.T, reason string) metav1.Condition {
	t.Helper()
	var last metav1.Condition
	testkit.Eventually(t, patience, "a condition with the reason "+reason, func(context.Context) (bool, string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.conditions) > 0 {
			last = e.conditions[len(e.conditions)-1]
		}
		return last.Reason == reason, fmt.Sprintf("%+v", last)
	})
	return last
}

// runtime is the runtime's side of NRI, the real one.
type runtime struct{ *adaptation.Adaptation }

func startRuntime(t *testing.T, socket string, pods []*api.PodSandbox, containers []*api.Container) *runtime {
	t.Helper()
	synchronize := func(ctx context.Context, cb adaptation.SyncCB) error {
		_, err := cb(ctx, pods, containers)
		return err
	}
	update := func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
		return nil, errors.New("unwanted")
	}
	a, err := adaptation.New("test", "2.2.0", synchronize, update,
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(t.TempDir()), adaptation.WithPluginConfigPath(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	return &runtime{a}
}

// wire connects the plugin's socket with a runtime's. Cutting it is what the
// plugin sees of a runtime that dies; the library's own Stop leaves plugins be.
type wire struct {
	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
}

func startWire(t *testing.T, at, to string) *wire {
	t.Helper()
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, near, far)
			w.mu.Unlock()
			go func() { _, _ = io.Copy(near, far); _ = near.Close() }()
			go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
		}
	}()
	t.Cleanup(w.cut)
	return w
}

func (w *wire) cut() {
	_ = w.listener.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// linuxSpec lets the library apply an adjustment to an OCI spec; it calls no
// more of a generator than this for what the plugin may adjust.
type linuxSpec struct {
	generate.UnderlyingGenerator
	spec *specs.Spec
}

func (l linuxSpec) Spec() *specs.Spec                    { return l.spec }
func (l linuxSpec) SetLinuxResourcesCPUCpus(list string) { l.spec.Linux.Resources.CPU.Cpus = list }
func (l linuxSpec) SetLinuxResourcesCPUMems(list string) { l.spec.Linux.Resources.CPU.Mems = list }

// create makes a container as a runtime would and returns its cpuset.
func (r *runtime) create(t *testing.T, pod *api.PodSandbox, c *api.Container) (cpuset, mems string) {
	t.Helper()
	resp, err := r.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: pod, Container: c})
	if err != nil {
		t.Fatalf("the container is not made: %v", err)
	}
	cpu := &specs.LinuxCPU{Cpus: c.GetLinux().GetResources().GetCpu().GetCpus(), Mems: c.GetLinux().GetResources().GetCpu().GetMems()}
	spec := &specs.Spec{Process: &specs.Process{Env: slices.Clone(c.GetEnv())}, Linux: &specs.Linux{Resources: &specs.LinuxResources{CPU: cpu}}}
	if adjust := resp.GetAdjust(); adjust != nil {
		if err := generate.SpecGenerator(linuxSpec{spec: spec}).Adjust(adjust); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(c.GetEnv(), spec.Process.Env); diff != "" {
		t.Errorf("the environment was changed (-was +is):\n%s", diff)
	}
	return cpu.Cpus, cpu.Mems
}

func sandbox(annotations ...string) *api.PodSandbox {
	p := &api.PodSandbox{Id: "sandbox", Name: "pod", Namespace: "default", Uid: string(testPod), Linux: &api.LinuxPodSandbox{}}
	if len(annotations) > 0 {
		p.Annotations = map[string]string{allocation.Key: annotations[0]}
	}
	return p
}

func container(id, name, cpuset, mems string, env ...string) *api.Container {
	return &api.Container{
		Id: id, PodSandboxId: "sandbox", Name: name, Env: env, State: api.ContainerState_CONTAINER_RUNNING,
		Linux: &api.LinuxContainer{Resources: &api.LinuxResources{
			Memory: &api.LinuxMemory{}, Cpu: &api.LinuxCPU{Cpus: cpuset, Mems: mems}, Unified: map[string]string{},
		}},
	}
}

// TestConfinement: containers are confined.
func TestConfinement(t *testing.T) {
	chosen, err := choice("10-11", "train", "GPU-5").Encode()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := strings.Replace(chosen, testNode, "node-b", 1)
	train := []kubelet.Record{record("setup", "GPU-5"), record("train", "GPU-5")}
	for name, tc := range map[string]struct {
		mode       Mode // Pin by default
		prepare    func(n *testEnv)
		pod        *api.PodSandbox // sandbox() by default
		container  *api.Container
		wantReason string // Pinning by default
		wantCPUs   string
		wantMems   string
		wantNone   bool // nothing is known of its confinement afterwards
	}{
		"a GPU container to its GPU's NUMA node": {
			container: container("1", "train", "", ""), wantCPUs: "9-15", wantMems: "1",
		},
		"an init container as well": {
			container: container("1", "setup", "", ""), wantCPUs: "9-15", wantMems: "1",
		},
		"to the CPUs of the agent's view of the choice": {
			prepare:   func(n *testEnv) { n.allocation = choice("12-13", "train", "GPU-5") },
			container: container("1", "train", "", ""), pod: sandbox(chosen), wantCPUs: "12-13", wantMems: "1",
		},
		"to the CPUs that the sandbox's annotation names": {
			container: container("1", "train", "", ""), pod: sandbox(chosen), wantCPUs: "10-11", wantMems: "1",
		},
		"not by a choice for another node": {
			container: container("1", "train", "", ""), pod: sandbox(elsewhere), wantCPUs: "9-15", wantMems: "1",
		},
		"a container without GPUs is left alone": {
			container: container("1", "log", "", ""), wantNone: true,
		},
		"a container of another pod is left alone": {
			pod:       &api.PodSandbox{Id: "sandbox", Name: "pod", Namespace: "default", Uid: "uid-b"},
			container: container("1", "train", "", ""), wantNone: true,
		},
		"reporting only leaves it alone": {
			mode: Report, container: container("1", "train", "", ""), wantReason: ReasonOff, wantNone: true,
		},
		"under the static CPU manager it is left alone": {
			prepare:   func(n *testEnv) { n.kubelet.CPUManagerPolicy = "static" },
			container: container("1", "train", "2-3", ""), wantReason: ReasonCPUManagerStatic, wantCPUs: "2-3", wantNone: true,
		},
		"under the static memory manager its memory is left alone": {
			prepare:   func(n *testEnv) { n.kubelet.MemoryManagerPolicy = "Static" },
			container: container("1", "train", "", "0"), wantCPUs: "9-15", wantMems: "0",
		},
		"while kubelet's policy is unknown it is left alone": {
			prepare:   func(n *testEnv) { n.kubelet = nil },
			container: container("1", "train", "", ""), wantReason: ReasonKubeletUnknown, wantNone: true,
		},
		"while the graph is unknown it is left alone": {
			prepare:   func(n *testEnv) { n.topology = nil },
			container: container("1", "train", "", ""), wantReason: ReasonTopologyUnknown, wantNone: true,
		},
		"before kubelet has recorded anything it is left alone": {
			prepare:   func(n *testEnv) { n.records, n.recordsErr = nil, fs.ErrNotExist },
			container: container("1", "train", "", ""), wantNone: true,
		},
		"when kubelet's record cannot be read it is left alone": {
			prepare:   func(n *testEnv) { n.recordsErr = errors.New("torn") },
			container: container("1", "train", "", ""), wantNone: true,
		},
		"when there is no time it is left alone": {
			prepare:   func(n *testEnv) { n.slow, n.plugin.answer = make(chan struct{}), time.Millisecond },
			container: container("1", "train", "", ""), wantNone: true,
		},
		"what is set already stays": {
			container: container("1", "train", "3,2", "0"), wantCPUs: "3,2", wantMems: "0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			mode, reason, pod := tc.mode, tc.wantReason, tc.pod
			if mode == "" {
				mode = Pin
			}
			if reason == "" {
				reason = ReasonPinning
			}
			if pod == nil {
				pod = sandbox()
			}
			n := newTestEnv(t, mode)
			n.records = train
			if tc.prepare != nil {
				tc.prepare(n)
			}
			if n.slow != nil {
				defer close(n.slow)
			}
			r := startRuntime(t, n.socket, nil, nil)
			n.run(t)
			if c := n.awaitReason(t, reason); (c.Status == metav1.ConditionTrue) != (reason == ReasonPinning) || c.Type != v1alpha1.ConditionPinned || c.Message == "" {
				t.Errorf("condition %+v", c)
			}
			n.awaitPlugin(t, r)
			changes := func() int { n.mu.Lock(); defer n.mu.Unlock(); return n.changes }
			before := changes()
			cpuset, mems := r.create(t, pod, tc.container)
			if diff := cmp.Diff([]string{tc.wantCPUs, tc.wantMems}, []string{cpuset, mems}); diff != "" {
				t.Errorf("CPUs and mems (-want +got):\n%s", diff)
			}
			if told := changes() > before; told != (tc.wantCPUs != "") {
				t.Errorf("told of a change: %v, want it when CPUs are set", told)
			}
			known := n.plugin.CPUs(testPod, tc.container.GetName())
			if tc.wantNone != (known == "") || known != "" && known != canonical(tc.wantCPUs) {
				t.Errorf("known to be confined to %q, want that of %q: %v", known, tc.wantCPUs, !tc.wantNone)
			}
			if n.plugin.Condition().Reason != reason || !n.linked() {
				t.Errorf("condition %+v afterwards: the runtime has dropped the plugin", n.plugin.Condition())
			}
		})
	}
}

// awaitPlugin waits until the runtime asks the plugin about containers, which
// begins a moment after the hand-over.
func (e *testEnv) awaitPlugin(t *testing.T, r *runtime) {
	t.Helper()
	asked := func() int { e.mu.Lock(); defer e.mu.Unlock(); return e.asked }
	testkit.Soon(t, "the runtime asks the plugin", func() bool {
		if !e.linked() {
			return false
		}
		before := asked()
		r.create(t, sandbox(), container("probe", "probe", "", ""))
		return asked() > before
	})
}

func (e *testEnv) linked() bool {
	e.plugin.mu.Lock()
	defer e.plugin.mu.Unlock()
	return e.plugin.link.up
}

// other is another plugin that sets CPUs, as resource managers do.
type other struct{ cpus string }

func (o other) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adjust := &api.ContainerAdjustment{}
	adjust.SetLinuxCPUSetCPUs(o.cpus)
	return adjust, nil, nil
}

// TestForeignCPUs: the CPUs that another plugin chose are kept.
func TestForeignCPUs(t *testing.T) {
	n := newTestEnv(t, Pin)
	n.records = []kubelet.Record{record("train", "GPU-5")}
	r := startRuntime(t, n.socket, nil, nil)
	manager, err := stub.New(other{"1"}, stub.WithPluginName("manager"), stub.WithPluginIdx("90"), stub.WithSocketPath(n.socket))
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(manager.Stop)
	n.run(t)
	n.awaitPlugin(t, r)
	if cpuset, mems := r.create(t, sandbox(), container("1", "train", "", "")); cpuset != "1" || mems != "" {
		t.Errorf("CPUs %q and mems %q, want the other plugin's 1 and none", cpuset, mems)
	}
	if got := n.plugin.CPUs(testPod, "train"); got != "1" {
		t.Errorf("known to be confined to %q, want 1", got)
	}
}

// TestEscapeReports: escaped containers are reported.
func TestEscapeReports(t *testing.T) {
	n := newTestEnv(t, Report)
	n.records = []kubelet.Record{record("train", "GPU-5")}
	running := container("0", "old", "", "", visible.VisibleDevices+"=GPU-1")
	ended := container("9", "ended", "", "", visible.VisibleDevices+"=GPU-1")
	ended.State = api.ContainerState_CONTAINER_STOPPED
	r := startRuntime(t, n.socket, []*api.PodSandbox{sandbox()}, []*api.Container{running, ended})
	n.run(t)
	n.awaitPlugin(t, r)
	r.create(t, sandbox(), container("1", "train", "", "", visible.VisibleDevices+"=GPU-5", visible.VisibleDevices+"=4,5"))
	r.create(t, sandbox(), container("2", "train", "", "", visible.VisibleDevices+"=all", visible.VisibleDevices+"=GPU-5"))
	operator := sandbox()
	operator.Namespace = "gpu-operator"
	r.create(t, operator, container("3", "validator", "", "", visible.VisibleDevices+"=all"))
	want := []string{
		"default/pod old asks for GPU-1 (environment NVIDIA_VISIBLE_DEVICES); kubelet gave it none",
		"default/pod train asks for GPU-4, GPU-5 (environment NVIDIA_VISIBLE_DEVICES); kubelet gave it GPU-5",
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if diff := cmp.Diff(want, n.escapes); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

// TestThreadsOutsideCPUs: containers whose environment binds threads to CPUs beyond their own are reported,
// whoever confined them.
func TestThreadsOutsideCPUs(t *testing.T) {
	n := newTestEnv(t, Pin)
	n.records = []kubelet.Record{record("train", "GPU-5"), record("fits", "GPU-0")}
	running := container("0", "old", "2-3", "", "GOMP_CPU_AFFINITY=0-3")
	r := startRuntime(t, n.socket, []*api.PodSandbox{sandbox()}, []*api.Container{running})
	n.run(t)
	n.awaitPlugin(t, r)
	r.create(t, sandbox(), container("1", "train", "", "", "GOMP_CPU_AFFINITY=0-7"))
	r.create(t, sandbox(), container("2", "fits", "", "", "OMP_PLACES={0:4}"))
	r.create(t, sandbox(), container("3", "free", "", "", "GOMP_CPU_AFFINITY=0-7"))
	r.create(t, sandbox(), container("4", "static", "4-5", "", "KMP_AFFINITY=explicit,proclist=[4,6]"))
	want := []string{
		"old GOMP_CPU_AFFINITY names CPUs 0-1; the container may use 2-3",
		"train GOMP_CPU_AFFINITY names CPUs 0-7; the container may use 9-15",
		"static KMP_AFFINITY names CPUs 6; the container may use 4-5",
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if diff := cmp.Diff(want, n.misbound); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

// TestRuntimeRestart: a restarted runtime is found again.
func TestRuntimeRestart(t *testing.T) {
	n := newTestEnv(t, Pin)
	n.records = []kubelet.Record{record("train", "GPU-5"), record("serve", "GPU-0")}
	n.run(t)
	if c := n.awaitReason(t, ReasonRuntimeUnavailable); c.Status != metav1.ConditionFalse {
		t.Errorf("condition %+v", c)
	}
	first := startRuntime(t, n.socket+"1", nil, nil)
	toFirst := startWire(t, n.socket, n.socket+"1")
	n.awaitReason(t, ReasonPinning)
	n.awaitPlugin(t, first)
	if cpuset, _ := first.create(t, sandbox(), container("1", "train", "", "")); cpuset != "9-15" {
		t.Errorf("CPUs %q, want 9-15", cpuset)
	}
	toFirst.cut()
	n.awaitReason(t, ReasonRuntimeUnavailable)
	if got := n.plugin.CPUs(testPod, "train"); got != "9-15" {
		t.Errorf("while the runtime is away, known %q, want 9-15: containers run on", got)
	}
	// The runtime comes back with what runs: of two incarnations the younger.
	old, young := container("1", "train", "9-15", "1"), container("2", "train", "9-11", "1")
	old.CreatedAt, young.CreatedAt = 1, 2
	second := startRuntime(t, n.socket+"2", []*api.PodSandbox{sandbox()}, []*api.Container{young, old})
	startWire(t, n.socket, n.socket+"2")
	n.awaitReason(t, ReasonPinning)
	if got := n.plugin.CPUs(testPod, "train"); got != "9-11" {
		t.Errorf("after the restart known %q, want the younger incarnation's 9-11", got)
	}
	n.awaitPlugin(t, second)
	if cpuset, mems := second.create(t, sandbox(), container("3", "serve", "", "")); cpuset != "0-7" || mems != "0" {
		t.Errorf("CPUs %q and mems %q, want 0-7 and 0", cpuset, mems)
	}
	for _, removed := range []struct{ id, want string }{{"1", "9-11"}, {"2", ""}} {
		if err := second.RemoveContainer(t.Context(), &api.RemoveContainerRequest{Pod: sandbox(), Container: container(removed.id, "train", "", "")}); err != nil {
			t.Fatal(err)
		}
		if got := n.plugin.CPUs(testPod, "train"); got != removed.want {
			t.Errorf("after incarnation %s was removed known %q, want %q", removed.id, got, removed.want)
		}
	}
}

// mute accepts connections and says nothing, as a runtime that hangs.
func mute(t *testing.T, socket string) *atomic.Int32 {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	accepted := &atomic.Int32{}
	done := make(chan struct{})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			go func() { <-done; _ = c.Close() }()
		}
	}()
	t.Cleanup(func() { close(done); _ = l.Close() })
	return accepted
}

// TestHangingRuntime: a hanging runtime does not hold the agent.
func TestHangingRuntime(t *testing.T) {
	n := newTestEnv(t, Pin)
	accepted := mute(t, n.socket)
	n.run(t) // its clean-up requires that Run ends
	n.awaitReason(t, ReasonRuntimeUnavailable)
	testkit.Soon(t, "the plugin connects", func() bool { return accepted.Load() > 0 })
}

// halfway is a runtime that registers plugins and then never configures them.
type halfway struct {
	registered chan struct{}
	once       sync.Once
}

func (h *halfway) RegisterPlugin(context.Context, *api.RegisterPluginRequest) (*api.Empty, error) {
	h.once.Do(func() { close(h.registered) })
	return &api.Empty{}, nil
}

func (*halfway) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return nil, errors.New("unwanted")
}

// TestHalfwayRuntime: a runtime that stops halfway does not hold the agent.
func TestHalfwayRuntime(t *testing.T) {
	n := newTestEnv(t, Pin)
	l, err := net.Listen("unix", n.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := &halfway{registered: make(chan struct{})}
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		rpcs, err := multiplex.Multiplex(conn).Listen(multiplex.RuntimeServiceConn)
		if err != nil {
			return
		}
		server, err := ttrpc.NewServer()
		if err != nil {
			return
		}
		api.RegisterRuntimeService(server, h)
		_ = server.Serve(t.Context(), rpcs)
	}()
	n.run(t) // its clean-up requires that Run ends
	select {
	case <-h.registered:
	case <-time.After(patience):
		t.Fatal("the plugin did not register")
	}
	time.Sleep(50 * time.Millisecond) // for it to wait for its configuration
	if c := n.plugin.Condition(); c.Reason != ReasonRuntimeUnavailable {
		t.Errorf("condition %+v", c)
	}
}
