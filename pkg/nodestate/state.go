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

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/nodestate/cordons"
	"github.com/nvtopo/nvtopo/pkg/nodestate/fabricview"
	"github.com/nvtopo/nvtopo/pkg/nodestate/leader"
	"github.com/nvtopo/nvtopo/pkg/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/nodestate/topologies"
	"github.com/nvtopo/nvtopo/pkg/nodestate/waking"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/refusals"
)

// Config is what is the same for every profile of a process.
type Config struct {
	Namespace      string         // of the Leases of exporters and agents
	Weights        nvtopo.Weights // of the residual term
	RequestTimeout time.Duration  // how long the API server may still carry out a write the client gave up on
	LeaderLease    string         // name of the scheduler's own Lease in Namespace; empty: no check
	LeaderTerm     time.Duration  // how long after its last renewal the Lease is still ours
	Host           string         // this host's name, with which our identity in the election begins
	Freshness      time.Duration  // how long after a renewal of the exporter's Lease a graph counts; 0: the Lease's own duration
}

func (c *Config) leader() leader.Config {
	return leader.Config{Lease: c.LeaderLease, Term: c.LeaderTerm, Host: c.Host, RequestTimeout: c.RequestTimeout}
}

// State is the process-wide view. Make one with New and share it. It makes its parts, connects them
// to a scheduler, and returns them.
type State struct {
	clock    clock.WithTicker
	registry *nvtopo.Registry

	listers      *listers
	lists        *FirstLists
	profiles     *Profiles
	podDevices   *PodDevices
	nodeCache    *NodeCache
	changes      *Changes
	allocations  *AllocationTable
	nominator    *Nominator
	gangReserver *GangReserver
	preSelector  *PreSelector
	waiting      *WaitingPods
	binder       *Binder
	graphs       *Graphs
	diagnoser    *Diagnoser
	figures      *figureReader

	handlers    *eventHandlers
	doubtReader *doubtReader
	expiry      *expiryWatch
	collector   *nodeCollector
}

// New returns a State that knows of nothing yet; Connect feeds it. It starts nothing.
func New(config Config, clk clock.WithTicker) *State {
	return newState(config, clk, candidates.DefaultStride)
}

// newState is New with another stride of the index of nodes.
func newState(config Config, clk clock.WithTicker, stride int) *State {
	s := &State{clock: clk, registry: nvtopo.NewRegistry(config.Weights), listers: newListers(), lists: newFirstLists(clk)}
	leases, table := nodelease.NewTable(config.Freshness), reservations.New(clk, config.RequestTimeout)
	graphs := topologies.New(clk, leases, s.registry, s.lists.Synced)
	s.podDevices = &PodDevices{
		clock: clk, topologies: graphs, leases: leases, lists: s.lists, listers: s.listers,
		memo: allocation.NewMemo(), onMalformed: func(*v1.Pod, error) {},
	}
	s.nodeCache = newNodeCache(clk, graphs, table, s.podDevices)
	s.preSelector = &PreSelector{cache: s.nodeCache, fabric: fabricview.New(clk), retries: candidates.NewRetries(clk)}
	s.preSelector.index = newIndex(clk, s.nodeCache.cells, s.preSelector.fabric, stride)
	s.preSelector.refusals = refusals.NewTable(clk, func(m refusals.Mark) { s.handlers.onRefusing(m) })
	s.profiles = newProfiles(s.preSelector.index)
	waker := waking.New(clk, cluster{s.nodeCache.cells, table, s.listers, s.profiles, s.lists})
	s.changes = &Changes{cells: s.nodeCache.cells, topologies: graphs, waker: waker, index: s.preSelector.index, onFreed: func() {}}
	s.lists.done = func() {
		waker.WakeAllOthers()
		s.changes.listeners.tell()
	}
	s.allocations = &AllocationTable{clock: clk, cache: s.nodeCache, reservations: table, changes: s.changes}
	s.nominator = &Nominator{clock: clk, cache: s.nodeCache, table: s.allocations}
	s.gangReserver = &GangReserver{cache: s.nodeCache, table: s.allocations}
	s.waiting = &WaitingPods{waker: waker, closed: &s.preSelector.closed, table: s.allocations}
	s.preSelector.waiting = s.waiting
	s.binder = &Binder{
		clock: clk, requestTimeout: config.RequestTimeout, leader: leader.New(clk, config.leader()),
		cordons: cordons.New(clk, config.RequestTimeout), refusals: s.preSelector.refusals, reservations: table, writes: newWrites(),
	}
	s.graphs = &Graphs{topologies: graphs, changes: s.changes, lists: s.lists}
	s.diagnoser = &Diagnoser{
		config: config, clock: clk, lists: s.lists, leader: s.binder.leader, retries: s.preSelector.retries, index: s.preSelector.index,
		profiles: s.profiles, cache: s.nodeCache, allocations: s.allocations, nominator: s.nominator,
	}
	s.figures = &figureReader{cache: s.nodeCache, lists: s.lists}
	s.addLoops(config.Namespace)
	return s
}

