// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"
)

// Timing of an endpoint.
const (
	// poll is how often an endpoint looks for changes that the file watcher missed.
	poll = 2 * time.Second
	// settle is the time between the end of kubelet's stream and the next registration.
	// When any stream of a resource ends, kubelet drops *the current* client of that
	// resource (runClient in its device plugin server), so it would drop a registration
	// that comes too early. The time doubles, up to maxBackoff, while streams last less
	// than shortLived.
	settle     = 50 * time.Millisecond
	shortLived = 5 * time.Second
	// streamWait is how long kubelet may take to open its stream after it has accepted
	// a registration.
	streamWait = 3 * time.Second
	// registerTimeout is longer than kubelet's own 10 s for connecting back.
	registerTimeout = 12 * time.Second
	// A failed registration is tried again after minBackoff, doubling to maxBackoff.
	minBackoff = 100 * time.Millisecond
	maxBackoff = poll
)

// Handler answers the three calls of the plugin API that depend on the devices; Endpoint answers the
// others.
type Handler interface {
	GetPreferredAllocation(context.Context, *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error)
	Allocate(context.Context, *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error)
	PreStartContainer(context.Context, *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error)
}

// EndpointConfig configures an endpoint.
type EndpointConfig struct {
	// Resource is the extended resource, e.g. nvidia.com/gpu.
	Resource string
	// Socket is the path at which the plugin API is served. Each registration passes kubelet its own name
	// for it, in the same directory.
	Socket string
	// KubeletSocket is the path of the Registration service to register with.
	KubeletSocket string
	// Registered is called with the result of every registration; may be nil.
	Registered func(error)
}

// Endpoint serves one resource and keeps it registered with a kubelet. It registers
// nothing before both SetOptions and Publish have been called.
type Endpoint struct {
	pluginapi.UnimplementedDevicePluginServer

	cfg     EndpointConfig
	handler Handler
	clk     clock.WithTicker
	socket  *Socket
	wake    chan struct{} // has room for one token: wakes the loop of Run

	mu      sync.Mutex
	options *pluginapi.DevicePluginOptions // guarded by mu; nil before SetOptions
	list    *pluginapi.ListAndWatchResponse
	changed chan struct{} // closed and replaced when list changes; guarded by mu
	cut     chan struct{} // closed and replaced to end all streams; guarded by mu
	reg     registration  // guarded by mu
	live    int           // open streams; guarded by mu
	opened  time.Time     // when the last stream began; guarded by mu
	ended   time.Time     // when the last stream ended; guarded by mu
	pause   time.Duration // time from ended to the next registration with the same kubelet; guarded by mu

	last  int64 // number of the last name; only Run uses it
	taken bool  // it was logged that another process serves the socket; only Run uses it
}

// registration is one attempt to register.
type registration struct {
	kubelet  FileID
	options  *pluginapi.DevicePluginOptions
	accepted time.Time // zero while kubelet has not accepted it
	opened   bool      // kubelet opened its stream
}

// NewEndpoint makes an endpoint; Run serves it.
func NewEndpoint(cfg EndpointConfig, handler Handler, clk clock.WithTicker) (*Endpoint, error) {
	if err := CheckResourceName(cfg.Resource); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(cfg.KubeletSocket) {
		return nil, fmt.Errorf("kubelet's socket %q: the path is not absolute", cfg.KubeletSocket)
	}
	e := &Endpoint{
		cfg: cfg, handler: handler, clk: clk,
		wake: make(chan struct{}, 1), changed: make(chan struct{}), cut: make(chan struct{}), pause: settle,
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, e)
	socket, err := NewSocket(cfg.Socket, server)
	if err != nil {
		return nil, err
	}
	e.socket = socket
	return e, nil
}

// SetOptions sets which optional calls kubelet makes. Kubelet reads the options once per registration, so
// a change registers again.
func (e *Endpoint) SetOptions(options *pluginapi.DevicePluginOptions) {
	e.mu.Lock()
	e.options = proto.CloneOf(options)
	e.mu.Unlock()
	e.Wake()
}

// Publish sends devices to kubelet as the new list. The caller must not change it
// afterwards.
func (e *Endpoint) Publish(devices []*pluginapi.Device) {
	e.mu.Lock()
	e.list = &pluginapi.ListAndWatchResponse{Devices: devices}
	close(e.changed)
	e.changed = make(chan struct{})
	e.mu.Unlock()
	e.Wake()
}

// Registered reports whether kubelet follows the list now.
func (e *Endpoint) Registered() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live > 0
}

// Wake makes Run check the sockets now.
func (e *Endpoint) Wake() {
	select {
	case e.wake <- struct{}{}:
	default: // Run is already woken
	}
}

// Bind serves the socket before Run does, so that a caller learns of a failure at once.
func (e *Endpoint) Bind() error { return e.socket.Bind() }

// Run serves the endpoint and keeps it registered until ctx ends. It may be called
// once.
func (e *Endpoint) Run(ctx context.Context) {
	logger := klog.FromContext(ctx).WithValues("resource", e.cfg.Resource)
	ctx = klog.NewContext(ctx, logger)
	defer e.socket.Close()
	watcher := NewWatcher(logger, e.cfg.Socket, e.cfg.KubeletSocket)
	defer watcher.Close()
	backoff := minBackoff
	for ctx.Err() == nil {
		watcher.Refresh()
		delay, failed := e.look(ctx, backoff)
		backoff = minBackoff
		if failed {
			backoff = min(2*delay, maxBackoff)
		}
		if watcher.Wait(ctx, e.clk, delay, e.wake) {
			// The files changed, so what failed before may work now.
			backoff = minBackoff
		}
	}
}

