// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// nodePods is the watch of the pods bound to one node.
type nodePods struct {
	kube     kubernetes.Interface
	selector string
	factory  informers.SharedInformerFactory
	informer cache.SharedIndexInformer
	known    prometheus.Gauge

	mu      sync.Mutex
	changed chan struct{} // closed at the next event, nil if nothing waits for it; guarded by mu
}

// newNodePods returns a watch of a node's pods, which start begins. changed is called after each event
// and must not block.
func newNodePods(kube kubernetes.Interface, node string, r prometheus.Registerer, changed func()) (*nodePods, error) {
	p := &nodePods{kube: kube, selector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
	p.known = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "nvtopo", Subsystem: "agent", Name: "pods", Help: "Pods bound to the node that the agent has heard of.",
	})
	if err := r.Register(p.known); err != nil {
		return nil, fmt.Errorf("registering metrics: %w", err)
	}
	p.factory = informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = p.selector
	}))
	p.informer = p.factory.Core().V1().Pods().Informer()
	if err := p.informer.SetTransform(withoutManagedFields); err != nil {
		return nil, fmt.Errorf("watching the pods of node %s: %w", node, err)
	}
	tell := func(more float64) {
		p.known.Add(more)
		p.tell()
		changed()
	}
	_, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { tell(1) }, UpdateFunc: func(_, _ any) { tell(0) }, DeleteFunc: func(any) { tell(-1) },
	})
	if err != nil {
		return nil, fmt.Errorf("watching the pods of node %s: %w", node, err)
	}
	return p, nil
}

// withoutManagedFields drops the managed fields, which the agent never reads.
func withoutManagedFields(obj any) (any, error) {
	if pod, ok := obj.(*v1.Pod); ok {
		pod.ManagedFields = nil
	}
	return obj, nil
}

// start watches until ctx ends.
func (p *nodePods) start(ctx context.Context) { p.factory.Start(ctx.Done()) }

// end waits until the watch has stopped; ctx of start must have ended.
func (p *nodePods) end() { p.factory.Shutdown() }

// Pods returns the node's pods from the informer's cache. They are shared: callers must not change them.
func (p *nodePods) Pods() []*v1.Pod {
	list := p.informer.GetStore().List()
	pods := make([]*v1.Pod, 0, len(list))
	for _, obj := range list {
		if pod, ok := obj.(*v1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// Changed returns a channel that is closed at the next event, after Pods includes it.
func (p *nodePods) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

func (p *nodePods) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// Live lists the node's pods from the API server. The result is never older than the call: kubelet may
// know a pod that the watch has not delivered yet.
func (p *nodePods) Live(ctx context.Context) ([]*v1.Pod, error) {
	list, err := p.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: p.selector})
	if err != nil {
		return nil, fmt.Errorf("list pods with %s: %w", p.selector, err)
	}
	pods := make([]*v1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}
