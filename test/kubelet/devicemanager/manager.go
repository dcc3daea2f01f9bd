// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	"google.golang.org/grpc"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	kubeletdm "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// PluginDir is the directory of the sockets of kubelet and device plugins; KubeletSocket is kubelet's
// registration socket in it, CheckpointFile kubelet's record of allocations.
const (
	PluginDir          = rootDir + "/device-plugins"
	KubeletSocket      = PluginDir + "/kubelet.sock"
	CheckpointFile     = PluginDir + "/kubelet_internal_checkpoint"
	PodResourcesSocket = rootDir + "/pod-resources/kubelet.sock"
)

const apiSource = "api"

// Options describes the kubelet to run.
type Options struct {
	NUMANodes int                            // of the machine; 0 means one
	Policy    string                         // topologyManagerPolicy; "" means none
	Scope     string                         // topologyManagerScope; "" means container
	Providers []topologymanager.HintProvider // called after the device manager, as CPU and memory managers are
	// Late stands for the admission handlers after the allocation of resources (predicates and others): an
	// error refuses the pod that holds devices already.
	Late func(*v1.Pod) error
}

// Manager is one node's kubelet with regard to devices.
type Manager struct {
	options Options

	admission sync.Mutex // kubelet admits pods one at a time

	pods kubepod.Manager // kubelet's own

	mu      sync.Mutex // guards the fields below
	phases  map[types.UID]phase
	process process
}

// process is the part of a Manager that a restart replaces.
type process struct {
	devices  *kubeletdm.ManagerImpl
	topology topologymanager.Manager
	sources  config.SourcesReady
	rpc      *grpc.Server
	rpcDone  chan struct{}
}

// Start runs a kubelet on an empty directory until the test ends. One at a time
// can run in a test binary, so tests that use it are not parallel.
func Start(tb testing.TB, options Options) *Manager {
	tb.Helper()
	if skipped() {
		tb.Skip(skipEnv + "=1")
	}
	if !isolated() {
		tb.Fatal("TestMain must call devicemanager.Main")
	}
	if options.NUMANodes == 0 {
		options.NUMANodes = 1
	}
	if options.Policy == "" {
		options.Policy = topologymanager.PolicyNone
	}
	if options.Scope == "" {
		options.Scope = "container"
	}
	keepLogs(tb)
	if err := os.RemoveAll(PluginDir); err != nil {
		tb.Fatalf("emptying %s: %v", PluginDir, err)
	}
	m := &Manager{options: options, pods: kubepod.NewBasicPodManager(), phases: map[types.UID]phase{}}
	if err := m.start(nil); err != nil {
		tb.Fatalf("starting kubelet's device manager: %v", err)
	}
	tb.Cleanup(m.Stop)
	return m
}

// start starts a kubelet process in kubelet's order: PodResources answers before pods come, the device
// manager loads its checkpoint and wipes sockets. running are the pods whose containers the runtime
// reports as running.
func (m *Manager) start(running []*v1.Pod) error {
	nodes := make([]cadvisorapi.Node, m.options.NUMANodes)
	for i := range nodes {
		nodes[i].Id = i
	}
	topology, err := topologymanager.NewManager(nodes, m.options.Policy, m.options.Scope, nil)
	if err != nil {
		return fmt.Errorf("topology manager: %w", err)
	}
	devices, err := kubeletdm.NewManagerImpl(nodes, topology)
	if err != nil {
		return fmt.Errorf("device manager: %w", err)
	}
	topology.AddHintProvider(klog.Background(), devices)
	for _, p := range m.options.Providers {
		topology.AddHintProvider(klog.Background(), p)
	}
	sources := config.NewSourcesReady(func(seen sets.Set[string]) bool { return seen.Has(apiSource) })
	ids, up := containers(running)
	if err := devices.Start(klog.Background(), m.activePods, sources, ids, up); err != nil {
		return fmt.Errorf("device manager: %w", err)
	}
	p := process{devices: devices, topology: topology, sources: sources}
	m.mu.Lock()
	m.process = p
	m.mu.Unlock()
	return m.servePodResources()
}

