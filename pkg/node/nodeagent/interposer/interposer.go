// SPDX-License-Identifier: Apache-2.0

package interposer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
)

// Time limits of a response to kubelet, whose sync loop waits for it.
const (
	// SteeringBudget is the deadline that Steering is given. If Steering has a fallback when it expires, it
	// must return that within the 100 ms that are left of hardBudget.
	SteeringBudget = 850 * time.Millisecond
	// hardBudget is the longest time that a response takes, even if Steering ignores its deadline: 1 s less
	// the time for the reply.
	hardBudget = 950 * time.Millisecond
	// afterInner is the part of SteeringBudget that is reserved for Steering's own pick, in case the inner
	// plugin's preferred allocation does not arrive.
	afterInner = 100 * time.Millisecond
)

const (
	defaultHold         = 30 * time.Second
	defaultInnerTimeout = 400 * time.Millisecond
	// nudgeAfter is how long an inner plugin may be away before a new registry socket, which looks like a
	// restart of kubelet, makes it register again. The plugin may be alive, and only its stream or its
	// socket is gone.
	nudgeAfter = 5 * time.Second
	// registryPoll is how often the registry's socket is checked.
	registryPoll = 2 * time.Second
)

// socketPrefix begins the names of the agent's sockets in kubelet's directory.
const socketPrefix = "nvtopo-"

// Question is one GetPreferredAllocation request: kubelet wants Size ids of Resource from Available,
// including all of MustInclude. MustInclude is treated as available.
type Question struct {
	Resource    string
	Available   []string
	MustInclude []string
	Size        int
}

// Steering decides which devices kubelet is told to allocate. It must be safe for concurrent use and keep
// its deadlines.
type Steering interface {
	// Preferred returns exactly q.Size ids, which include q.MustInclude and come from Available and
	// MustInclude only. An error makes kubelet reject the pod at admission. inner sends the same or a
	// narrower question to the inner plugin, with its own deadline; it is nil if the plugin has no
	// preference.
	Preferred(ctx context.Context, q Question, inner func(context.Context, Question) ([]string, error)) ([]string, error)
	// Allocate is called before the inner plugin's Allocate; an error rejects the pod.
	Allocate(ctx context.Context, resource string, ids []string) error
	// Allocated is called after the inner plugin's Allocate succeeded.
	Allocated(resource string, ids []string)
	// PreStart is called before a container starts, if Config.PreStart is set. An error prevents the start,
	// and kubelet retries.
	PreStart(ctx context.Context, resource string, ids []string) error
	// Devices is called with every list (id -> healthy) before kubelet receives it.
	Devices(resource string, healthy map[string]bool)
}

// Config configures an interposer. PluginDir is required.
type Config struct {
	// PluginDir is kubelet's directory for plugin sockets, /var/lib/kubelet/device-plugins.
	PluginDir string
	// RegistryDir is the directory of the agent's kubelet.sock, which inner plugins find as the directory of
	// their KUBELET_SOCKET; <PluginDir>/nvtopo by default. When kubelet starts, it removes the sockets in
	// PluginDir, but not those in its subdirectories.
	RegistryDir string
	// Hold is how long devices keep their health while the inner plugin is away; then
	// they become unhealthy. 30 s by default.
	Hold time.Duration
	// InnerTimeout limits the inner plugin's preferred allocation; 400 ms by default.
	InnerTimeout time.Duration
	// PreStart makes kubelet call PreStartContainer before every start of a container.
	PreStart bool
	// StripNUMA reports devices without their NUMA nodes.
	StripNUMA bool
	// OnRegistered is called each time the real kubelet accepts a resource, which includes each restart of
	// kubelet. It may be nil and must not block.
	OnRegistered func(resource string)
	// Registerer receives the metrics; may be nil.
	Registerer prometheus.Registerer

	// steering and budget are SteeringBudget and hardBudget, except in tests that a slow machine
	// must not end.
	steering, budget time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if !filepath.IsAbs(c.PluginDir) {
		return c, fmt.Errorf("plugin directory %q: not absolute", c.PluginDir)
	}
	if c.RegistryDir == "" {
		c.RegistryDir = filepath.Join(c.PluginDir, "nvtopo")
	}
	c.PluginDir, c.RegistryDir = filepath.Clean(c.PluginDir), filepath.Clean(c.RegistryDir)
	if c.RegistryDir == c.PluginDir {
		return c, fmt.Errorf("registry directory %q: it is kubelet's own", c.RegistryDir)
	}
	if c.Hold < 0 || c.InnerTimeout < 0 {
		return c, errors.New("times must not be negative")
	}
	if c.Hold == 0 {
		c.Hold = defaultHold
	}
	if c.InnerTimeout == 0 {
		c.InnerTimeout = defaultInnerTimeout
	}
	if c.steering == 0 {
		c.steering = SteeringBudget
	}
	if c.budget == 0 {
		c.budget = hardBudget
	}
	if c.InnerTimeout > SteeringBudget-afterInner {
		return c, fmt.Errorf("inner timeout %v: longer than %v leaves no time for our own answer", c.InnerTimeout, SteeringBudget-afterInner)
	}
	return c, nil
}

