// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// nodeView is the part of the Node that the exporter uses.
type nodeView struct {
	uid                 types.UID
	bootID              string
	labels, annotations map[string]string
	others              map[string]bool // labels and annotations of other field managers
}

func viewOf(n *corev1.Node) nodeView {
	return nodeView{
		uid: n.UID, bootID: n.Status.NodeInfo.BootID, labels: n.Labels, annotations: n.Annotations,
		others: keysOfOthers(n.ManagedFields),
	}
}

// client makes the exporter's requests to the API server. Its errors name the object of the request.
type client struct {
	node      string
	namespace string
	kube      kubernetes.Interface
	dyn       dynamic.Interface
}

func (c client) topologies() dynamic.ResourceInterface {
	return c.dyn.Resource(v1alpha1.GroupVersionResource)
}

func (c client) readNode(ctx context.Context) (nodeView, error) {
	n, err := c.kube.CoreV1().Nodes().Get(ctx, c.node, metav1.GetOptions{})
	if err != nil {
		return nodeView{}, c.explain(err, "get", "Node", c.node)
	}
	return viewOf(n), nil
}

// readTopology returns the node's NodeGPUTopology, or nil if it does not exist.
func (c client) readTopology(ctx context.Context) (*v1alpha1.NodeGPUTopology, error) {
	return c.topology(ctx, metav1.GetOptions{})
}

// glance returns the same object from the API server's cache, which may be behind.
func (c client) glance(ctx context.Context) (*v1alpha1.NodeGPUTopology, error) {
	return c.topology(ctx, metav1.GetOptions{ResourceVersion: "0"})
}

func (c client) topology(ctx context.Context, opts metav1.GetOptions) (*v1alpha1.NodeGPUTopology, error) {
	u, err := c.topologies().Get(ctx, c.node, opts)
	if apierrors.IsNotFound(err) && !unserved(err) {
		return nil, nil
	}
	if err != nil {
		return nil, c.explain(err, "get", v1alpha1.Kind, c.node)
	}
	return typed(u)
}

// applySpec creates or updates the NodeGPUTopology with the metadata and spec of t.
func (c client) applySpec(ctx context.Context, t *v1alpha1.NodeGPUTopology) (*v1alpha1.NodeGPUTopology, error) {
	return c.apply(ctx, t, "spec")
}

// applyStatus applies the exporter's part of the status of t.
func (c client) applyStatus(ctx context.Context, t *v1alpha1.NodeGPUTopology) (*v1alpha1.NodeGPUTopology, error) {
	return c.apply(ctx, t, "status")
}

// apply sends one half, "spec" or "status", of the object. The typed object would marshal more (an empty
// creation time, the other half), and the exporter must not own those fields.
func (c client) apply(ctx context.Context, t *v1alpha1.NodeGPUTopology, half string) (*v1alpha1.NodeGPUTopology, error) {
	all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(t)
	if err != nil {
		return nil, fmt.Errorf("encode %s %q: %w", v1alpha1.Kind, t.Name, err)
	}
	meta := map[string]any{"name": t.Name}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.Kind, "metadata": meta, half: all[half],
	}}
	opts := metav1.ApplyOptions{FieldManager: FieldManager, Force: true}
	if half == "status" {
		u, err = c.topologies().ApplyStatus(ctx, t.Name, u, opts)
	} else {
		u.SetOwnerReferences(t.OwnerReferences)
		u, err = c.topologies().Apply(ctx, t.Name, u, opts)
	}
	if err != nil {
		return nil, c.explain(err, "apply the "+half+" of", v1alpha1.Kind, t.Name)
	}
	return typed(u)
}

func typed(u *unstructured.Unstructured) (*v1alpha1.NodeGPUTopology, error) {
	t := &v1alpha1.NodeGPUTopology{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, t); err != nil {
		return nil, fmt.Errorf("decode %s %q: %w", v1alpha1.Kind, u.GetName(), err)
	}
	return t, nil
}

// applyMarks applies the node's labels and annotations. Because of the UID the server refuses another
// Node of the same name, and the request does not recreate a Node that was just deleted.
func (c client) applyMarks(ctx context.Context, uid types.UID, manager string, m marks) (nodeView, error) {
	ac := corev1ac.Node(c.node).WithUID(uid).WithLabels(m.labels).WithAnnotations(m.annotations)
	n, err := c.kube.CoreV1().Nodes().Apply(ctx, ac, metav1.ApplyOptions{FieldManager: manager, Force: true})
	if err != nil {
		return nodeView{}, c.explain(err, "apply labels to", "Node", c.node)
	}
	return viewOf(n), nil
}

// applyLease renews a Lease, or creates it.
func (c client) applyLease(ctx context.Context, name string, uid types.UID, now time.Time) error {
	l := nodelease.Lease{Namespace: c.namespace, Name: name, Node: c.node, NodeUID: uid, Manager: FieldManager}
	if err := l.Renew(ctx, c.kube, now); err != nil {
		return c.explain(err, "apply", "Lease", c.namespace+"/"+name)
	}
	return nil
}

// unserved reports whether the API server does not serve the resource at all, as opposed to a missing
// object.
func unserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// explain adds to err the object of the failed request, and the remedy for the usual mistakes of
// installation.
func (c client) explain(err error, verb, kind, name string) error {
	if unserved(err) {
		crd := v1alpha1.Resource + "." + v1alpha1.GroupName
		return fmt.Errorf("%s %s %q: the API server does not serve the resource, install the CRD %s: %w", verb, kind, name, crd, err)
	}
	return v1alpha1.Refused(err, "exporter", verb, kind, name)
}