// Stop ends the kubelet process: its sockets close, its files stay.
func (m *Manager) Stop() {
	m.mu.Lock()
	p := m.process
	m.process.rpc = nil
	m.mu.Unlock()
	if p.rpc != nil {
		p.rpc.Stop()
		<-p.rpcDone
	}
	_ = p.devices.Stop(klog.Background()) // reports nothing but a plugin that is already gone
}

// Restart describes how a kubelet restarts.
type Restart struct {
	Reboot         bool                    // no container runs any more
	LoseCheckpoint bool                    // kubelet's record is gone
	Down           func()                  // called while no kubelet runs
	Registering    func()                  // called when plugins can register, before pods are admitted again
	Gone           func(pod *v1.Pod) bool  // pods that the API server no longer has
	Refused        func(*v1.Pod, *Refusal) // called for every pod that was not admitted again
}

// Restart ends the kubelet process and starts another over the same directory, which admits all pods
// again before its sources are ready.
func (m *Manager) Restart(how Restart) error {
	m.admission.Lock()
	defer m.admission.Unlock()
	m.Stop()
	if how.Down != nil {
		how.Down()
	}
	if how.LoseCheckpoint {
		if err := os.Remove(CheckpointFile); err != nil {
			return fmt.Errorf("losing the checkpoint: %w", err)
		}
	}
	again := m.forget(how.Gone)
	running := again
	if how.Reboot {
		running = nil
	}
	if err := m.start(running); err != nil {
		return err
	}
	if how.Registering != nil {
		how.Registering()
	}
	for _, pod := range again {
		if refusal := m.admit(pod); refusal != nil && how.Refused != nil {
			how.Refused(pod, refusal)
		}
	}
	m.ready()
	return nil
}

// ready marks the API server as a ready source, as kubelet does after it handled the first pods from it.
func (m *Manager) ready() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.process.sources.AllReady() {
		m.process.sources.AddSource(apiSource)
	}
}

func (m *Manager) devices() *kubeletdm.ManagerImpl {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process.devices
}

// Capacity returns the capacity and allocatable of a resource for the node's status.
func (m *Manager) Capacity(resource string) (capacity, allocatable int64) {
	c, a, _ := m.devices().GetCapacity()
	total, free := c[v1.ResourceName(resource)], a[v1.ResourceName(resource)]
	return total.Value(), free.Value()
}

// WaitAllocatable waits until the node offers n devices of a resource, and kubelet has written its
// checkpoint: it offers them a moment earlier.
func (m *Manager) WaitAllocatable(tb testing.TB, resource string, n int64) {
	tb.Helper()
	testkit.Eventually(tb, Patience, fmt.Sprintf("allocatable %s becomes %d", resource, n), func(context.Context) (bool, string) {
		_, got := m.Capacity(resource)
		all, busy := connections() // after Capacity: a list that it includes is processed
		return got == n && busy == 0 && (n == 0 || all > 0), fmt.Sprintf("%d, %d of %d connections busy", got, busy, all)
	})
}

// StartContainer does kubelet's part of each creation of a container: it calls PreStartContainer if the
// plugin wants that and returns the environment that the plugin's Allocate returned.
func (m *Manager) StartContainer(ctx context.Context, pod *v1.Pod, container string) (map[string]string, error) {
	c := findContainer(pod, container)
	if c == nil {
		return nil, fmt.Errorf("pod %s has no container %s", pod.Name, container)
	}
	opts, err := m.devices().GetDeviceRunContainerOptions(ctx, pod, c)
	if err != nil {
		return nil, fmt.Errorf("container %s of pod %s: %w", container, pod.Name, err)
	}
	env := make(map[string]string, len(opts.Envs))
	for _, e := range opts.Envs {
		env[e.Name] = e.Value
	}
	return env, nil
}

// containers returns the runtime's report at start: its containers and which of them run.
func containers(running []*v1.Pod) (containermap.ContainerMap, sets.Set[string]) {
	ids, up := containermap.NewContainerMap(), sets.New[string]()
	for _, p := range running {
		for _, c := range runningContainers(p) {
			id := string(p.UID) + "/" + c
			ids.Add(string(p.UID), c, id)
			up.Insert(id)
		}
	}
	return ids, up
}
