// SPDX-License-Identifier: Apache-2.0

// Package kubelettest simulates the device plugin side of a kubelet, for tests. Like kubelet 1.35, it
// removes sockets when it starts, connects back when a plugin registers, follows ListAndWatch, and drops
// the current client of a resource when any of its streams ends. After KeepSockets it behaves like
// kubelet 1.37.
//
// Invariant: it tolerates nothing of a plugin that kubelet does not. It keeps no record of pods;
// test/kubelet has the real device manager.
package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
)

// Kubelet is one run of a simulated kubelet, from Start to Stop.
type Kubelet struct {
	pluginapi.UnimplementedRegistrationServer

	dir    string
	server *grpc.Server
	wg     sync.WaitGroup

	mu        sync.Mutex
	stopped   bool                // guarded by mu
	refuse    error               // answer to Register; guarded by mu
	resources map[string]*Current // current client by resource; guarded by mu
	count     map[string]int      // registrations by resource; guarded by mu
	requests  map[string]*pluginapi.RegisterRequest
	changed   chan struct{} // closed and replaced when something changes; guarded by mu
	// sockets holds the sockets that plugins have registered with since KeepSockets; true means that kubelet
	// no longer notices the plugin's end. Guarded by mu.
	sockets map[string]bool
}

// KeepSockets makes k refuse a registration on a socket that is in use, as kubelet 1.37 does. After such
// a registration the socket remains in use until kubelet ends: kubelet then forgets its client and is not
// told when that client ends.
func (k *Kubelet) KeepSockets() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sockets = map[string]bool{}
}

// Current is a kubelet's record of the plugin of one resource.
type Current struct {
	Client  pluginapi.DevicePluginClient
	Options *pluginapi.DevicePluginOptions
	// Devices is the last list, nil before the first.
	Devices []*pluginapi.Device
	// Stopped is set once the plugin's stream ended: kubelet then treats all its devices as unhealthy.
	Stopped bool
	conn    *grpc.ClientConn
}

// Start removes the sockets in dir, as a starting kubelet does, and listens there.
func Start(dir string) (*Kubelet, error) { return StartRefusing(dir, nil) }

// StartRefusing is Start for a kubelet that answers every registration with refuse.
func StartRefusing(dir string, refuse error) (*Kubelet, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("creating %q: %w", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading %q: %w", dir, err)
	}
	for _, e := range entries {
		if e.Type()&os.ModeSocket != 0 {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, fmt.Errorf("wiping: %w", err)
			}
		}
	}
	// Listening creates the file first and accepts connections later. The rename lets a plugin see the
	// socket only once it can connect.
	early := filepath.Join(dir, "early.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: early, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	if err := os.Rename(early, filepath.Join(dir, "kubelet.sock")); err != nil {
		return nil, fmt.Errorf("naming the socket: %w", err)
	}
	// A killed kubelet leaves its socket behind.
	listener.SetUnlinkOnClose(false)
	k := &Kubelet{
		dir: dir, server: grpc.NewServer(), refuse: refuse, changed: make(chan struct{}),
		resources: map[string]*Current{}, count: map[string]int{}, requests: map[string]*pluginapi.RegisterRequest{},
	}
	pluginapi.RegisterRegistrationServer(k.server, k)
	k.wg.Go(func() { _ = k.server.Serve(listener) })
	return k, nil
}

// Stop ends this run as SIGKILL does: connections break, files stay.
func (k *Kubelet) Stop() {
	k.mu.Lock()
	k.stopped = true
	for _, c := range k.resources {
		_ = c.conn.Close()
	}
	k.mu.Unlock()
	k.server.Stop()
	k.wg.Wait()
}

// Refuse makes every registration fail with err; nil lets them succeed again.
func (k *Kubelet) Refuse(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse = err
}

// Drop closes the connection to a resource's plugin.
func (k *Kubelet) Drop(resource string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.resources[resource]; c != nil {
		_ = c.conn.Close()
	}
}

// Register connects back to the plugin and follows it.
func (k *Kubelet) Register(ctx context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.mu.Lock()
	refuse := k.refuse
	k.mu.Unlock()
	if refuse != nil {
		return nil, refuse
	}
	conn, err := deviceplugin.Dial(filepath.Join(k.dir, r.GetEndpoint()))
	if err != nil {
		return nil, err
	}
	c := &Current{Client: pluginapi.NewDevicePluginClient(conn), conn: conn}
	if c.Options, err = c.Client.GetDevicePluginOptions(ctx, &pluginapi.Empty{}); err != nil {
		return nil, errors.Join(fmt.Errorf("getting options: %w", err), conn.Close())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return nil, errors.Join(errors.New("stopped"), conn.Close())
	}
	if k.sockets != nil {
		if _, connected := k.sockets[r.GetEndpoint()]; connected {
			k.sockets[r.GetEndpoint()] = true
			return nil, errors.Join(fmt.Errorf("device plugin already connected: %s", r.GetEndpoint()), conn.Close())
		}
		k.sockets[r.GetEndpoint()] = false
	}
	k.resources[r.GetResourceName()] = c
	k.count[r.GetResourceName()]++
	k.requests[r.GetResourceName()] = r
	k.notifyLocked()
	k.wg.Go(func() { k.follow(context.WithoutCancel(ctx), r, c) })
	return &pluginapi.Empty{}, nil
}

// follow receives the plugin's device lists until the connection ends, as kubelet does.
func (k *Kubelet) follow(ctx context.Context, r *pluginapi.RegisterRequest, c *Current) {
	stream, err := c.Client.ListAndWatch(ctx, &pluginapi.Empty{})
	for err == nil {
		var resp *pluginapi.ListAndWatchResponse
		if resp, err = stream.Recv(); err == nil {
			k.mu.Lock()
			c.Devices = resp.GetDevices()
			k.notifyLocked()
			k.mu.Unlock()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sockets != nil {
		c.Stopped = true
		if !k.sockets[r.GetEndpoint()] {
			delete(k.sockets, r.GetEndpoint())
		}
	} else if current := k.resources[r.GetResourceName()]; current != nil {
		// The current client, which may not be the one whose stream ended.
		current.Stopped = true
		_ = current.conn.Close()
	}
	k.notifyLocked()
}

func (k *Kubelet) notifyLocked() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Get returns the current record of a resource, and the number of its registrations.
func (k *Kubelet) Get(resource string) (Current, int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.resources[resource]
	if c == nil {
		return Current{}, 0
	}
	return *c, k.count[resource]
}

// Request returns the last registration of a resource, or nil.
func (k *Kubelet) Request(resource string) *pluginapi.RegisterRequest {
	k.mu.Lock()
	defer k.mu.Unlock()
	return proto.CloneOf(k.requests[resource])
}

// Wait returns the record of the resource once ok accepts it.
func (k *Kubelet) Wait(ctx context.Context, resource string, ok func(Current) bool) (Current, error) {
	for {
		k.mu.Lock()
		changed := k.changed
		k.mu.Unlock()
		c, _ := k.Get(resource)
		if c.Client != nil && ok(c) {
			return c, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return c, fmt.Errorf("resource %q: %w; devices %v, stopped %v", resource, ctx.Err(), c.Devices, c.Stopped)
		}
	}
}
