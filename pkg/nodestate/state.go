// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/nodestate/cordons"
	"github.com/nvtopo/nvtopo/pkg/nodestate/fabricview"
	"github.com/nvtopo/nvtopo/pkg/nodestate/leader"
	"github.com/nvtopo/nvtopo/pkg/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/nodestate/topologies"
	"github.com/nvtopo/nvtopo/pkg/nodestate/waking"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/refusals"
	"github.com/nvtopo/nvtopo/pkg/usage"
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

// State is the process-wide view. Make one with New and share it.
type State struct {
	config       Config
	clock        clock.WithTicker
	registry     *nvtopo.Registry
	topologies   *topologies.Cache
	cells        *cells
	leases       *nodelease.Table
	leader       *leader.Leader
	reservations *reservations.Table
	cordons      *cordons.Table
	readNode     nodeReader // nil until Connect
	podDevices   *PodDevices
	fabric       *fabricview.Views
	index        *candidates.Index
	retries      *candidates.Retries
	closed       candidates.Closed
	refusals     *refusals.Table
	profiles     *Profiles
	waker        *waking.Waker
	listers      *listers
	lists        *FirstLists
	changes      *Changes
	swept        atomic.Int64 // when the last cycle began, in Unix nanoseconds

	writes    *writes
	choosing  sync.Mutex // held by who chooses devices and records the choice
	lookAgain deadline   // when waiting pods are tried in any case

	gangs         atomic.Pointer[func() []diagnosis.Gang] // for Diagnose
	placesByCount atomic.Bool                             // some profile places pods by count where graphs are stale

	onRefusing func(refusals.Mark)
}

// New returns a State that knows of nothing yet; Connect feeds it. It starts nothing.
func New(config Config, clk clock.WithTicker) *State {
	return newState(config, clk, candidates.DefaultStride)
}

// newState is New with another stride of the index of nodes.
func newState(config Config, clk clock.WithTicker, stride int) *State {
	s := &State{
		config: config, clock: clk, registry: nvtopo.NewRegistry(config.Weights),
		leases: nodelease.NewTable(config.Freshness), leader: leader.New(clk, config.leader()),
		retries: candidates.NewRetries(clk), fabric: fabricview.New(clk),
		reservations: reservations.New(clk, config.RequestTimeout), cordons: cordons.New(clk, config.RequestTimeout),
		writes: newWrites(), lists: newFirstLists(clk), listers: newListers(), onRefusing: func(refusals.Mark) {},
	}
	s.refusals = refusals.NewTable(clk, func(m refusals.Mark) { s.onRefusing(m) })
	s.topologies = topologies.New(clk, s.leases, s.registry, s.lists.Synced)
	s.podDevices = &PodDevices{
		clock: clk, topologies: s.topologies, leases: s.leases, lists: s.lists, listers: s.listers,
		memo: allocation.NewMemo(), onMalformed: func(*v1.Pod, error) {},
	}
	s.waker = waking.New(clk, cluster{s})
	s.cells = newCells(s.newCell)
	s.index = newIndex(clk, s.cells, s.fabric, stride)
	s.profiles = newProfiles(s.index)
	s.changes = &Changes{cells: s.cells, topologies: s.topologies, waker: s.waker, index: s.index, onFreed: func() {}}
	s.lists.done = func() {
		s.waker.WakeAllOthers()
		s.changes.listeners.tell()
	}
	return s
}

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

// Verdict is a node's answer to a demand.
type Verdict struct {
	Reason placement.Reason
	// Never: nothing that could end on this node would make the pod fit.
	Never bool
}

// usable returns what is used on a node whose graph counts, or the reason why
// its graph does not. A nil Usage with Fits means the pod needs no graph there.
func (s *State) usable(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) (*usage.Usage, placement.Reason) {
	node := info.Node()
	if node == nil {
		return nil, placement.NoGraph
	}
	x := s.cells.ensure(node.Name)
	n := x.entry.Node()
	reason := s.topologies.CheckGraph(x.entry, n, node.UID)
	switch d.Basis(n, reason) {
	case placement.ByGraph:
		if d.Ahead {
			return s.computeFor(d, x, n, info.GetGeneration(), info.GetPods(), snapshot), placement.Fits
		}
		if u := s.usageAgain(d, x, n, info, snapshot); u != nil {
			return u, placement.Fits
		}
		return s.usage(x, n, info, snapshot), placement.Fits
	case placement.ByCount:
		return nil, placement.CheckCount(s.usage(x, n, info, snapshot), d, s.clock.Now())
	case placement.Unchecked:
		return nil, placement.Fits
	default:
		return nil, reason
	}
}

