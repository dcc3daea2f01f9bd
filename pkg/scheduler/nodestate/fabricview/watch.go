// SPDX-License-Identifier: Apache-2.0

package fabricview

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/graphclient"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
)

const (
	// delay is how long changes are gathered: labels of many nodes change together.
	delay = 500 * time.Millisecond
	// patience is how long the first view waits for the ClusterTopology. An API server that cannot return it
	// must not hold back the fabric from the labels.
	patience = 5 * time.Second
)

// Watch updates the view from the nodes and the ClusterTopology, until ctx ends. Without a config there
// is no ClusterTopology. Call it once, before the informer of nodes starts.
func (f *Views) Watch(ctx context.Context, config *rest.Config, nodes coreinformers.NodeInformer) error {
	f.nodes = nodes.Lister()
	handler, err := nodes.Informer().AddEventHandler(f.nodeHandler())
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	synced := []cache.InformerSynced{handler.HasSynced}
	if config != nil {
		informer, err := graphclient.NewTopologyInformer(config)
		if err != nil {
			return err
		}
		if handler, err = informer.AddEventHandler(f.topologyHandler()); err != nil {
			return fmt.Errorf("watching %s: %w", v1alpha1.ClusterTopologyResource, err)
		}
		synced = append(synced, handler.HasSynced)
		go informer.RunWithContext(ctx)
	}
	go f.run(ctx, synced...)
	return nil
}

// nodeHandler starts a rebuild when a node or one of its fabric labels changes.
func (f *Views) nodeHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { f.change() },
		UpdateFunc: func(before, after any) {
			a, okA := before.(*v1.Node)
			b, okB := after.(*v1.Node)
			if okA && okB && slices.ContainsFunc(*f.keys.Load(), func(key string) bool { return a.Labels[key] != b.Labels[key] }) {
				f.change()
			}
		},
		DeleteFunc: func(any) { f.change() },
	}
}

// topologyHandler follows the one ClusterTopology that is used.
func (f *Views) topologyHandler() cache.ResourceEventHandler {
	set := func(obj any) {
		if ct, ok := obj.(*v1alpha1.ClusterTopology); ok && ct.Name == v1alpha1.ClusterTopologyName {
			f.setTopology(ct)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(any) { f.setTopology(nil) }, // the informer has no other
	}
}

func (f *Views) setTopology(ct *v1alpha1.ClusterTopology) {
	before := f.topology.Load()
	if before != nil && ct != nil && equality.Semantic.DeepEqual(before.Spec, ct.Spec) {
		return
	}
	keys := clustertopology.LabelKeys(ct)
	f.topology.Store(ct)
	f.keys.Store(&keys)
	f.change()
}

// change schedules a rebuild of the view.
func (f *Views) change() {
	select {
	case f.changed <- struct{}{}:
	default: // one is due already
	}
}

// run builds the first view when everything has been read, and then one after each change.
func (f *Views) run(ctx context.Context, synced ...cache.InformerSynced) {
	first, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-first.Done():
		case <-f.clock.After(patience):
			cancel()
		}
	}()
	if !cache.WaitForCacheSync(first.Done(), synced...) && ctx.Err() == nil {
		klog.FromContext(ctx).Info("The ClusterTopology or the nodes cannot be read yet; going on with what is known")
	}
	for ctx.Err() == nil {
		select {
		case <-f.changed:
		default:
		}
		f.rebuild(ctx)
		select {
		case <-ctx.Done():
			return
		case <-f.changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-f.clock.After(delay):
		}
	}
}

// rebuild makes a view of the present objects. Faults in them are reported in the ClusterTopology's
// status (package controller).
func (f *Views) rebuild(ctx context.Context) {
	listed, err := f.nodes.List(labels.Everything())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Listing nodes failed; the fabric stays as it was")
		return
	}
	nodes := make([]clustertopology.Node, len(listed))
	for i, n := range listed {
		nodes[i] = clustertopology.Node{Name: n.Name, Labels: n.Labels}
	}
	ct := f.topology.Load()
	if ct == nil {
		ct = clustertopology.Default(nodes)
	}
	tree, _ := clustertopology.Tree(ct, nodes)
	depths := map[string]int{}
	for i := range min(len(ct.Spec.Levels), tree.Depth()) {
		depths[ct.Spec.Levels[i].NodeLabel] = i + 1
	}
	f.Set(tree, depths)
}
