// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nodestate/leader"
)

// exists reports whether the informer has the pod.
func (s *State) exists(pod *v1.Pod) bool {
	return s.pods.pod(pod.Namespace, pod.Name, pod.UID) != nil
}

// Connect feeds the State from a scheduler's informers and starts its own until
// ctx ends. Call it once, from the first plugin's New, before the informer
// factory starts: afterwards handlers would miss the initial list.
func (s *State) Connect(ctx context.Context, h fwk.Handle) error {
	registerMetrics(s)
	pods := h.SharedInformerFactory().Core().V1().Pods()
	s.pods = informerPods{pods.Lister()}
	s.leader.Connect(leader.ListFrom(h.ClientSet()))
	s.nominated = h.NominatedPodsForNode // of the queue that all profiles share
	s.stores = informerStores{pods: pods.Lister(), nodes: h.SharedInformerFactory().Core().V1().Nodes().Lister()}
	if _, err := pods.Informer().AddEventHandler(s.podHandler()); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if _, err := h.SharedInformerFactory().Core().V1().Nodes().Informer().AddEventHandler(s.nodeHandler()); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	s.onMalformed = func(pod *v1.Pod, err error) {
		h.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, "MalformedAllocation", "Scheduling", "%s", err)
	}
	if _, ok := pods.Informer().GetIndexer().GetIndexers()[podsByNode]; !ok {
		if err := pods.Informer().AddIndexers(cache.Indexers{podsByNode: nodeOfPod}); err != nil {
			return fmt.Errorf("indexing pods by node: %w", err)
		}
	}
	s.nodes = informerNodes{nodes: s.stores.nodes, pods: pods.Informer().GetIndexer()}
	s.onFreed = s.waker.WakeOthers
	if err := s.startLeases(ctx, h.ClientSet()); err != nil {
		return err
	}
	go s.waker.Run(ctx, h.Activate)
	go s.waker.RunOthers(ctx, pods.Lister(), h.Activate)
	go s.resolveDoubts(ctx, h.ClientSet())
	go s.retries.Run(ctx, s.exists, h.Activate)
	go s.watchExpiry(ctx)
	go s.prepare(ctx)
	return nil
}

// listsPatience is how long pods with GPUs wait for the first lists before they are tried
// in vain, which costs a write each, and tells their owners what they wait for.
const listsPatience = 5 * time.Second

// firstLists is one wait for the first lists.
type firstLists struct {
	in    chan struct{} // closed when they are in
	until time.Time     // when nobody waits any more; zero while nobody has. Guarded by syncMu
}

// AwaitSync starts the wait for the first lists of graphs and Leases; call it
// after Connect and WatchGraphs. Until they are in, Synced is false: a choice
// from half the graphs would put pods on the worse nodes. A later call replaces
// the wait of an earlier one.
func (s *State) AwaitSync(ctx context.Context) {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	sources := s.sources
	wait := &firstLists{in: make(chan struct{})}
	s.lists = wait
	s.synced.Store(false)
	go func() {
		if !cache.WaitForCacheSync(ctx.Done(), sources...) {
			return
		}
		s.syncMu.Lock()
		defer s.syncMu.Unlock()
		if wait == s.lists {
			s.synced.Store(true)
			s.waker.WakeAllOthers()
			close(wait.in)
		}
	}()
}

// Synced reports whether all graphs and Leases there were at the start are known.
func (s *State) Synced() bool { return s.synced.Load() }

// AwaitLists waits until Synced, but not long: five seconds in all after each AwaitSync,
// however many ask.
func (s *State) AwaitLists(ctx context.Context) {
	s.syncMu.Lock()
	wait, now := s.lists, s.clock.Now()
	if wait.until.IsZero() {
		wait.until = now.Add(listsPatience)
	}
	left := wait.until.Sub(now)
	s.syncMu.Unlock()
	if left <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-wait.in:
	case <-s.clock.After(left):
	}
}

// nodeHandler tells the index which nodes to look at.
func (s *State) nodeHandler() cache.ResourceEventHandler {
	touch := func(obj any) {
		if node, ok := obj.(*v1.Node); ok {
			s.touchNode(node.Name)
		}
	}
	add := func(obj any) {
		if node, ok := obj.(*v1.Node); ok {
			s.cells.ensure(node.Name) // for the waker, before any cycle has seen the node
		}
		touch(obj)
	}
	// A node that goes changes the list of nodes, which the index sees.
	return cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, obj any) { touch(obj) }}
}

// startLeases watches the Leases of exporters, agents and the scheduler itself.
func (s *State) startLeases(ctx context.Context, client clientset.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.config.Namespace))
	set := func(obj any) {
		l, ok := obj.(*coordinationv1.Lease)
		if !ok {
			return
		}
		s.releases.Tell(klog.FromContext(ctx), l)
		s.leader.See(l)
		if s.leases.Set(l, s.clock.Now()) {
			s.leaseBack(l.Name)
			s.onFreed()
		}
	}
	handler, err := factory.Coordination().V1().Leases().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			if l, ok := obj.(*coordinationv1.Lease); ok {
				s.leases.Drop(l.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching Leases in %s: %w", s.config.Namespace, err)
	}
	s.sources = append(s.sources, handler.HasSynced)
	factory.Start(ctx.Done())
	return nil
}
