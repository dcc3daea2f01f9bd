// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/cordons"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/topologies"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/waking"
)

// Config has the settings that all profiles of a process share.
type Config struct {
	Namespace      string         // namespace of the Leases of exporters and agents
	Weights        nvtopo.Weights // weights of the residual term
	RequestTimeout time.Duration  // how long the API server may still carry out a write after the client gave it up
	LeaderLease    string         // name of the scheduler's own Lease in Namespace; empty: no check
	LeaderTerm     time.Duration  // how long after its last renewal this process still holds the Lease
	Host           string         // this host's name, with which its identity in the election begins
	Freshness      time.Duration  // how long after a renewal of the exporter's Lease a graph is valid; 0: the Lease's own duration
}

func (c *Config) leader() leader.Config {
	return leader.Config{Lease: c.LeaderLease, Term: c.LeaderTerm, Host: c.Host, RequestTimeout: c.RequestTimeout}
}

// State has the parts of the process-wide view. Make one with New, and give each user the parts it uses.
type State struct {
	Nodes        *NodeCache       // the known state of each node
	Allocations  *AllocationTable // the assumed allocations
	Nominator    *Nominator       // the nominated allocations
	GangReserver *GangReserver    // reserves for gangs
	PreSelector  *PreSelector     // lists the nodes that a cycle considers
	Waiting      *WaitingPods     // the pods with devices that fit no node
	Binder       *Binder          // guards the writes that bind pods
	Leader       *leader.Leader   // whether this process leads
	Cordons      *cordons.Table   // the nodes that take no pods while their devices are divided
	Fabric       *fabricview.Views
	Refusals     *refusals.Table // the nodes whose kubelets refuse pods, so that others are preferred
	Graphs       *Graphs         // reads the NodeGPUTopologies
	Diagnosis    *Diagnoser      // reports the process's view
	PodDevices   *PodDevices     // the devices of bound pods
	Lists        *FirstLists     // whether the first lists are in
	Profiles     *Profiles       // the scheduler profiles with this package's plugins
	Changes      *Changes        // distributes changes of nodes
	Registry     *nvtopo.Registry

	clock clock.WithTicker
	inner
}

// inner are the parts that only this package uses.
type inner struct {
	listers     *listers
	figures     *figureReader
	handlers    *eventHandlers
	doubtReader *doubtReader
	expiry      *expiryWatch
	collector   *nodeCollector
}

// New returns an empty State, which Connect feeds. It starts nothing.
func New(config Config, clk clock.WithTicker) *State {
	return newState(config, clk, candidates.DefaultStride)
}

// newState is New with another stride of the index of nodes.
func newState(config Config, clk clock.WithTicker, stride int) *State {
	s := &State{clock: clk, Registry: nvtopo.NewRegistry(config.Weights), inner: inner{listers: newListers()}, Lists: newFirstLists(clk)}
	leases, table := nodelease.NewTable(config.Freshness), reservations.New(clk, config.RequestTimeout)
	graphs := topologies.New(clk, leases, s.Registry, s.Lists.Synced)
	s.PodDevices = &PodDevices{
		clock: clk, topologies: graphs, leases: leases, lists: s.Lists, listers: s.listers,
		memo: allocation.NewMemo(), onMalformed: func(*v1.Pod, error) {},
	}
	s.Nodes = newNodeCache(clk, graphs, table, s.PodDevices)
	s.Fabric, s.Refusals = fabricview.New(clk), refusals.NewTable(clk, func(m refusals.Mark) { s.handlers.onRefusing(m) })
	s.PreSelector = &PreSelector{
		cache: s.Nodes, fabric: s.Fabric, index: newIndex(clk, s.Nodes.cells, s.Fabric, stride),
		retries: candidates.NewRetries(clk), refusals: s.Refusals,
	}
	s.Profiles = newProfiles(s.PreSelector.index)
	waker := waking.New(clk, cluster{s.Nodes.cells, table, s.listers, s.Profiles, s.Lists})
	s.Changes = &Changes{cells: s.Nodes.cells, topologies: graphs, waker: waker, index: s.PreSelector.index, onFreed: func() {}}
	s.Lists.done = func() {
		waker.WakeAllOthers()
		s.Changes.listeners.tell()
	}
	s.Allocations = &AllocationTable{clock: clk, cache: s.Nodes, reservations: table, changes: s.Changes}
	s.Nominator = &Nominator{clock: clk, cache: s.Nodes, table: s.Allocations}
	s.GangReserver = &GangReserver{cache: s.Nodes, table: s.Allocations}
	s.Waiting = &WaitingPods{waker: waker, closed: &s.PreSelector.closed, table: s.Allocations}
	s.PreSelector.waiting = s.Waiting
	s.Leader, s.Cordons = leader.New(clk, config.leader()), cordons.New(clk, config.RequestTimeout)
	s.Binder = &Binder{
		clock: clk, requestTimeout: config.RequestTimeout, leader: s.Leader, cordons: s.Cordons, refusals: s.Refusals,
		reservations: table, writes: newWrites(),
	}
	s.Graphs = &Graphs{topologies: graphs, changes: s.Changes, lists: s.Lists}
	s.Diagnosis = &Diagnoser{
		config: config, clock: clk, lists: s.Lists, leader: s.Leader, retries: s.PreSelector.retries, index: s.PreSelector.index,
		profiles: s.Profiles, cache: s.Nodes, allocations: s.Allocations, nominator: s.Nominator,
	}
	s.figures = &figureReader{cache: s.Nodes, lists: s.Lists}
	s.addLoops(config.Namespace)
	return s
}

