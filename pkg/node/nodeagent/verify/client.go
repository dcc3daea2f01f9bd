// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// client makes the verifier's requests to the API server. Its errors name the object of the request.
type client struct {
	node      string
	namespace string
	kube      kubernetes.Interface
	dyn       dynamic.Interface
}

func (c client) nodeUID(ctx context.Context) (types.UID, error) {
	n, err := c.kube.CoreV1().Nodes().Get(ctx, c.node, metav1.GetOptions{})
	if err != nil {
		return "", explain(err, "get", "Node", c.node)
	}
	return n.UID, nil
}

// written identifies the object version that a write created.
type written struct {
	uid     types.UID
	version string
}

// applyStatus applies the agent's part of the status only. The typed object would marshal more fields,
// and the agent must not own those.
func (c client) applyStatus(ctx context.Context, s *v1alpha1.NodeGPUTopologyStatus) (written, error) {
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		return written{}, fmt.Errorf("encode the status of %s %q: %w", v1alpha1.Kind, c.node, err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.Kind,
		"metadata": map[string]any{"name": c.node}, "status": status,
	}}
	opts := metav1.ApplyOptions{FieldManager: FieldManager, Force: true}
	got, err := c.dyn.Resource(v1alpha1.GroupVersionResource).ApplyStatus(ctx, c.node, u, opts)
	if err != nil {
		return written{}, explain(err, "apply the status of", v1alpha1.Kind, c.node)
	}
	return written{uid: got.GetUID(), version: got.GetResourceVersion()}, nil
}

// applyLease renews or creates the agent's Lease.
func (c client) applyLease(ctx context.Context, node types.UID, now time.Time) error {
	l := nodelease.Lease{Namespace: c.namespace, Name: nodelease.AgentPrefix + c.node, Node: c.node, NodeUID: node, Manager: FieldManager}
	if err := l.Renew(ctx, c.kube, now); err != nil {
		return explain(err, "apply", "Lease", l.Namespace+"/"+l.Name)
	}
	return nil
}

func explain(err error, verb, kind, name string) error {
	return v1alpha1.Refused(err, "node agent", verb, kind, name)
}