// look repairs what the sockets or the registration need. It returns the longest time until the next
// look, and whether a step failed and must be retried after backoff.
func (e *Endpoint) look(ctx context.Context, backoff time.Duration) (delay time.Duration, failed bool) {
	logger := klog.FromContext(ctx)
	state := e.socket.State()
	if taken := state == Taken; taken != e.taken {
		e.taken = taken
		logger.Info("Another process took or left the plugin socket", "socket", e.cfg.Socket, "taken", taken)
	}
	switch state {
	case Bound:
	case Taken:
		return poll, false
	case Unbound:
		if err := e.socket.Bind(); err != nil {
			logger.Error(err, "Cannot serve the plugin socket")
			return backoff, true
		}
		logger.Info("Serving the plugin socket", "socket", e.cfg.Socket)
	}
	kubelet, ok := IdentifySocket(e.cfg.KubeletSocket)
	if !ok {
		return poll, false // the watcher reports when it appears
	}
	req, delay := e.begin(kubelet)
	if req == nil {
		return delay, false
	}
	req.Endpoint = e.name(logger)
	err := Register(ctx, e.cfg.KubeletSocket, req, registerTimeout)
	if ctx.Err() != nil {
		return 0, false
	}
	if e.cfg.Registered != nil {
		e.cfg.Registered(err)
	}
	if err != nil {
		logger.V(2).Info("Registration failed; trying again", "in", backoff, "err", err)
		return backoff, true
	}
	e.mu.Lock()
	e.reg.accepted = e.clk.Now()
	e.mu.Unlock()
	logger.Info("Registered", "kubelet", e.cfg.KubeletSocket, "endpoint", req.GetEndpoint())
	return streamWait, false
}

// name returns a socket name that no earlier registration used. A kubelet since 1.37 identifies plugins
// by their sockets, refuses one that it believes connected, and may go on refusing it until it restarts.
// A registrar in another directory, such as the node agent, gets the socket's own name.
func (e *Endpoint) name(logger klog.Logger) string {
	if filepath.Dir(e.cfg.KubeletSocket) != filepath.Dir(e.cfg.Socket) {
		return filepath.Base(e.cfg.Socket)
	}
	var name string
	err := fs.ErrExist
	for tries := 0; errors.Is(err, fs.ErrExist) && tries < 16; tries++ { // the process before may have the same time
		e.last = max(e.clk.Now().UnixMilli(), e.last+1)
		name, err = e.socket.Alias(e.last)
	}
	if err != nil {
		logger.Error(err, "Registering by the socket's own name, which kubelet 1.37 and later may refuse")
		return filepath.Base(e.cfg.Socket)
	}
	e.socket.RemoveAliases(name) // begin returns a request only while kubelet has no ListAndWatch stream
	return name
}

// begin returns the registration request that is due, or nil and the time until the next check.
func (e *Endpoint) begin(kubelet FileID) (*pluginapi.RegisterRequest, time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.options == nil || e.list == nil {
		return nil, poll
	}
	sameKubelet := e.reg.kubelet.Equal(kubelet)
	same := sameKubelet && proto.Equal(e.reg.options, e.options)
	if !sameKubelet {
		e.pause = settle
	}
	now := e.clk.Now()
	switch {
	case same && e.live > 0:
		return nil, poll
	case same && !e.reg.opened && now.Sub(e.reg.accepted) < streamWait:
		return nil, streamWait - now.Sub(e.reg.accepted) // accepted; wait for the stream
	case e.live > 0:
		// These streams belong to an earlier kubelet or to earlier options.
		close(e.cut)
		e.cut = make(chan struct{})
		return nil, settle
	case now.Sub(e.ended) < e.pause && !e.ended.IsZero():
		return nil, e.pause - now.Sub(e.ended)
	}
	e.reg = registration{kubelet: kubelet, options: e.options}
	return &pluginapi.RegisterRequest{
		Version:      pluginapi.Version,
		ResourceName: e.cfg.Resource,
		Options:      e.options,
	}, 0
}

// GetDevicePluginOptions is called by kubelet during a registration.
func (e *Endpoint) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.options == nil {
		return nil, errors.New("the options are not known yet")
	}
	return proto.CloneOf(e.options), nil
}

// GetPreferredAllocation passes the request to the handler.
func (e *Endpoint) GetPreferredAllocation(ctx context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	return e.handler.GetPreferredAllocation(ctx, r)
}

// Allocate passes the request to the handler.
func (e *Endpoint) Allocate(ctx context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	return e.handler.Allocate(ctx, r)
}

// PreStartContainer passes the request to the handler.
func (e *Endpoint) PreStartContainer(ctx context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	return e.handler.PreStartContainer(ctx, r)
}

// ListAndWatch sends every published list to kubelet. If several are published while one is being sent,
// only the last of them is sent.
func (e *Endpoint) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	e.mu.Lock()
	cut := e.cut
	e.reg.opened = true
	e.opened = e.clk.Now()
	e.live++
	e.mu.Unlock()
	defer e.streamEnded()
	for {
		e.mu.Lock()
		list, changed := e.list, e.changed
		e.mu.Unlock()
		if list != nil {
			if err := stream.Send(list); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-cut:
			return nil
		case <-changed:
		}
	}
}

func (e *Endpoint) streamEnded() {
	e.mu.Lock()
	e.live--
	e.ended = e.clk.Now()
	if e.ended.Sub(e.opened) < shortLived {
		e.pause = min(2*e.pause, maxBackoff)
	} else {
		e.pause = settle
	}
	if e.live > 0 {
		// Kubelet drops the resource's current client when any of its streams ends, so
		// the other streams are useless now.
		close(e.cut)
		e.cut = make(chan struct{})
	}
	e.mu.Unlock()
	e.Wake()
}
