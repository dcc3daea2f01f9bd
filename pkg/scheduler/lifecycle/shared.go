// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/topologies"
)

// Shared is the state that all plugin instances of a process share. Make one in main and pass it to both
// plugins' factories: two profiles with separate States would give one GPU to two pods.
type Shared struct {
	clock   clock.WithTicker
	others  []Attachment
	serve   DebugServer
	assumed *assumed
	chosen  flowcontrol.PassiveRateLimiter // limits the events with the chosen devices

	mu       sync.Mutex
	state    *nodestate.State
	config   nodestate.Config
	debug    Debug
	profiles map[string]*Profile   // profile name -> the arguments of its plugins
	gangs    map[string]StartGangs // profile name -> the function to call, or called, for its gangs
}

// NewShared returns a Shared. others start with the first plugin.
func NewShared(clk clock.WithTicker, others ...Attachment) *Shared {
	return &Shared{
		clock: clk, others: others, assumed: newAssumed(endProcess), profiles: map[string]*Profile{}, gangs: map[string]StartGangs{},
		chosen: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(chosenPerSecond, chosenBurst, clk),
	}
}

// Clock returns the process's clock.
func (s *Shared) Clock() clock.WithTicker { return s.clock }

// Attachment starts a part of the process that works with the State beside the plugins,
// until ctx ends. It returns a handler for NodeGPUTopologies.
type Attachment func(ctx context.Context, h fwk.Handle, namespace string, state *nodestate.State) cache.ResourceEventHandler

// Debug is the address at which a process serves its State, and its certificate; not served if the
// address is empty.
type Debug struct{ Address, CertFile, KeyFile string }

// DebugServer serves the State at that address until ctx ends. It fails at once if it cannot use the
// address.
type DebugServer func(ctx context.Context, h fwk.Handle, where Debug, state *nodestate.State) error

// ServeDebug sets the server of the State, for the case that the arguments request one. Call it before
// the first plugin is made.
func (s *Shared) ServeDebug(serve DebugServer) { s.serve = serve }

// Profile is the combined configuration of the plugins of one profile.
type Profile struct {
	Options      podrequest.Options
	Unenforced   placement.Unenforced
	AllowNoGraph bool
	CountStale   bool
	WantCPUs     bool
	WriteAliases bool
	WriteInBind  bool // annotations travel on the Binding
	Gangs        bool // pods of gangs are placed together, by another plugin
	// Rank returns the rank of a member of the present attempt; nil without gangs.
	Rank func(types.UID) (rank int, ok bool)
	// Yield takes back the places held for gangs of the members; nil without gangs.
	Yield func(members []types.UID, why string)
	// Placed returns the members of a gang on nodes, and Evict evicts members together with one on a node
	// for a pod; both nil without gangs.
	Placed func(gangrequest.Key) *eviction.Gang
	Evict  func(preemptor *v1.Pod, members []*v1.Pod)
	// TerminationWait is how long to wait for terminating pods.
	TerminationWait time.Duration
	plugins         []string
	last            atomic.Pointer[parsed]
}

// Settings are the arguments that both plugins have.
type Settings struct {
	Config       nodestate.Config
	Debug        Debug
	Resources    []string
	WriteInBind  bool
	WriteAliases bool
}

// connect returns the State. The first plugin instance of the process makes it.
func (s *Shared) connect(ctx context.Context, h fwk.Handle, config nodestate.Config, debug Debug) (*nodestate.State, error) {
	var err error
	// As kube-scheduler does for its identity.
	if config.Host, err = os.Hostname(); err != nil {
		return nil, fmt.Errorf("this host's name: %w", err)
	}
	if s.state != nil {
		if debug != s.debug { // first, because config depends on it
			return nil, fmt.Errorf("debugAddress, debugCertFile and debugKeyFile must be equal for every plugin and profile: have %+v and %+v", s.debug, debug)
		}
		return s.state, equal(&s.config, &config)
	}
	state := nodestate.New(config, s.clock)
	served, err := topologies.Served(h.ClientSet().Discovery())
	if err != nil {
		return nil, err
	}
	if err := state.Connect(ctx, h); err != nil {
		return nil, err
	}
	if _, err := h.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(s.assumed.handler()); err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	handlers := make([]cache.ResourceEventHandler, len(s.others))
	for i, attach := range s.others {
		handlers[i] = attach(ctx, h, config.Namespace, state)
	}
	if served {
		if err := state.Graphs.Watch(ctx, h.KubeConfig(), h.ClientSet().Discovery(), handlers...); err != nil {
			return nil, err
		}
	}
	state.Lists.AwaitSync(ctx)
	if !served {
		klog.FromContext(ctx).Info("The API server does not know NodeGPUTopology; GPU pods wait until its definition is installed")
		go s.watchLater(ctx, h, state, handlers)
	}
	if debug.Address != "" {
		if s.serve == nil {
			return nil, errors.New("debugAddress is set, but this program cannot serve its state")
		}
		if err := s.serve(ctx, h, debug, state); err != nil {
			return nil, fmt.Errorf("debugAddress %s: %w", debug.Address, err)
		}
	}
	s.state, s.config, s.debug = state, config, debug
	return state, nil
}

