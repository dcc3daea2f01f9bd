// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/graphclient"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// PassOn is called with the effects of each object of the watch, and the error for its unusable parts. No
// lock of the Cache is held meanwhile. It is called from several goroutines.
type PassOn func(Change, error)

// Served reports whether the API server serves NodeGPUTopology. Only then can it be watched: a watch of a
// resource that is not served never gets its first list.
func Served(client discovery.DiscoveryInterface) (bool, error) {
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

// Watch feeds the Cache until ctx ends, also across a time in which the definition of NodeGPUTopology is
// missing. others get the same objects, which they must not change. It returns the function that reports
// whether the first list has been read.
func (c *Cache) Watch(ctx context.Context, config *rest.Config, client discovery.DiscoveryInterface, passOn PassOn, others ...cache.ResourceEventHandler) (cache.InformerSynced, error) {
	informer, err := graphclient.NewInformer(config, "")
	if err != nil {
		return nil, err
	}
	err = informer.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) {
		if apierrors.IsNotFound(err) && c.served.CompareAndSwap(true, false) {
			klog.FromContext(ctx).Error(err, "The definition of NodeGPUTopology is gone; GPU pods wait until it is back")
			passOn(Change{Unserved: true}, nil)
			go c.AwaitServed(ctx, client)
		}
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", v1alpha1.Resource, err)
	}
	handler, err := informer.AddEventHandler(c.Handler(passOn))
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", v1alpha1.Resource, err)
	}
	for _, other := range others {
		if _, err := informer.AddEventHandler(other); err != nil {
			return nil, fmt.Errorf("watching %s: %w", v1alpha1.Resource, err)
		}
	}
	go informer.RunWithContext(ctx)
	go c.readLate(ctx, passOn)
	return handler.HasSynced, nil
}

// Handler returns the event handler with which Watch applies each object.
//
// Waiting pods are woken by the Change that it passes on, when the Cache has the news, and not by a
// cluster event: the scheduler's own watch for that would keep every object a second time, as a tree of
// maps, and might be ahead of this one or behind.
func (c *Cache) Handler(passOn PassOn) cache.ResourceEventHandler {
	apply := func(obj any) {
		if t, ok := obj.(*v1alpha1.NodeGPUTopology); ok {
			passOn(c.take(t))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    apply,
		UpdateFunc: func(_, obj any) { apply(obj) },
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			if t, ok := obj.(*v1alpha1.NodeGPUTopology); ok {
				passOn(c.Remove(t.Name, t.UID), nil)
			}
		},
	}
}

// lateInterval is the time between checks of waiting objects.
const lateInterval = 100 * time.Millisecond

// readLate reads waiting objects once the rate limit allows, until ctx ends.
func (c *Cache) readLate(ctx context.Context, passOn PassOn) {
	ticker := c.clock.NewTicker(lateInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		for _, node := range c.late() {
			passOn(c.takeLate(node))
		}
	}
}

// arrivalInterval is the time between checks for a missing definition.
const arrivalInterval = 10 * time.Second

// AwaitServed waits until the API server serves NodeGPUTopology; it returns false if ctx ended first.
func (c *Cache) AwaitServed(ctx context.Context, client discovery.DiscoveryInterface) bool {
	c.served.Store(false)
	ticker := c.clock.NewTicker(arrivalInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C():
		}
		if ok, err := Served(client); err == nil && ok {
			c.served.Store(true)
			return true
		}
	}
}
