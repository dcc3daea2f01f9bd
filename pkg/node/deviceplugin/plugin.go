// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"
)

// DefaultEnv is the environment variable that lists the container's devices.
const DefaultEnv = "NVIDIA_VISIBLE_DEVICES"

// NoNUMA is the NUMANode of a device without one.
const NoNUMA = -1

// Device is one device that the plugin offers.
type Device struct {
	// ID is the device's id in kubelet's records and in the container's environment.
	ID string
	// Unhealthy devices are listed but never allocated.
	Unhealthy bool
	// NUMANode is the device's NUMA node, or NoNUMA.
	NUMANode int
	// Paths are device nodes of the host that the container gets under the same name.
	Paths []string
}

// Config configures a device plugin. Resource, Devices and PluginDir are required.
type Config struct {
	// Resource is the extended resource, e.g. nvidia.com/gpu.
	Resource string
	// Devices are the devices at the start; SetHealth and SetDevices change them.
	Devices []Device
	// PluginDir is kubelet's directory for plugin sockets, /var/lib/kubelet/device-plugins.
	PluginDir string
	// Name is the socket's name without its suffix; by default it is made from the
	// resource.
	Name string
	// KubeletSocket is the socket to register with; by default kubelet.sock in
	// PluginDir.
	KubeletSocket string
	// Env is the environment variable that receives the comma-separated device ids; DefaultEnv by default.
	Env string
	// Preferred answers GetPreferredAllocation; without it the plugin has no preference.
	Preferred func(ctx context.Context, available, mustInclude []string, size int) ([]string, error)
	// PreStart is called before every start of a container; if nil, kubelet makes no such call.
	PreStart func(ctx context.Context, ids []string) error
}

// Plugin is a device plugin for simulated devices, or for devices that need only an environment variable
// and device nodes.
type Plugin struct {
	cfg      Config
	endpoint *Endpoint

	mu      sync.Mutex
	order   []string          // ids as given; guarded by mu
	devices map[string]Device // id -> device; guarded by mu
}

// New returns a plugin; Run serves and registers it.
func New(cfg Config, clk clock.WithTicker) (*Plugin, error) {
	if err := CheckResourceName(cfg.Resource); err != nil {
		return nil, err
	}
	if cfg.Name == "" {
		cfg.Name = SocketName(cfg.Resource)
	}
	if cfg.Name != filepath.Base(cfg.Name) {
		return nil, fmt.Errorf("socket name %q: not a plain file name", cfg.Name)
	}
	if cfg.KubeletSocket == "" {
		cfg.KubeletSocket = filepath.Join(cfg.PluginDir, filepath.Base(pluginapi.KubeletSocket))
	}
	if cfg.Env == "" {
		cfg.Env = DefaultEnv
	}
	p := &Plugin{cfg: cfg}
	endpoint, err := NewEndpoint(EndpointConfig{
		Resource:      cfg.Resource,
		Socket:        filepath.Join(cfg.PluginDir, cfg.Name+".sock"),
		KubeletSocket: cfg.KubeletSocket,
	}, p, clk)
	if err != nil {
		return nil, err
	}
	p.endpoint = endpoint
	endpoint.SetOptions(&pluginapi.DevicePluginOptions{
		GetPreferredAllocationAvailable: cfg.Preferred != nil,
		PreStartRequired:                cfg.PreStart != nil,
	})
	if err := p.SetDevices(cfg.Devices); err != nil {
		return nil, err
	}
	return p, nil
}

// SocketName returns a resource's name with "_" for its slash, for use as a file name. No domain has an
// underscore.
func SocketName(resource string) string { return strings.ReplaceAll(resource, "/", "_") }

// Run serves the plugin and keeps it registered until ctx ends. It may be called once.
func (p *Plugin) Run(ctx context.Context) error {
	if err := p.endpoint.Bind(); err != nil {
		return fmt.Errorf("device plugin of %q: %w", p.cfg.Resource, err)
	}
	p.endpoint.Run(ctx)
	return nil
}

// Registered reports whether kubelet, or the proxy in front of it, follows the device list now.
func (p *Plugin) Registered() bool { return p.endpoint.Registered() }