// equal refuses arguments that differ between plugins or profiles of a process, and names the first.
func equal(have, given *nodestate.Config) error {
	for _, arg := range []struct {
		name        string
		have, given any
	}{
		{"residualWeights", have.Weights, given.Weights},
		{"namespace", have.Namespace, given.Namespace},
		{"requestTimeout", have.RequestTimeout, given.RequestTimeout},
		{"graphFreshness", have.Freshness, given.Freshness},
		{"leaderLease.name", have.LeaderLease, given.LeaderLease},
		{"leaderLease.durationSeconds", have.LeaderTerm, given.LeaderTerm},
	} {
		if arg.have != arg.given {
			return fmt.Errorf("%s must be equal for every plugin and profile: have %v and %v", arg.name, arg.have, arg.given)
		}
	}
	return nil
}

// watchLater starts the watch when the resource exists. Until the first list is in, GPU
// pods wait as they do after a start.
func (s *Shared) watchLater(ctx context.Context, h fwk.Handle, state *nodestate.State, handlers []cache.ResourceEventHandler) {
	if !state.Graphs.AwaitServed(ctx, h.ClientSet().Discovery()) {
		return
	}
	klog.FromContext(ctx).Info("The API server knows NodeGPUTopology now")
	if err := state.Graphs.Watch(ctx, h.KubeConfig(), h.ClientSet().Discovery(), handlers...); err != nil {
		klog.FromContext(ctx).Error(err, "GPU topologies cannot be watched")
		return
	}
	state.Lists.AwaitSync(ctx)
}

// join adds a plugin to its profile and returns the State and the profile.
func (s *Shared) join(ctx context.Context, h fwk.Handle, plugin string, set Settings) (*nodestate.State, *Profile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state, err := s.connect(ctx, h, set.Config, set.Debug)
	if err != nil {
		return nil, nil, err
	}
	name := h.ProfileName()
	p, ok := s.profiles[name]
	if !ok {
		p = &Profile{Options: podrequest.Options{Resources: set.Resources, Supported: podrequest.AllPolicies()}, WriteInBind: set.WriteInBind, WriteAliases: set.WriteAliases}
		s.profiles[name] = p
		if start, ok := s.gangs[name]; ok {
			p.Gangs = true
			if err := start(state, p); err != nil {
				return nil, nil, err
			}
		}
	}
	if p.WriteInBind != set.WriteInBind || p.WriteAliases != set.WriteAliases || !slices.Equal(p.Options.Resources, set.Resources) {
		return nil, nil, fmt.Errorf("profile %s: annotationWrite, writeAliases and resources must be the same for %s and %s", name, p.plugins[0], plugin)
	}
	p.plugins = append(p.plugins, plugin)
	state.Profiles.Serve(name, set.Resources)
	return state, p, nil
}

// StartGangs passes the shared parts to the plugin for gangs of a profile.
type StartGangs func(state *nodestate.State, p *Profile) error

// ServeGangs leaves the pods of gangs in a profile to the plugin that calls it: no other plugin places
// them by themselves. The framework makes plugins in no fixed order, and the State is made with the first
// of the others, so start is called now or later. It must not call Shared. The Profile is complete when
// all plugins are made.
func (s *Shared) ServeGangs(profile string, start StartGangs) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.gangs[profile]; ok {
		return fmt.Errorf("profile %s: two plugins place the pods of gangs", profile)
	}
	s.gangs[profile] = start
	p, ok := s.profiles[profile]
	if !ok {
		return nil
	}
	p.Gangs = true
	return start(s.state, p)
}
