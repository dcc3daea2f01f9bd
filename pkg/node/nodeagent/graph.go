// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/graphclient"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// nodeGraph holds the node's published link graph. It is kept after the object is deleted: the GPUs are
// still the same.
type nodeGraph struct {
	informer cache.SharedIndexInformer
	registry *nvtopo.Registry
	current  atomic.Pointer[reading]
}

// reading is one version of the NodeGPUTopology; immutable.
type reading struct {
	object *v1alpha1.NodeGPUTopology
	tables map[string]*nvtopo.Tables // by resource
}

// newNodeGraph returns a watch of node's graph, which run starts. changed is called after each event and
// must not block.
func newNodeGraph(config *rest.Config, node string, changed func()) (*nodeGraph, error) {
	informer, err := graphclient.NewInformer(config, node)
	if err != nil {
		return nil, fmt.Errorf("watching the topology of node %s: %w", node, err)
	}
	g := &nodeGraph{informer: informer, registry: nvtopo.NewRegistry(nvtopo.DefaultWeights())}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { g.read(obj); changed() },
		UpdateFunc: func(_, obj any) { g.read(obj); changed() },
	})
	if err != nil {
		return nil, fmt.Errorf("watching the topology of node %s: %w", node, err)
	}
	return g, nil
}

// run watches until ctx ends.
func (g *nodeGraph) run(ctx context.Context) { g.informer.RunWithContext(ctx) }

func (g *nodeGraph) read(obj any) {
	t, ok := obj.(*v1alpha1.NodeGPUTopology)
	if !ok {
		return
	}
	if err := g.take(t); err != nil {
		// The last good graph stays in use; the exporter's condition informs the operator.
		klog.Background().Error(err, "Ignoring a malformed topology", "node", t.Name)
	}
}

func (g *nodeGraph) take(t *v1alpha1.NodeGPUTopology) error {
	graphs, err := t.Graphs()
	if err != nil {
		return fmt.Errorf("NodeGPUTopology %s: %w", t.Name, err)
	}
	r := &reading{object: t, tables: make(map[string]*nvtopo.Tables, len(graphs))}
	for resource, graph := range graphs {
		r.tables[resource] = g.registry.Tables(graph)
	}
	g.current.Store(r)
	return nil
}

// Tables returns the answer tables of a resource, or nil if its graph is not known yet.
func (g *nodeGraph) Tables(resource string) *nvtopo.Tables {
	if r := g.current.Load(); r != nil {
		return r.tables[resource]
	}
	return nil
}

// object returns the published object as last read, or nil before the first read.
// Callers must not change it.
func (g *nodeGraph) object() *v1alpha1.NodeGPUTopology {
	if r := g.current.Load(); r != nil {
		return r.object
	}
	return nil
}

// prepare builds the tables of large machines as soon as the graph is known.
func (g *nodeGraph) prepare(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), g.informer.HasSynced) {
		return
	}
	if err := g.registry.PrepareAll(ctx); err != nil && !errors.Is(err, ctx.Err()) {
		klog.FromContext(ctx).Error(err, "Building the answer tables failed")
	}
}
