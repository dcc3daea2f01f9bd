// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	kubeletdm "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/test/kubelet/devicemanager"
)

// wholeKubelet is kubelet's topology manager with its device, CPU and memory managers, wired as its
// container manager does, for a made-up machine.
type wholeKubelet struct {
	topology topologymanager.Manager
	devices  *kubeletdm.ManagerImpl
	cpus     cpumanager.Manager
	memory   memorymanager.Manager
	plugins  []*devicemanager.Plugin

	current *v1.Container // being served
	// prefer answers the plugin's GetPreferredAllocation.
	prefer func(container, resource string, available, must []string, size int) []string

	mu     sync.Mutex // the CPU manager reads the pods in the background as well
	active []*v1.Pod  // guarded by mu
}

func (k *wholeKubelet) pods() []*v1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.active)
}

// ready reports that all sources of pods were seen.
type ready struct{}

func (ready) AddSource(string) {}
func (ready) AllReady() bool   { return true }

type noStatus struct{}

func (noStatus) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

// noting records the container that the device manager is serving.
type noting struct {
	*kubeletdm.ManagerImpl
	k *wholeKubelet
}

func (n noting) Allocate(pod *v1.Pod, c *v1.Container) error {
	n.k.current = c
	return n.ManagerImpl.Allocate(pod, c)
}

func startWholeKubelet(t *testing.T, m *machineLayout, setup *kubeletSetup, unhealthy map[string]bool) *wholeKubelet {
	t.Helper()
	if err := os.RemoveAll(devicemanager.PluginDir); err != nil {
		t.Fatal(err)
	}
	k := &wholeKubelet{prefer: func(_, _ string, available, must []string, size int) []string { return lowestOf(available, must, size) }}
	log := logr.Discard()
	info := m.info()
	var err error
	if k.topology, err = topologymanager.NewManager(info.Topology, setup.policy, setup.scope, setup.topologyOptions); err != nil {
		t.Fatal(err)
	}
	if k.devices, err = kubeletdm.NewManagerImpl(info.Topology, k.topology); err != nil {
		t.Fatal(err)
	}
	reserved, perNode := v1.ResourceList{"cpu": *resource.NewQuantity(max(1, int64(len(setup.reserved))), resource.DecimalSI)}, []kubeletconfig.MemoryReservation{}
	for i := range m.nodes {
		perNode = append(perNode, kubeletconfig.MemoryReservation{
			NumaNode: int32(i), Limits: v1.ResourceList{"memory": *resource.NewQuantity(m.reserved, resource.BinarySI)},
		})
	}
	reserved["memory"] = *resource.NewQuantity(m.reserved*int64(len(m.nodes)), resource.BinarySI)
	cpuPolicy, memoryPolicy := "none", "None"
	if setup.staticCPUs {
		cpuPolicy = "static"
	}
	if setup.staticMemory {
		memoryPolicy = "Static"
	}
	k.cpus, err = cpumanager.NewManager(log, cpuPolicy, setup.cpuOptions, time.Hour, info, cpuset.New(setup.reserved...), reserved, t.TempDir(), k.topology)
	if err != nil {
		t.Fatal(err)
	}
	k.memory, err = memorymanager.NewManager(log, memoryPolicy, info, reserved, perNode, t.TempDir(), k.topology)
	if err != nil {
		t.Fatal(err)
	}
	k.topology.AddHintProvider(log, noting{k.devices, k})
	k.topology.AddHintProvider(log, k.cpus)
	k.topology.AddHintProvider(log, k.memory)
	if err := k.devices.Start(klog.Background(), k.pods, ready{}, containermap.NewContainerMap(), sets.New[string]()); err != nil {
		t.Fatal(err)
	}
	if err := k.cpus.Start(t.Context(), k.pods, ready{}, noStatus{}, nil, containermap.NewContainerMap()); err != nil {
		t.Fatal(err)
	}
	if err := k.memory.Start(t.Context(), k.pods, ready{}, noStatus{}, nil, containermap.NewContainerMap()); err != nil {
		t.Fatal(err)
	}
	for _, name := range m.resources() {
		k.startPlugin(t, m, setup, name, unhealthy)
	}
	return k
}

func (k *wholeKubelet) startPlugin(t *testing.T, m *machineLayout, setup *kubeletSetup, name string, unhealthy map[string]bool) {
	t.Helper()
	var devices []*pluginapi.Device
	for i, node := range m.numa[name] {
		d := &pluginapi.Device{ID: deviceID(name, i), Health: pluginapi.Healthy}
		if unhealthy[d.ID] {
			d.Health = pluginapi.Unhealthy
		}
		if node >= 0 && (!setup.unaligned || name != gpu) {
			d.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(node)}}}
		}
		devices = append(devices, d)
	}
	k.plugins = append(k.plugins, devicemanager.StartPlugin(t, devicemanager.PluginOptions{
		Resource: name, Devices: devices,
		Preferred: func(available, must []string, size int) ([]string, error) {
			return k.prefer(k.current.Name, name, available, must, size), nil
		},
	}))
	testkit.Soon(t, "kubelet has the devices of "+name, func() bool {
		capacity, _, _ := k.devices.GetCapacity()
		return capacity.Name(v1.ResourceName(name), resource.DecimalSI).Value() == int64(len(devices))
	})
}

func (k *wholeKubelet) stop() {
	for _, p := range k.plugins {
		p.Stop()
	}
	_ = k.devices.Stop(klog.Background())
}

// admit does kubelet's admission of a new pod; a refused pod is removed at once.
func (k *wholeKubelet) admit(pod *v1.Pod) error {
	k.mu.Lock()
	k.active = append(k.active, pod)
	k.mu.Unlock()
	result := k.topology.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
	if result.Admit {
		return nil
	}
	k.remove(pod)
	return fmt.Errorf("%s: %s", result.Reason, result.Message)
}

// remove ends a pod; kubelet's managers clean up at their next call.
func (k *wholeKubelet) remove(pod *v1.Pod) {
	k.mu.Lock()
	k.active = slices.DeleteFunc(k.active, func(p *v1.Pod) bool { return p.UID == pod.UID })
	k.mu.Unlock()
	k.devices.UpdateAllocatedDevices()
	empty := &v1.Pod{}
	k.cpus.GetPodTopologyHints(empty)
	k.memory.GetPodTopologyHints(empty)
}

// recorded returns the sorted devices that kubelet recorded for a container.
func (k *wholeKubelet) recorded(pod *v1.Pod, container, resourceName string) []string {
	var out []string
	for id := range k.devices.GetDevices(string(pod.UID), container)[resourceName] {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// exclusive returns the CPUs that single containers have.
func (k *wholeKubelet) exclusive() cpuset.CPUSet {
	var all cpuset.CPUSet
	for _, containers := range k.cpus.State().GetCPUAssignments() {
		for _, cpus := range containers {
			all = all.Union(cpus)
		}
	}
	return all
}

func lowestOf(available, must []string, size int) []string {
	out := slices.Clone(must)
	for _, id := range available {
		if len(out) < size && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}
