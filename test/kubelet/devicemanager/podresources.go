// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"google.golang.org/grpc"

	v1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	apisgrpc "k8s.io/kubernetes/pkg/kubelet/apis/grpc"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	kubeletdm "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
)

// servePodResources serves kubelet's PodResources with kubelet's rate limit. It repeats kubelet's few
// lines because those exit the process on any error.
func (m *Manager) servePodResources() error {
	ctx := context.Background()
	if err := os.MkdirAll(filepath.Dir(PodResourcesSocket), 0o755); err != nil {
		return fmt.Errorf("PodResources: %w", err)
	}
	if err := os.Remove(PodResourcesSocket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("PodResources: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", PodResourcesSocket)
	if err != nil {
		return fmt.Errorf("PodResources: %w", err)
	}
	server := grpc.NewServer(apisgrpc.WithRateLimiter(ctx, "podresources", podresources.DefaultQPS, podresources.DefaultBurstTokens))
	podresourcesapi.RegisterPodResourcesListerServer(server, podresources.NewV1PodResourcesServer(ctx, podresources.PodResourcesProviders{
		Pods: pods{m}, Devices: devices{m.devices()}, Cpus: nothing{}, Memory: nothing{}, DynamicResources: nothing{},
	}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with Stop
	}()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.process.rpc, m.process.rpcDone = server, done
	return nil
}

// pods is kubelet's kubeletPodsProvider.
type pods struct{ m *Manager }

func (p pods) GetActivePods() []*v1.Pod { return p.m.activePods() }

func (p pods) GetPods() []*v1.Pod { return p.m.pods.GetPods() }

func (p pods) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	pod, found := p.m.pods.GetPodByName(namespace, name)
	if !found || p.m.phase(pod) == inactive {
		return nil, false
	}
	return pod, true
}

// devices is the part of kubelet's container manager that PodResources calls.
type devices struct{ manager *kubeletdm.ManagerImpl }

func (d devices) UpdateAllocatedDevices() { d.manager.UpdateAllocatedDevices() }

func (d devices) GetDevices(podUID, container string) []*podresourcesapi.ContainerDevices {
	return containerDevices(d.manager.GetDevices(podUID, container))
}

func (d devices) GetAllocatableDevices() []*podresourcesapi.ContainerDevices {
	return containerDevices(d.manager.GetAllocatableDevices())
}

// containerDevices returns one entry for every device and NUMA node, as kubelet does.
func containerDevices(in kubeletdm.ResourceDeviceInstances) []*podresourcesapi.ContainerDevices {
	var out []*podresourcesapi.ContainerDevices
	for resource, instances := range in {
		for id, device := range instances {
			nodes := device.GetTopology().GetNodes()
			if device.GetTopology() == nil {
				out = append(out, &podresourcesapi.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
				continue
			}
			for _, n := range nodes {
				out = append(out, &podresourcesapi.ContainerDevices{
					ResourceName: resource, DeviceIds: []string{id},
					Topology: &podresourcesapi.TopologyInfo{Nodes: []*podresourcesapi.NUMANode{{ID: n.GetID()}}},
				})
			}
		}
	}
	return out
}

// nothing stands for CPU, memory and dynamic resource managers without allocations.
type nothing struct{}

func (nothing) GetCPUs(string, string) []int64                              { return nil }
func (nothing) GetAllocatableCPUs() []int64                                 { return nil }
func (nothing) GetMemory(string, string) []*podresourcesapi.ContainerMemory { return nil }
func (nothing) GetAllocatableMemory() []*podresourcesapi.ContainerMemory    { return nil }
func (nothing) GetDynamicResources(*v1.Pod, *v1.Container) []*podresourcesapi.DynamicResource {
	return nil
}
