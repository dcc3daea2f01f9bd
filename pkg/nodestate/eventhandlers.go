// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nodestate/leader"
)

// eventMalformedAllocation is the reason of the event on a pod whose allocation cannot be read.
const eventMalformedAllocation = "MalformedAllocation"

// Connect feeds the State from a scheduler's informers and starts its own until
// ctx ends. Call it once, from the first plugin's New, before the informer
// factory starts: afterwards handlers would miss the initial list.
func (s *State) Connect(ctx context.Context, h fwk.Handle) error {
	registerMetrics(s)
	pods := h.SharedInformerFactory().Core().V1().Pods()
	if err := s.listers.connect(h); err != nil {
		return err
	}
	s.leader.Connect(leader.ListFrom(h.ClientSet()))
	s.readNode = readNodesFrom(h.ClientSet())
	if _, err := pods.Informer().AddEventHandler(s.podHandler()); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if _, err := h.SharedInformerFactory().Core().V1().Nodes().Informer().AddEventHandler(s.nodeHandler()); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	if err := s.fabric.Watch(ctx, h.KubeConfig(), h.SharedInformerFactory().Core().V1().Nodes()); err != nil {
		return err
	}
	s.podDevices.onMalformed = func(pod *v1.Pod, err error) {
		h.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, eventMalformedAllocation, "Scheduling", "%s", err)
	}
	s.changes.onFreed = s.waker.WakeOthers
	if err := s.startLeases(ctx, h.ClientSet()); err != nil {
		return err
	}
	if err := s.watchRefusals(ctx, h); err != nil {
		return err
	}
	go s.waker.Run(ctx, h.Activate)
	go s.waker.RunOthers(ctx, pods.Lister(), h.Activate)
	go s.resolveDoubts(ctx, h.ClientSet())
	go s.retries.Run(ctx, s.listers.exists, h.Activate)
	go s.watchExpiry(ctx)
	go s.watchGone(ctx)
	go s.prepare(ctx)
	return nil
}

// nodeHandler tells the index which nodes to look at, and which are cordoned.
func (s *State) nodeHandler() cache.ResourceEventHandler {
	touch := func(obj any) {
		if node, ok := obj.(*v1.Node); ok {
			s.cordons.See(node)
			s.changes.touchNode(node.Name)
		}
	}
	add := func(obj any) {
		if node, ok := obj.(*v1.Node); ok {
			s.cells.ensure(node.Name) // for the waker, before any cycle has seen the node
		}
		touch(obj)
	}
	// A node that goes changes the list of nodes, which the index sees.
	return cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, obj any) { touch(obj) }, DeleteFunc: func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			s.cordons.Remove(name.Name)
		}
	}}
}

// startLeases watches the Leases of exporters, agents and the scheduler itself.
func (s *State) startLeases(ctx context.Context, client clientset.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(s.config.Namespace))
	set := func(obj any) {
		l, ok := obj.(*coordinationv1.Lease)
		if !ok {
			return
		}
		s.leader.See(l)
		if s.leases.Set(l, s.clock.Now()) {
			s.changes.leaseBack(l.Name)
			s.changes.freed()
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
				s.changes.leaseGone(l.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching Leases in %s: %w", s.config.Namespace, err)
	}
	s.lists.add(handler.HasSynced)
	factory.Start(ctx.Done())
	return nil
}
