// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/graphclient"
)

// GraphsServed reports whether the API server knows NodeGPUTopology. Only then can
// it be watched: a watch of what is not served would never be through its list.
func GraphsServed(client discovery.DiscoveryInterface) (bool, error) {
	list, err := client.ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking the API server for %s: %w", v1alpha1.SchemeGroupVersion, err)
	}
	for _, r := range list.APIResources {
		if r.Name == v1alpha1.Resource {
			return true, nil
		}
	}
	return false, nil
}

// WatchGraphs feeds the graph store until ctx ends, also beyond a time in which the
// definition of NodeGPUTopology is gone. What cannot be read of an object is
// logged with its name and field; the node keeps its last good graph. others are
// told of the same objects, which they must not change. Call AwaitSync after it.
func (s *State) WatchGraphs(ctx context.Context, config *rest.Config, client discovery.DiscoveryInterface, others ...cache.ResourceEventHandler) error {
	informer, err := graphclient.NewInformer(config, "")
	if err != nil {
		return err
	}
	err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) {
		if apierrors.IsNotFound(err) && s.served.CompareAndSwap(true, false) {
			klog.FromContext(ctx).Error(err, "The definition of NodeGPUTopology is gone; GPU pods wait until it is back")
			s.waiting.openAll()
			s.onFreed() // they are told why
			go s.AwaitGraphs(ctx, client)
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return fmt.Errorf("watching %s: %w", v1alpha1.Resource, err)
	}
	handler, err := informer.AddEventHandler(s.graphHandler(ctx))
	if err != nil {
		return fmt.Errorf("watching %s: %w", v1alpha1.Resource, err)
	}
	for _, other := range others {
		if _, err := informer.AddEventHandler(other); err != nil {
			return fmt.Errorf("watching %s: %w", v1alpha1.Resource, err)
		}
	}
	s.syncMu.Lock()
	s.sources = append(s.sources, handler.HasSynced)
	s.syncMu.Unlock()
	go informer.RunWithContext(ctx)
	go s.takeLate(ctx)
	return nil
}

// take reads an object, or keeps it for later if its node publishes too much.
func (s *State) take(ctx context.Context, t *v1alpha1.NodeGPUTopology) {
	var last *v1alpha1.NodeGPUTopologySpec
	if n := s.Node(t.Name); n != nil && n.ObjectUID == t.UID {
		last = n.Spec
	}
	read := s.intake.admit(t, last)
	if read == nil {
		return
	}
	_, freed, err := s.apply(read, read != t)
	if err != nil {
		malformedTopologies.Inc()
		klog.FromContext(ctx).Error(err, "Ignoring what cannot be read of a topology", "node", t.Name)
	}
	if freed {
		s.onFreed()
	}
}

func (s *State) graphHandler(ctx context.Context) cache.ResourceEventHandler {
	apply := func(obj any) {
		if t, ok := obj.(*v1alpha1.NodeGPUTopology); ok {
			s.intake.serial.Lock()
			defer s.intake.serial.Unlock()
			s.take(ctx, t)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		// Pods are woken from here, when the store has the news, and not by a cluster
		// event: the scheduler's own watch for that would keep every object a second
		// time, as a tree of maps, and might be ahead of this one or behind.
		AddFunc:    func(obj any) { apply(obj) },
		UpdateFunc: func(_, obj any) { apply(obj) },
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			if t, ok := obj.(*v1alpha1.NodeGPUTopology); ok {
				s.intake.serial.Lock()
				defer s.intake.serial.Unlock()
				s.intake.forget(t.Name, t.UID)
				s.Remove(t.Name, t.UID)
			}
		},
	}
}

// arrivalInterval is how often a missing definition is looked for.
const arrivalInterval = 10 * time.Second

// AwaitGraphs waits until the API server knows NodeGPUTopology; false: ctx ended.
func (s *State) AwaitGraphs(ctx context.Context, client discovery.DiscoveryInterface) bool {
	s.served.Store(false)
	ticker := s.clock.NewTicker(arrivalInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C():
		}
		if ok, err := GraphsServed(client); err == nil && ok {
			s.served.Store(true)
			return true
		}
	}
}
