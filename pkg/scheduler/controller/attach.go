// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"os"
	"sync"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/cordons"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
)

// Attach returns the function that starts a controller, which takes part in the election until ctx ends
// and uses the pods and graphs of the scheduler in this process. Register the returned handler for
// NodeGPUTopologies. endpoint returns the process's own address.
func Attach(endpoint EndpointSource) func(ctx context.Context, h fwk.Handle, namespace string, state *nodestate.State) cache.ResourceEventHandler {
	return func(ctx context.Context, h fwk.Handle, namespace string, state *nodestate.State) cache.ResourceEventHandler {
		return attach(ctx, h, namespace, state, endpoint)
	}
}

func attach(ctx context.Context, h fwk.Handle, namespace string, state *nodestate.State, endpoint EndpointSource) cache.ResourceEventHandler {
	pods := h.SharedInformerFactory().Core().V1().Pods()
	synced := pods.Informer().HasSynced
	if host, err := os.Hostname(); err != nil {
		klog.FromContext(ctx).Error(err, "The profiles are not published by this process")
	} else {
		go NewProfilePublisher(profileSource{state.Profiles, state.Diagnosis, state.Leader}, endpoint, h.ClientSet(), namespace, host, clock.RealClock{}).Run(ctx)
	}
	c := New(viewOf(state), h.ClientSet(), pods.Lister(), h.EventRecorder())
	foreign := NewForeignReporter(state.PodDevices, pods.Lister(), h.EventRecorder(), clock.RealClock{})
	unproven := NewUnprovenMarker(state.PodDevices, h.ClientSet(), pods.Lister(), h.EventRecorder(), clock.RealClock{})
	run := both(c.Run, both(foreign.Run, unproven.Run))
	if client, err := dynamic.NewForConfig(h.KubeConfig()); err != nil {
		klog.FromContext(ctx).Error(err, "Stale topologies, and what became of the ClusterTopology, are not reported, and no cordon is acknowledged, by this process")
	} else {
		nodes := h.SharedInformerFactory().Core().V1().Nodes().Lister()
		stale := NewStaleReporter(state.Diagnosis, client, h.EventRecorder(), clock.RealClock{})
		fabric := NewFabricReporter(state.Diagnosis, nodes, client, h.KubeConfig(), clock.RealClock{})
		run = both(run, both(stale.Run, fabric.Run))
		go NewCordonAcknowledger(cordonSource{state.Cordons, state.Leader}, client, clock.RealClock{}).Run(ctx)
	}
	go func() {
		if !cache.WaitForCacheSync(ctx.Done(), synced) {
			return
		}
		if err := Lead(ctx, h.ClientSet(), namespace, run); err != nil {
			klog.FromContext(ctx).Error(err, "Annotations are not repaired by this process")
		}
	}()
	return c.Handler()
}

// view is the scheduler's view of the nodes and of the devices of pods.
type view struct {
	*nodestate.NodeCache
	*nodestate.PodDevices
}

func viewOf(s *nodestate.State) view { return view{s.Nodes, s.PodDevices} }

// profileSource has the profiles of this process, and whether it leads.
type profileSource struct {
	profiles *nodestate.Profiles
	*nodestate.Diagnoser
	*leader.Leader
}

func (p profileSource) Profiles() []diagnosis.Profile { return p.profiles.Profiles() }

// cordonSource has the cordons that this process sees, and whether it leads.
type cordonSource struct {
	table  *cordons.Table
	leader *leader.Leader
}

func (c cordonSource) Cordons() []cordons.Word         { return c.table.Words() }
func (c cordonSource) CordonsSettled() bool            { return c.leader.Settled() }
func (c cordonSource) KnowsItself() bool               { return c.leader.Known() }
func (c cordonSource) Leads(ctx context.Context) error { return c.leader.Check(ctx) }

// both runs a and b and waits until both have returned.
func both(a, b func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		var wg sync.WaitGroup
		wg.Go(func() { a(ctx) })
		b(ctx)
		wg.Wait()
	}
}
