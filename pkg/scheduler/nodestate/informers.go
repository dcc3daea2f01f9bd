// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
)

// informerStores are the informers' stores, which may be read at any time, unlike the scheduler's
// snapshot.
type informerStores struct {
	pods  corelisters.PodLister
	nodes corelisters.NodeLister
}

// listers read the informers' stores and the nominated pods of the scheduling queue. Before they are
// connected the cluster is empty.
type listers struct {
	pods      podLister
	nodes     nodeLister
	stores    informerStores
	nominated func(node string) []fwk.PodInfo
}

func newListers() *listers {
	return &listers{pods: noPods{}, nodes: noNodes{}, nominated: func(string) []fwk.PodInfo { return nil }}
}

// connect makes the listers read the informers and the queue of a scheduler. All profiles share that
// queue.
func (l *listers) connect(h fwk.Handle) error {
	pods, nodes := h.SharedInformerFactory().Core().V1().Pods(), h.SharedInformerFactory().Core().V1().Nodes()
	if _, ok := pods.Informer().GetIndexer().GetIndexers()[podsByNode]; !ok {
		if err := pods.Informer().AddIndexers(cache.Indexers{podsByNode: nodeOfPod}); err != nil {
			return fmt.Errorf("indexing pods by node: %w", err)
		}
	}
	l.stores = informerStores{pods: pods.Lister(), nodes: nodes.Lister()}
	l.pods = informerPods{l.stores.pods}
	l.nodes = informerNodes{nodes: l.stores.nodes, pods: pods.Informer().GetIndexer()}
	l.nominated = h.NominatedPodsForNode
	return nil
}

// exists reports whether the informer has the pod.
func (l *listers) exists(pod *v1.Pod) bool {
	return l.pods.pod(pod.Namespace, pod.Name, pod.UID) != nil
}

// podLister finds a pod in the informer's store; nil if it is absent.
type podLister interface {
	pod(namespace, name string, uid types.UID) *v1.Pod
}

type informerPods struct{ lister corelisters.PodLister }

func (p informerPods) pod(namespace, name string, uid types.UID) *v1.Pod {
	pod, err := p.lister.Pods(namespace).Get(name)
	if err != nil || pod.UID != uid {
		return nil
	}
	return pod
}

// noPods is the lister before the informer is connected.
type noPods struct{}

func (noPods) pod(string, string, types.UID) *v1.Pod { return nil }

// nodeLister finds one node and its pods in the informers' stores.
type nodeLister interface {
	node(name string) *v1.Node // nil: there is none
	podsOn(node string) []*v1.Pod
}

// podsByNode is the name of the pod informer's index by node.
const podsByNode = "nvtopo-node"

type informerNodes struct {
	nodes corelisters.NodeLister
	pods  cache.Indexer
}

func (i informerNodes) node(name string) *v1.Node {
	node, err := i.nodes.Get(name)
	if err != nil {
		return nil
	}
	return node
}

func (i informerNodes) podsOn(node string) []*v1.Pod {
	objs, err := i.pods.ByIndex(podsByNode, node)
	if err != nil {
		return nil // the index is missing, which Connect would have reported
	}
	out := make([]*v1.Pod, 0, len(objs))
	for _, obj := range objs {
		if pod, ok := obj.(*v1.Pod); ok {
			out = append(out, pod)
		}
	}
	return out
}

// nodeOfPod returns the keys of a pod in the index podsByNode.
func nodeOfPod(obj any) ([]string, error) {
	if pod, ok := obj.(*v1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

// noNodes is a cluster without nodes, before the informers are connected.
type noNodes struct{}

func (noNodes) node(string) *v1.Node    { return nil }
func (noNodes) podsOn(string) []*v1.Pod { return nil }