// addLoops makes what follows events and time.
func (s *State) addLoops(namespace string) {
	s.handlers = &eventHandlers{
		clock: s.clock, namespace: namespace, table: s.allocations, cordons: s.binder.cordons, leader: s.binder.leader,
		leases: s.podDevices.leases, lists: s.lists, retries: s.preSelector.retries, refusals: s.preSelector.refusals,
		waker: s.waiting.waker, onRefusing: func(refusals.Mark) {},
	}
	s.doubtReader = &doubtReader{
		clock: s.clock, cache: s.nodeCache, table: s.allocations, binder: s.binder, handlers: s.handlers, waiting: s.waiting,
	}
	s.expiry = &expiryWatch{clock: s.clock, leases: s.podDevices.leases, table: s.allocations}
	s.collector = &nodeCollector{clock: s.clock, table: s.allocations, waker: s.waiting.waker, index: s.preSelector.index}
}

// Connect feeds the State from a scheduler's informers and starts its own until
// ctx ends. Call it once, from the first plugin's New, before the informer
// factory starts: afterwards handlers would miss the initial list.
func (s *State) Connect(ctx context.Context, h fwk.Handle) error {
	registerMetrics(s)
	pods := h.SharedInformerFactory().Core().V1().Pods()
	if err := s.listers.connect(h); err != nil {
		return err
	}
	s.binder.leader.Connect(leader.ListFrom(h.ClientSet()))
	s.binder.readNode = readNodesFrom(h.ClientSet())
	if _, err := pods.Informer().AddEventHandler(s.handlers.podHandler()); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if _, err := h.SharedInformerFactory().Core().V1().Nodes().Informer().AddEventHandler(s.handlers.nodeHandler()); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	if err := s.preSelector.fabric.Watch(ctx, h.KubeConfig(), h.SharedInformerFactory().Core().V1().Nodes()); err != nil {
		return err
	}
	s.podDevices.onMalformed = func(pod *v1.Pod, err error) {
		h.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, eventMalformedAllocation, "Scheduling", "%s", err)
	}
	s.changes.onFreed = s.waiting.waker.WakeOthers
	if err := s.handlers.startLeases(ctx, h.ClientSet()); err != nil {
		return err
	}
	if err := s.handlers.watchRefusals(ctx, h); err != nil {
		return err
	}
	go s.waiting.waker.Run(ctx, h.Activate)
	go s.waiting.waker.RunOthers(ctx, pods.Lister(), h.Activate)
	go s.doubtReader.run(ctx, h.ClientSet())
	go s.preSelector.retries.Run(ctx, s.listers.exists, h.Activate)
	go s.expiry.run(ctx)
	go s.collector.run(ctx)
	go s.prepare(ctx)
	return nil
}

// Nodes has what is known of each node.
func (s *State) Nodes() *NodeCache { return s.nodeCache }

// Allocations has the allocations that pods are assumed to get.
func (s *State) Allocations() *AllocationTable { return s.allocations }

// Nominator has what nominated pods are to get.
func (s *State) Nominator() *Nominator { return s.nominator }

// GangReserver reserves for gangs.
func (s *State) GangReserver() *GangReserver { return s.gangReserver }

// PreSelector lists the nodes that a cycle looks at.
func (s *State) PreSelector() *PreSelector { return s.preSelector }

// Waiting has the pods with devices that no node took.
func (s *State) Waiting() *WaitingPods { return s.waiting }

// Binder writes what pods are bound with.
func (s *State) Binder() *Binder { return s.binder }

// Leader says whether this process leads.
func (s *State) Leader() *leader.Leader { return s.binder.leader }

// Cordons has the nodes that take no pods while their devices are divided.
func (s *State) Cordons() *cordons.Table { return s.binder.cordons }

// Fabric is where nodes are. Nodes have other numbers in the next view.
func (s *State) Fabric() *fabricview.Views { return s.preSelector.fabric }

// Refusals has the nodes that others are preferred to, because their kubelets refuse pods.
func (s *State) Refusals() *refusals.Table { return s.preSelector.refusals }

// Graphs reads the NodeGPUTopologies.
func (s *State) Graphs() *Graphs { return s.graphs }

// Diagnosis tells what the process believes.
func (s *State) Diagnosis() *Diagnoser { return s.diagnoser }

// PodDevices tells which devices bound pods have.
func (s *State) PodDevices() *PodDevices { return s.podDevices }

// Lists says whether the first lists are in.
func (s *State) Lists() *FirstLists { return s.lists }

// Profiles are the scheduler profiles whose pods are ours.
func (s *State) Profiles() *Profiles { return s.profiles }

// Changes passes on what changes of nodes.
func (s *State) Changes() *Changes { return s.changes }

// Registry returns the tables of all graph classes seen.
func (s *State) Registry() *nvtopo.Registry { return s.registry }

// prepare builds answer tables of large graph classes as they appear, until ctx ends.
func (s *State) prepare(ctx context.Context) {
	ticker := s.clock.NewTicker(5 * time.Second)
	defer ticker.Stop()
	for {
		if err := s.registry.PrepareAll(ctx); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Building the answer tables failed")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}