// addLoops makes the parts that follow events and time.
func (s *State) addLoops(namespace string) {
	s.handlers = &eventHandlers{
		clock: s.clock, namespace: namespace, table: s.Allocations, cordons: s.Cordons, leader: s.Leader,
		leases: s.PodDevices.leases, lists: s.Lists, retries: s.PreSelector.retries, refusals: s.Refusals,
		waker: s.Waiting.waker, onRefusing: func(refusals.Mark) {},
	}
	s.doubtReader = &doubtReader{
		clock: s.clock, cache: s.Nodes, table: s.Allocations, binder: s.Binder, handlers: s.handlers, waiting: s.Waiting,
	}
	s.expiry = &expiryWatch{clock: s.clock, leases: s.PodDevices.leases, table: s.Allocations}
	s.collector = &nodeCollector{clock: s.clock, table: s.Allocations, waker: s.Waiting.waker, index: s.PreSelector.index}
}

// Connect feeds the State from a scheduler's informers and starts its own until ctx ends. Call it once,
// from the first plugin's New, before the informer factory starts: later, handlers would miss the initial
// list.
func (s *State) Connect(ctx context.Context, h fwk.Handle) error {
	registerMetrics(s)
	pods := h.SharedInformerFactory().Core().V1().Pods()
	if err := s.listers.connect(h); err != nil {
		return err
	}
	s.Leader.Connect(leader.ListFrom(h.ClientSet()))
	s.Binder.readNode = readNodesFrom(h.ClientSet())
	if _, err := pods.Informer().AddEventHandler(s.handlers.podHandler()); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if _, err := h.SharedInformerFactory().Core().V1().Nodes().Informer().AddEventHandler(s.handlers.nodeHandler()); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	if err := s.Fabric.Watch(ctx, h.KubeConfig(), h.SharedInformerFactory().Core().V1().Nodes()); err != nil {
		return err
	}
	s.PodDevices.onMalformed = func(pod *v1.Pod, err error) {
		h.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, eventMalformedAllocation, "Scheduling", "%s", err)
	}
	s.Changes.onFreed = s.Waiting.waker.WakeOthers
	if err := s.handlers.startLeases(ctx, h.ClientSet()); err != nil {
		return err
	}
	if err := s.handlers.watchRefusals(ctx, h); err != nil {
		return err
	}
	go s.Waiting.waker.Run(ctx, h.Activate)
	go s.Waiting.waker.RunOthers(ctx, pods.Lister(), h.Activate)
	go s.doubtReader.run(ctx, h.ClientSet())
	go s.PreSelector.retries.Run(ctx, s.listers.exists, h.Activate)
	go s.expiry.run(ctx)
	go s.collector.run(ctx)
	go s.prepare(ctx)
	return nil
}

// prepare builds answer tables of large graph classes as they appear, until ctx ends.
func (s *State) prepare(ctx context.Context) {
	ticker := s.clock.NewTicker(5 * time.Second)
	defer ticker.Stop()
	for {
		if err := s.Registry.PrepareAll(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Building the answer tables failed")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}
