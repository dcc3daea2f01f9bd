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
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/cordons"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/waking"
)

// eventMalformedAllocation is the reason of the event on a pod whose allocation cannot be read.
const eventMalformedAllocation = "MalformedAllocation"

// eventHandlers apply the events of the informers of pods, nodes and Leases.
type eventHandlers struct {
	clock      clock.PassiveClock
	namespace  string // of the Leases
	table      *AllocationTable
	cordons    *cordons.Table
	leader     *leader.Leader
	leases     *nodelease.Table
	lists      *FirstLists
	retries    *candidates.Retries
	refusals   *refusals.Table
	waker      *waking.Waker
	onRefusing func(refusals.Mark)
}

// nodeHandler marks nodes as changed for the index, and records which nodes are cordoned.
func (eh *eventHandlers) nodeHandler() cache.ResourceEventHandler {
	touch := func(obj any) {
		if node, ok := obj.(*v1.Node); ok {
			eh.cordons.See(node)
			eh.table.changes.touchNode(node.Name)
		}
	}
	add := func(obj any) {
		if node, ok := obj.(*v1.Node); ok {
			eh.table.cache.cells.ensure(node.Name) // for the waker, before any cycle has seen the node
		}
		touch(obj)
	}
	// A deleted node changes the list of nodes, which the index sees.
	return cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, obj any) { touch(obj) }, DeleteFunc: func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			eh.cordons.Remove(name.Name)
		}
	}}
}

// startLeases watches the Leases of exporters, agents and the scheduler itself.
func (eh *eventHandlers) startLeases(ctx context.Context, client clientset.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(eh.namespace))
	set := func(obj any) {
		l, ok := obj.(*coordinationv1.Lease)
		if !ok {
			return
		}
		eh.leader.See(l)
		if eh.leases.Set(l, eh.clock.Now()) {
			eh.table.changes.leaseBack(l.Name)
			eh.table.changes.freed()
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
				eh.table.changes.leaseGone(l.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching Leases in %s: %w", eh.namespace, err)
	}
	eh.lists.add(handler.HasSynced)
	factory.Start(ctx.Done())
	return nil
}
