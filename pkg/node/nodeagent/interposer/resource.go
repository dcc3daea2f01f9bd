// SPDX-License-Identifier: Apache-2.0

package interposer

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
)

// resource is one extended resource: an inner plugin that comes and goes, and a
// permanent endpoint that kubelet sees.
//
//	attach ─► (first list) fed ─► (stream ends) held ─► (Hold) expired
//	             ▲                      │                   │
//	             └───── attach, list ───┴───────────────────┘
type resource struct {
	name     string
	cfg      Config
	steering Steering
	clk      clock.WithTicker
	metrics  *metrics
	endpoint *deviceplugin.Endpoint

	// publishing serializes publish: Steering and kubelet receive the lists in the order of their arrival.
	publishing sync.Mutex

	mu       sync.Mutex
	inner    *inner              // nil while the plugin is away; guarded by mu
	attached chan struct{}       // closed and replaced when inner is set; guarded by mu
	devices  []*pluginapi.Device // the list that kubelet has; guarded by mu
	fed      bool                // devices came from the current plugin; guarded by mu
	resumed  chan struct{}       // closed when fed becomes true; guarded by mu
	lost     time.Time           // when fed became false; guarded by mu
	nudged   bool                // nudge returned true since lost; guarded by mu
	// innerPreStart is set if the plugin requires PreStartContainer, or did when last connected; guarded by
	// mu.
	innerPreStart bool
}

func (i *Interposer) newResource(name string) (*resource, error) {
	r := &resource{
		name: name, cfg: i.cfg, steering: i.steering, clk: i.clk, metrics: i.metrics,
		attached: make(chan struct{}), resumed: make(chan struct{}), lost: i.clk.Now(),
	}
	var err error
	r.endpoint, err = deviceplugin.NewEndpoint(deviceplugin.EndpointConfig{
		Resource:      name,
		Socket:        socketPath(i.cfg.PluginDir, name),
		KubeletSocket: filepath.Join(i.cfg.PluginDir, kubeletSocketName),
		Registered: func(err error) {
			i.metrics.registered(sideKubelet, err)
			if err == nil && i.cfg.OnRegistered != nil {
				i.cfg.OnRegistered(name)
			}
		},
	}, r, i.clk)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// attach replaces the resource's plugin by the registration in. The old list stays until the new plugin
// sends its own. The connection to the old plugin is closed only if the endpoint is the same. A plugin
// with another endpoint is another process. Kubelet leaves such a plugin alone, and so does the agent:
// otherwise it could take the end of its stream as a reason to register again.
func (r *resource) attach(ctx context.Context, in *inner) {
	r.mu.Lock()
	old := r.inner
	r.inner = in
	r.innerPreStart = in.options.GetPreStartRequired()
	close(r.attached)
	r.attached = make(chan struct{})
	r.mu.Unlock()
	if old != nil && old.endpoint == in.endpoint {
		old.close()
	}
	klog.FromContext(ctx).Info("Device plugin registered", "resource", r.name, "endpoint", in.endpoint, "replaces", old != nil)
	options := proto.CloneOf(in.options)
	options.GetPreferredAllocationAvailable = true
	options.PreStartRequired = in.options.GetPreStartRequired() || r.cfg.PreStart
	r.endpoint.SetOptions(options)
}

// follow publishes the lists of in until its stream ends, and then holds the last list for a while.
func (r *resource) follow(ctx context.Context, in *inner) {
	err := r.receive(ctx, in)
	in.close()
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	current := r.inner == in
	if current {
		r.inner = nil
	}
	hold := current && r.fed // else it is held already, or no list exists to hold
	if hold {
		r.fed, r.lost, r.nudged = false, r.clk.Now(), false
		r.resumed = make(chan struct{})
	}
	resumed := r.resumed
	r.mu.Unlock()
	if !current {
		return
	}
	logger := klog.FromContext(ctx)
	logger.Info("Device plugin went away; its devices are kept for a while", "resource", r.name, "hold", r.cfg.Hold, "err", err)
	if hold {
		r.hold(ctx, resumed)
	}
}

func (r *resource) receive(ctx context.Context, in *inner) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := in.client.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		return fmt.Errorf("asking for the devices: %w", err)
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("waiting for devices: %w", err)
		}
		r.publish(ctx, resp.GetDevices(), func() bool {
			if r.inner != in {
				return false // a newer registration replaced it
			}
			if !r.fed {
				r.fed = true
				close(r.resumed)
			}
			return true
		})
	}
}

// hold waits until a plugin has registered again and sent a list. If none comes within Config.Hold, all
// devices become unhealthy.
func (r *resource) hold(ctx context.Context, resumed <-chan struct{}) {
	timer := r.clk.NewTimer(r.cfg.Hold)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-resumed:
		return
	case <-timer.C():
	}
	r.mu.Lock()
	devices := make([]*pluginapi.Device, len(r.devices))
	for i, d := range r.devices {
		devices[i] = proto.CloneOf(d)
		devices[i].Health = pluginapi.Unhealthy
	}
	r.mu.Unlock()
	if r.publish(ctx, devices, func() bool { return r.resumed == resumed && !r.fed }) {
		klog.FromContext(ctx).Info("Device plugin did not come back; its devices are unhealthy", "resource", r.name, "devices", len(devices))
	}
}

// publish sends devices to Steering and kubelet, unless still, which is called under mu, returns false.
func (r *resource) publish(ctx context.Context, devices []*pluginapi.Device, still func() bool) bool {
	if r.cfg.StripNUMA {
		devices = withoutNUMA(devices)
	}
	healthy := make(map[string]bool, len(devices))
	for _, d := range devices {
		healthy[d.GetID()] = d.GetHealth() == pluginapi.Healthy
	}
	r.publishing.Lock()
	defer r.publishing.Unlock()
	r.mu.Lock()
	if !still() {
		r.mu.Unlock()
		return false
	}
	before := r.devices
	r.devices = devices
	r.mu.Unlock()
	r.logChange(ctx, before, healthy)
	r.steering.Devices(r.name, healthy)
	r.endpoint.Publish(devices)
	return true
}

// logChange logs the devices that are missing from a new list: kubelet does not log when a device
// disappears.
func (r *resource) logChange(ctx context.Context, before []*pluginapi.Device, now map[string]bool) {
	gone := sets.New[string]()
	for _, d := range before {
		if _, ok := now[d.GetID()]; !ok {
			gone.Insert(d.GetID())
		}
	}
	logger := klog.FromContext(ctx)
	if gone.Len() > 0 {
		logger.Info("Device plugin removed devices from its list", "resource", r.name, "gone", sets.List(gone))
	}
	logger.V(2).Info("New list of devices", "resource", r.name, "devices", len(now))
}

func withoutNUMA(devices []*pluginapi.Device) []*pluginapi.Device {
	out := make([]*pluginapi.Device, len(devices))
	for i, d := range devices {
		out[i] = proto.CloneOf(d)
		out[i].Topology = nil
	}
	return out
}

// nudge reports whether the plugin has been away for nudgeAfter; it returns true once for each absence.
func (r *resource) nudge(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner != nil || r.nudged || now.Sub(r.lost) < nudgeAfter {
		return false
	}
	r.nudged = true
	return true
}

func (r *resource) status() ResourceStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := ResourceStatus{
		Resource: r.name, InnerConnected: r.inner != nil && r.fed, Registered: r.endpoint.Registered(), Devices: len(r.devices),
	}
	for _, d := range r.devices {
		if d.GetHealth() == pluginapi.Healthy {
			s.Healthy++
		}
	}
	return s
}