// SetDevices replaces all devices.
func (p *Plugin) SetDevices(devices []Device) error {
	order := make([]string, 0, len(devices))
	byID := make(map[string]Device, len(devices))
	for _, d := range devices {
		if d.ID == "" {
			return errors.New("a device has no id")
		}
		if _, twice := byID[d.ID]; twice {
			return fmt.Errorf("device %q is listed twice", d.ID)
		}
		order, byID[d.ID] = append(order, d.ID), d
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.order, p.devices = order, byID
	p.publishLocked()
	return nil
}

// SetHealth changes the health of one device.
func (p *Plugin) SetHealth(id string, healthy bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	d, ok := p.devices[id]
	if !ok {
		return fmt.Errorf("no device %q", id)
	}
	if d.Unhealthy == healthy {
		d.Unhealthy = !healthy
		p.devices = maps.Clone(p.devices)
		p.devices[id] = d
		p.publishLocked()
	}
	return nil
}

// publishLocked publishes the device list. The caller holds mu, so that lists are published in the order
// of the changes.
func (p *Plugin) publishLocked() {
	list := make([]*pluginapi.Device, 0, len(p.order))
	for _, id := range p.order {
		d := &pluginapi.Device{ID: id, Health: pluginapi.Healthy}
		if p.devices[id].Unhealthy {
			d.Health = pluginapi.Unhealthy
		}
		if n := p.devices[id].NUMANode; n != NoNUMA {
			d.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: int64(n)}}}
		}
		list = append(list, d)
	}
	p.endpoint.Publish(list)
}

// GetPreferredAllocation answers with the configured preference.
func (p *Plugin) GetPreferredAllocation(ctx context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	if p.cfg.Preferred == nil {
		return nil, status.Errorf(codes.Unimplemented, "%s has no preferred allocation", p.cfg.Resource)
	}
	out := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.GetContainerRequests() {
		ids, err := p.cfg.Preferred(ctx, c.GetAvailableDeviceIDs(), c.GetMustIncludeDeviceIDs(), int(c.GetAllocationSize()))
		if err != nil {
			return nil, fmt.Errorf("preferring %d of %s: %w", c.GetAllocationSize(), p.cfg.Resource, err)
		}
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

// Allocate returns the environment variable and device nodes of the requested devices, in kubelet's
// order.
func (p *Plugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	p.mu.Lock()
	devices := p.devices
	p.mu.Unlock()
	out := &pluginapi.AllocateResponse{}
	for _, c := range r.GetContainerRequests() {
		resp := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{p.cfg.Env: strings.Join(c.GetDevicesIds(), ",")}}
		for _, id := range c.GetDevicesIds() {
			d, ok := devices[id]
			switch {
			case !ok:
				return nil, status.Errorf(codes.InvalidArgument, "no device %q of %s", id, p.cfg.Resource)
			case d.Unhealthy:
				return nil, status.Errorf(codes.FailedPrecondition, "device %q of %s is unhealthy", id, p.cfg.Resource)
			}
			for _, path := range d.Paths {
				resp.Devices = append(resp.Devices, &pluginapi.DeviceSpec{ContainerPath: path, HostPath: path, Permissions: "rw"})
			}
		}
		out.ContainerResponses = append(out.ContainerResponses, resp)
	}
	return out, nil
}

// PreStartContainer calls the configured hook.
func (p *Plugin) PreStartContainer(ctx context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	if p.cfg.PreStart != nil {
		if err := p.cfg.PreStart(ctx, r.GetDevicesIds()); err != nil {
			return nil, fmt.Errorf("starting a container with %s: %w", p.cfg.Resource, err)
		}
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

// FirstN returns the ids that must be included, and then the first available ids in alphabetical order.
// It is the simplest preference, for tests and simulations.
func FirstN(_ context.Context, available, mustInclude []string, size int) ([]string, error) {
	out := slices.Clone(mustInclude)
	for _, id := range slices.Sorted(slices.Values(available)) {
		if len(out) >= size {
			break
		}
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	if len(out) != size {
		return nil, fmt.Errorf("%d of %d ids with %d that must be included", size, len(available), len(mustInclude))
	}
	return out, nil
}
