// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/membership"
)

// retryAfter is how long a node that drains, or a manager without a word, is left in peace. Who
// evicts by hand waits as long (kubectl drain).
const retryAfter = 5 * time.Second

// Reasons of events on a pool.
const (
	eventCordoned   = "NodeCordoned"
	eventDivided    = "NodeLabelled"
	eventUncordoned = "NodeUncordoned"
	eventEvicted    = "PodEvicted"
)

// reconciler brings the nodes of one pool nearer to its spec.
type reconciler struct {
	client.Client
	// api reads past the cache: a pod that the cache does not know yet holds its devices too.
	api    client.Reader
	events record.EventRecorder
}

// Reconcile takes one step for each node that may have one.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var nodes v1.NodeList
	if err := r.List(ctx, &nodes); err != nil {
		return ctrl.Result{}, fmt.Errorf("list nodes: %w", err)
	}
	var pools v1alpha1.ComputePoolList
	if err := r.List(ctx, &pools); err != nil {
		return ctrl.Result{}, fmt.Errorf("list pools: %w", err)
	}
	m := membersOf(req.Name, membership.In(&pools), nodes.Items)
	for _, n := range m.left {
		if err := r.uncordon(ctx, m.pool, n); err != nil {
			return ctrl.Result{}, err
		}
	}
	if m.pool == nil || !m.pool.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	o := outcome{shared: m.shared, blocked: map[string][]string{}}
	var want setting
	want, o.reason, o.message = wanted(m.pool.Spec.Virtualization)
	o.nodes = plan(m.own, func(n *v1.Node) setting {
		if o.reason != "" {
			return current(n)
		}
		return want
	})
	var errs []error
	for i := range o.nodes {
		blocked, err := r.take(ctx, m.pool, &o.nodes[i])
		if len(blocked) > 0 {
			o.blocked[o.nodes[i].Name] = blocked
		}
		errs = append(errs, err)
	}
	errs = append(errs, r.report(ctx, m.pool, o.condition(m.pool)))
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	for i := range o.nodes {
		if o.nodes[i].outOfService() {
			return ctrl.Result{RequeueAfter: retryAfter}, nil
		}
	}
	return ctrl.Result{}, nil
}

// take does a node's step. Where pods have to go first it returns why they stay.
func (r *reconciler) take(ctx context.Context, pool *v1alpha1.ComputePool, n *node) (blocked []string, err error) {
	switch n.step {
	case stepCordon:
		r.events.Eventf(pool, v1.EventTypeNormal, eventCordoned, "node %s is cordoned, to be drained and divided anew", n.Name)
		return nil, r.patch(ctx, n.Node, map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{AnnotationCordon: pool.Name}},
			"spec":     map[string]any{"unschedulable": true},
		})
	case stepDrain:
		return r.drain(ctx, pool, n)
	case stepMark:
		return nil, r.patch(ctx, n.Node, annotations(AnnotationStrategy, string(n.target.strategy)))
	case stepForget:
		return nil, r.patch(ctx, n.Node, annotations(AnnotationStrategy, nil))
	case stepUncordon:
		return nil, r.uncordon(ctx, pool, n.Node)
	case stepNone, stepWait, stepFailed:
	}
	return nil, nil
}

// drain evicts the pods that hold devices, and tells the manager once there are none.
func (r *reconciler) drain(ctx context.Context, pool *v1alpha1.ComputePool, n *node) (blocked []string, err error) {
	var pods v1.PodList
	onNode := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", n.Name)}
	if err := r.api.List(ctx, &pods, onNode); err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", n.Name, err)
	}
	left := false
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !holds(pod) {
			continue
		}
		left = true
		if why := stays(pod); why != "" {
			blocked = append(blocked, fmt.Sprintf("pod %s/%s is not evicted: %s", pod.Namespace, pod.Name, why))
			continue
		}
		why, err := r.evict(ctx, pool, pod)
		if err != nil {
			return blocked, err
		}
		if why != "" {
			blocked = append(blocked, why)
		}
	}
	if left {
		return blocked, nil
	}
	label, state := labelOf(n.target.strategy)
	labels := map[string]any{label: n.target.value}
	if n.target.value == "" {
		labels[label] = nil
	}
	if state != "" {
		labels[state] = nil // its next word is about this label
	}
	r.events.Eventf(pool, v1.EventTypeNormal, eventDivided, "node %s: %s=%s", n.Name, label, n.target.value)
	return nil, r.patch(ctx, n.Node, map[string]any{"metadata": map[string]any{
		"labels": labels, "annotations": map[string]any{AnnotationStrategy: string(n.target.strategy)},
	}})
}

// evict asks for a pod to go, and returns why it does not. PodDisruptionBudgets are the API
// server's to know.
func (r *reconciler) evict(ctx context.Context, pool *v1alpha1.ComputePool, pod *v1.Pod) (why string, err error) {
	if pod.DeletionTimestamp != nil {
		return "", nil
	}
	uid := pod.UID
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}}
	err = r.SubResource("eviction").Create(ctx, pod, eviction)
	switch {
	case err == nil:
		r.events.Eventf(pool, v1.EventTypeNormal, eventEvicted, "pod %s/%s is evicted from node %s, which is divided anew",
			pod.Namespace, pod.Name, pod.Spec.NodeName)
		return "", nil
	case apierrors.IsTooManyRequests(err):
		return fmt.Sprintf("pod %s/%s cannot be evicted yet: %v", pod.Namespace, pod.Name, err), nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return "", nil // it is gone, or its name is another pod's
	}
	return "", fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// uncordon lifts a cordon of ours; the pool may be gone.
func (r *reconciler) uncordon(ctx context.Context, pool *v1alpha1.ComputePool, n *v1.Node) error {
	patch := annotations(AnnotationCordon, nil)
	patch["spec"] = map[string]any{"unschedulable": nil}
	if err := r.patch(ctx, n, patch); err != nil {
		return err
	}
	if pool != nil {
		r.events.Eventf(pool, v1.EventTypeNormal, eventUncordoned, "node %s takes pods again", n.Name)
	}
	return nil
}

func annotations(key string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}
}

// patch changes a node as it was read. On one that has changed since, the step may be another: it
// is taken when the change is heard of.
func (r *reconciler) patch(ctx context.Context, n *v1.Node, fields map[string]any) error {
	metadata, _ := fields["metadata"].(map[string]any)
	metadata["resourceVersion"] = n.ResourceVersion
	data, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("write a patch of node %s: %w", n.Name, err)
	}
	err = r.Patch(ctx, n.DeepCopy(), client.RawPatch(types.MergePatchType, data))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("patch node %s: %w", n.Name, err)
	}
	return nil
}
