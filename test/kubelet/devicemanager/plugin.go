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
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// VisibleEnv is the variable with a container's devices that a [Plugin] sets.
const VisibleEnv = "NVIDIA_VISIBLE_DEVICES"

// Call is one RPC that a plugin received.
type Call struct {
	RPC       string   // GetPreferredAllocation, Allocate or PreStartContainer
	Available []string // of GetPreferredAllocation, sorted
	Must      []string // of GetPreferredAllocation, sorted
	Size      int      // of GetPreferredAllocation
	IDs       []string // of Allocate and PreStartContainer, in the order received
}

// PluginOptions describes a device plugin with scripted answers.
type PluginOptions struct {
	Resource      string
	KubeletSocket string // to register with; "" means kubelet's own
	Dir           string // of the plugin's own socket; "" means PluginDir
	Devices       []*pluginapi.Device

	// Preferred answers GetPreferredAllocation; nil means that the plugin does not offer it.
	Preferred func(available, must []string, size int) ([]string, error)
	// Allocate is called inside the RPC; an error refuses the container.
	Allocate func(ids []string) error
	// PreStart is called inside PreStartContainer; nil means that the plugin does
	// not want it.
	PreStart func(ids []string) error
}

// Plugin is a device plugin with scripted answers that records its calls. Like NVIDIA's it starts over
// whenever the socket it registers with is recreated, and does not notice if its own is removed.
type Plugin struct {
	pluginapi.UnimplementedDevicePluginServer
	options PluginOptions
	socket  string

	mu      sync.Mutex // guards the fields below
	calls   []Call
	devices []*pluginapi.Device
	changed chan struct{} // closed when devices change
	stop    context.CancelFunc
	done    chan struct{}
}

// StartPlugin runs a plugin until the test ends or Stop is called.
func StartPlugin(tb testing.TB, options PluginOptions) *Plugin {
	tb.Helper()
	if options.KubeletSocket == "" {
		options.KubeletSocket = KubeletSocket
	}
	if options.Dir == "" {
		options.Dir = PluginDir
	}
	name := "stub-" + strings.ReplaceAll(options.Resource, "/", "-") + ".sock"
	p := &Plugin{
		options: options,
		socket:  filepath.Join(options.Dir, name),
		devices: options.Devices,
		changed: make(chan struct{}),
	}
	p.Start()
	tb.Cleanup(p.Stop)
	return p
}

// Start runs a stopped plugin again.
func (p *Plugin) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	p.mu.Lock()
	p.stop, p.done = cancel, done
	p.mu.Unlock()
	go func() {
		defer close(done)
		p.run(ctx)
	}()
}

// Stop ends the plugin as SIGKILL would: connections break, its socket stays.
func (p *Plugin) Stop() {
	p.mu.Lock()
	stop, done := p.stop, p.done
	p.mu.Unlock()
	stop()
	<-done
}

// run serves and registers, and again each time the kubelet socket is recreated.
func (p *Plugin) run(ctx context.Context) {
	for ctx.Err() == nil {
		before := identity(p.options.KubeletSocket)
		if before == nil {
			pause(ctx)
			continue
		}
		server, err := p.serve(ctx)
		if err == nil && p.register(ctx) == nil {
			for ctx.Err() == nil && same(before, identity(p.options.KubeletSocket)) {
				pause(ctx)
			}
		}
		if server != nil {
			server.Stop()
		}
		pause(ctx)
	}
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Millisecond):
	}
}

func identity(path string) fs.FileInfo {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return info
}

// same compares sockets by inode and time: a tmpfs may give a new socket the inode of the one it
// replaces.
func same(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

// serve listens on the plugin's socket; a left-over one is replaced.
func (p *Plugin) serve(ctx context.Context) (*grpc.Server, error) {
	if err := os.Remove(p.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("plugin of %s: %w", p.options.Resource, err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", p.socket)
	if err != nil {
		return nil, fmt.Errorf("plugin of %s: %w", p.options.Resource, err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, p)
	go func() { _ = server.Serve(listener) }() // ends with server.Stop
	return server, nil
}

func (p *Plugin) register(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+p.options.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("dialling %s: %w", p.options.KubeletSocket, err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: filepath.Base(p.socket), ResourceName: p.options.Resource, Options: p.wants(),
	})
	if err != nil {
		return fmt.Errorf("registering %s: %w", p.options.Resource, err)
	}
	return nil
}

func (p *Plugin) wants() *pluginapi.DevicePluginOptions {
	return &pluginapi.DevicePluginOptions{
		PreStartRequired:                p.options.PreStart != nil,
		GetPreferredAllocationAvailable: p.options.Preferred != nil,
	}
}

// SetDevices replaces the list of devices.
func (p *Plugin) SetDevices(devices []*pluginapi.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.devices = devices
	close(p.changed)
	p.changed = make(chan struct{})
}

// Calls returns the RPCs since its last call.
func (p *Plugin) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.calls
	p.calls = nil
	return out
}

func (p *Plugin) called(c Call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, c)
}

// GetDevicePluginOptions is part of the device plugin API.
func (p *Plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return p.wants(), nil
}

// ListAndWatch is part of the device plugin API.
func (p *Plugin) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	for {
		p.mu.Lock()
		devices, changed := p.devices, p.changed
		p.mu.Unlock()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: devices}); err != nil {
			return err
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// GetPreferredAllocation is part of the device plugin API.
func (p *Plugin) GetPreferredAllocation(_ context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	out := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		available, must := sorted(c.AvailableDeviceIDs), sorted(c.MustIncludeDeviceIDs)
		p.called(Call{RPC: "GetPreferredAllocation", Available: available, Must: must, Size: int(c.AllocationSize)})
		ids, err := p.options.Preferred(available, must, int(c.AllocationSize))
		if err != nil {
			return nil, err
		}
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

// Allocate is part of the device plugin API.
func (p *Plugin) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	out := &pluginapi.AllocateResponse{}
	for _, c := range r.ContainerRequests {
		p.called(Call{RPC: "Allocate", IDs: slices.Clone(c.DevicesIds)})
		if p.options.Allocate != nil {
			if err := p.options.Allocate(c.DevicesIds); err != nil {
				return nil, err
			}
		}
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{VisibleEnv: strings.Join(sorted(c.DevicesIds), ",")},
		})
	}
	return out, nil
}

// PreStartContainer is part of the device plugin API.
func (p *Plugin) PreStartContainer(_ context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	p.called(Call{RPC: "PreStartContainer", IDs: slices.Clone(r.DevicesIds)})
	if p.options.PreStart != nil {
		if err := p.options.PreStart(r.DevicesIds); err != nil {
			return nil, err
		}
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

func sorted(ids []string) []string { return slices.Sorted(slices.Values(ids)) }
