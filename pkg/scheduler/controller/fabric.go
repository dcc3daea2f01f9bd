// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/graphclient"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
)

// FabricReporter writes the ClusterTopology's status: whether all of it is used, which labels make no
// tree, which are missing. It runs every lookInterval, which bounds its writes, and computes only if
// spec, labels or nodes have changed. Call Run while this process leads.
type FabricReporter struct {
	source ReportSource // the nodes that have GPUs
	nodes  corelisters.NodeLister
	client dynamic.Interface
	watch  func() (cache.SharedIndexInformer, error)
	clock  clock.WithTicker

	seed maphash.Seed
	last uint64 // fingerprint of the inputs of the written status; 0: none
}

// NewFabricReporter returns a FabricReporter that reads nodes from a synced lister.
func NewFabricReporter(source ReportSource, nodes corelisters.NodeLister, client dynamic.Interface, config *rest.Config, clk clock.WithTicker) *FabricReporter {
	return &FabricReporter{
		source: source, nodes: nodes, client: client, clock: clk, seed: maphash.MakeSeed(),
		watch: func() (cache.SharedIndexInformer, error) { return graphclient.NewTopologyInformer(config) },
	}
}

// Run reports until ctx ends. Call it for each term, one at a time.
func (f *FabricReporter) Run(ctx context.Context) {
	informer, err := f.watch() // one cannot run twice
	if err != nil {
		klog.FromContext(ctx).Error(err, "The status of the ClusterTopology is not written by this process")
		return
	}
	f.last = 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	defer func() { <-done }()
	ticker := f.clock.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		if obj, ok, _ := informer.GetStore().GetByKey(v1alpha1.ClusterTopologyName); ok {
			if ct, ok := obj.(*v1alpha1.ClusterTopology); ok {
				f.look(ctx, ct)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// look writes the status if it differs from the one computed from spec and nodes.
func (f *FabricReporter) look(ctx context.Context, ct *v1alpha1.ClusterTopology) {
	nodes, err := f.readNodes()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Listing nodes failed")
		return
	}
	now := f.fingerprint(ct, nodes)
	if now == f.last {
		return
	}
	tree, problems := clustertopology.Tree(ct, nodes)
	status := clustertopology.Status(ct, tree, problems)
	conditions := slices.Clone(ct.Status.Conditions)
	for _, c := range status.Conditions {
		c.LastTransitionTime = metav1.NewTime(f.clock.Now().Truncate(time.Second))
		meta.SetStatusCondition(&conditions, c)
	}
	status.Conditions = conditions
	if !equality.Semantic.DeepEqual(status, ct.Status) {
		if err := f.apply(ctx, ct, &status); err != nil {
			klog.FromContext(ctx).Error(err, "Reporting what became of the ClusterTopology failed, will retry")
			return
		}
	}
	f.last = now
}

// readNodes returns the nodes in the order of their names, so that equal ones are equal.
func (f *FabricReporter) readNodes() ([]clustertopology.Node, error) {
	list, err := f.nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	gpus := map[string]bool{}
	for _, r := range f.source.Reports() {
		gpus[r.Node.Name] = true
	}
	out := make([]clustertopology.Node, len(list))
	for i, n := range list {
		out[i] = clustertopology.Node{Name: n.Name, Labels: n.Labels, NoGPUs: !gpus[n.Name]}
	}
	slices.SortFunc(out, func(a, b clustertopology.Node) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// fingerprint returns a hash of all inputs of the status.
func (f *FabricReporter) fingerprint(ct *v1alpha1.ClusterTopology, nodes []clustertopology.Node) uint64 {
	var h maphash.Hash
	h.SetSeed(f.seed)
	add := func(text string) {
		var length [4]byte
		binary.LittleEndian.PutUint32(length[:], uint32(len(text)))
		_, _ = h.Write(length[:]) // never fails
		_, _ = h.WriteString(text)
	}
	add(string(ct.UID))
	add(ct.ResourceVersion)
	keys := clustertopology.LabelKeys(ct)
	for i := range nodes {
		add(nodes[i].Name)
		if nodes[i].NoGPUs {
			add("-")
		}
		for _, key := range keys {
			add(nodes[i].Labels[key])
		}
	}
	return h.Sum64()
}

// apply writes the status. With the UID, the server refuses an object that was created again
// in the meantime.
func (f *FabricReporter) apply(ctx context.Context, ct *v1alpha1.ClusterTopology, status *v1alpha1.ClusterTopologyStatus) error {
	body, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("write the status of ClusterTopology %q: %w", ct.Name, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.ClusterTopologyKind,
		"metadata": map[string]any{"name": ct.Name, "uid": string(ct.UID)}, "status": body,
	}}
	_, err = f.client.Resource(v1alpha1.ClusterTopologyGVR).ApplyStatus(ctx, ct.Name, u, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("apply the status of ClusterTopology %q: %w", ct.Name, err)
	}
	return nil
}