// ResourceStatus is the state of one resource.
type ResourceStatus struct {
	Resource string
	// InnerConnected is true if the inner plugin is connected and has sent its list.
	InnerConnected bool
	// Registered is true if the real kubelet follows the agent's list.
	Registered bool
	// Devices is the number of devices in kubelet's list, and Healthy the number of healthy ones.
	Devices, Healthy int
}

// Interposer acts as kubelet's registry for inner plugins, and as the plugin for
// kubelet.
type Interposer struct {
	cfg      Config
	steering Steering
	clk      clock.WithTicker
	metrics  *metrics
	registry *deviceplugin.Socket

	adopt chan *inner   // plugins that registered, for Run
	ended chan struct{} // closed when Run returns

	mu        sync.Mutex
	resources map[string]*resource // by name; guarded by mu
}

// New returns an interposer, which Run serves.
func New(cfg Config, s Steering, clk clock.WithTicker) (*Interposer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	i := &Interposer{
		cfg: cfg, steering: s, clk: clk, metrics: m,
		adopt: make(chan *inner), ended: make(chan struct{}),
		resources: map[string]*resource{},
	}
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, &registry{i: i})
	i.registry, err = deviceplugin.NewSocket(filepath.Join(cfg.RegistryDir, kubeletSocketName), server)
	if err != nil {
		return nil, err
	}
	return i, nil
}

// kubeletSocketName is the name of kubelet's socket, and of the agent's own in RegistryDir.
const kubeletSocketName = "kubelet.sock"

// Run serves until ctx ends. It may be called once.
func (i *Interposer) Run(ctx context.Context) error {
	var group sync.WaitGroup
	defer group.Wait()
	defer close(i.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer i.registry.Close()
	logger := klog.FromContext(ctx)

	if err := os.MkdirAll(i.cfg.RegistryDir, 0o750); err != nil {
		return fmt.Errorf("creating the registry directory: %w", err)
	}
	if err := removeStale(i.cfg.PluginDir); err != nil {
		return err
	}
	// The new socket file makes inner plugins register.
	if err := i.registry.Bind(); err != nil {
		return err
	}
	logger.Info("Waiting for device plugins", "registry", i.registry.Path())
	group.Go(func() { i.keepRegistry(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case in := <-i.adopt:
			if err := i.adopted(ctx, in, &group); err != nil {
				logger.Error(err, "Cannot serve a resource")
				in.close()
			}
		}
	}
}

// adopted makes in the inner plugin of its resource, and starts to serve the resource if it is new.
func (i *Interposer) adopted(ctx context.Context, in *inner, group *sync.WaitGroup) error {
	i.mu.Lock()
	r, known := i.resources[in.resource]
	i.mu.Unlock()
	if !known {
		var err error
		if r, err = i.newResource(in.resource); err != nil {
			return err
		}
		i.mu.Lock()
		i.resources[in.resource] = r
		i.mu.Unlock()
		group.Go(func() { r.endpoint.Run(ctx) })
	}
	r.attach(ctx, in)
	group.Go(func() { r.follow(ctx, in) })
	return nil
}

// keepRegistry recreates the registry's socket if it was removed, or if an inner plugin is away that may
// be waiting for a new socket.
func (i *Interposer) keepRegistry(ctx context.Context) {
	logger := klog.FromContext(ctx)
	watcher := deviceplugin.NewWatcher(logger, i.registry.Path())
	defer watcher.Close()
	for ctx.Err() == nil {
		watcher.Refresh()
		nudge := i.nudge()
		if state := i.registry.State(); state == deviceplugin.Unbound || nudge && state == deviceplugin.Bound {
			logger.Info("Serving the registry again", "registry", i.registry.Path(), "pluginAway", nudge)
			err := os.MkdirAll(i.cfg.RegistryDir, 0o750)
			if err == nil {
				err = i.registry.Bind()
			}
			if err != nil {
				logger.Error(err, "Cannot serve the registry")
			}
		}
		watcher.Wait(ctx, i.clk, registryPoll, nil)
	}
}

// nudge reports whether a plugin has been away so long that it should be made to register. It returns
// true once for each absence: all other plugins register again too, and that has a cost.
func (i *Interposer) nudge() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	due := false
	for _, r := range i.resources {
		due = r.nudge(i.clk.Now()) || due
	}
	return due
}

// removeStale removes the sockets of an earlier run of the agent.
func removeStale(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the plugin directory: %w", err)
	}
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 || !strings.HasPrefix(e.Name(), socketPrefix) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a stale socket: %w", err)
		}
	}
	return nil
}

// Resources returns the state of every resource seen since the start, sorted by name.
func (i *Interposer) Resources() []ResourceStatus {
	i.mu.Lock()
	resources := make([]*resource, 0, len(i.resources))
	for _, r := range i.resources {
		resources = append(resources, r)
	}
	i.mu.Unlock()
	out := make([]ResourceStatus, len(resources))
	for n, r := range resources {
		out[n] = r.status()
	}
	slices.SortFunc(out, func(a, b ResourceStatus) int { return strings.Compare(a.Resource, b.Resource) })
	return out
}