// Judge says whether a pod fits a node. info may be a dry-run copy of what the
// cycle's snapshot has. It does not allocate when the pod fits and the node's
// usage is remembered, unless this very pod has a choice in doubt on the node, or the
// demand looks ahead: then the usage is computed for it.
func (s *State) Judge(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) Verdict {
	u, reason := s.usable(d, info, snapshot)
	if u == nil {
		return Verdict{Reason: reason, Never: reason != placement.Fits && reason != placement.FewGPUs}
	}
	if reason := placement.CheckEnforcement(d.Request, d.Unenforced, u.Node, s.clock.Now()); reason != placement.Fits {
		return Verdict{Reason: reason, Never: true}
	}
	reason = placement.Check(u, d.Request)
	if reason == placement.Fits {
		return Verdict{}
	}
	return Verdict{Reason: reason, Never: placement.Check(u.Node.Empty, d.Request) != placement.Fits}
}

// View returns what is used on a node for scoring; nil where its graph does not count.
func (s *State) View(d *placement.Demand, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) *usage.Usage {
	u, _ := s.usable(d, info, snapshot)
	if u == nil {
		return nil
	}
	return s.withPromised(u, d, info, snapshot)
}

// Reserve chooses the pod's devices on a node and records the choice, one for the whole
// process at a time. For a pod that has a present reservation on the
// node, planned or not, it returns that reservation's allocation. A nil allocation with Fits means the
// node has no graph that counts and the pod needs none.
func (s *State) Reserve(d *placement.Demand, pod *v1.Pod, info fwk.NodeInfo, snapshot fwk.NodeInfoLister) (*allocation.Allocation, placement.Reason) {
	if r, _ := s.reservations.Begin(pod.UID, info.Node().Name); r != nil {
		return r.Allocation, placement.Fits
	}
	u, reason := s.usable(d, info, snapshot)
	if u == nil {
		return nil, reason
	}
	x := s.cells.ensure(u.Node.Name)
	promised := s.promised(x, d.UID, d.Priority)
	s.choosing.Lock()
	defer s.choosing.Unlock()
	if s.cells.get(x.name) != x {
		return nil, placement.NoGraph // the node is gone
	}
	if r, _ := s.reservations.Begin(pod.UID, x.name); r != nil {
		return r.Allocation, placement.Fits
	}
	if s.Gone(pod.UID) {
		return nil, placement.PodGone
	}
	here := slices.Concat(info.GetPods(), promised)
	if _, before := s.again(d, x, u.Node, info.GetGeneration(), here, snapshot); before != nil {
		return s.record(d, pod, x, before.Allocation, before)
	}
	// Reservations are added under this mutex only, so what Filter remembered may still hold.
	if now := s.remembered(x, u.Node, info); now != nil && !now.FromStore && len(promised) == 0 {
		u = now
	} else {
		u = s.computeUsage(x, u.Node, info.GetGeneration(), here, snapshot)
	}
	a, reason := placement.Choose(u, d.Request, d.WantCPUs)
	if reason != placement.Fits {
		return nil, reason
	}
	now := s.clock.Now()
	a.Assumed, a.Enforced = now.UTC(), u.Node.Enforced(now)
	if a, reason = s.record(d, pod, x, a, nil); reason == placement.Fits {
		countChoice(u, a)
	}
	return a, reason
}

// record adds a choice to the table, which is again's if that is not nil. It needs s.choosing.
func (s *State) record(d *placement.Demand, pod *v1.Pod, x *cell, a *allocation.Allocation, again *reservations.Reservation) (*allocation.Allocation, placement.Reason) {
	change, added := s.reservations.Add(&reservations.Reservation{
		UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Node: &x.reserved, Allocation: a, Request: d.Request,
	}, again)
	if !added {
		return nil, placement.PodGone
	}
	s.changes.tell(change)
	return a, placement.Fits
}

// Leads is the part of Attempt.MayCarryOut that concerns the process and no choice.
func (s *State) Leads(ctx context.Context) error { return s.leader.Check(ctx) }

// MayLead reports whether this process leads, as far as is known; a standby may ask.
func (s *State) MayLead() bool { return s.leader.MayLead() }

// LeaderLease is the Lease under which this process leads, as the arguments say.
func (s *State) LeaderLease() diagnosis.LeaderLease {
	return diagnosis.LeaderLease{Namespace: s.config.Namespace, Name: s.config.LeaderLease}
}

// TakingOver reports whether this process was elected so lately that it may not have
// heard of all that its predecessor did.
func (s *State) TakingOver() bool { return s.leader.TakingOver() }

// Bounded ends a request that gets no answer when the API server, too, has given it up
// (requestTimeout): a reservation would last as long as its request, and every doubt as long
// as the reading of one.
func (s *State) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.config.RequestTimeout)
}

// Annotations returns what is written on the pod for an allocation; see placement.Annotations.
func (s *State) Annotations(a *allocation.Allocation, aliases bool) (map[string]string, error) {
	return placement.Annotations(a, s.Node(a.Node), aliases)
}

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
