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
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/membership"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// retryAfter is the interval of retries while a node drains or its manager has not reported. It is the
// interval of kubectl drain.
const retryAfter = 5 * time.Second

// Reasons of events on a pool.
const (
	eventCordoned   = "NodeCordoned"
	eventDivided    = "NodeLabelled"
	eventUncordoned = "NodeUncordoned"
	eventEvicted    = "PodEvicted"
	// eventUnacknowledged: no scheduler acknowledged a cordon, and the node is divided nevertheless.
	eventUnacknowledged = "CordonUnacknowledged"
)

// reconciler brings the nodes of one pool nearer to its spec.
type reconciler struct {
	client.Client
	// api reads past the cache: a pod that the cache does not show yet holds its devices too.
	api    client.Reader
	events record.EventRecorder
	clock  clock.PassiveClock
}

// Reconcile takes one step for each node that has one.
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
	if err := r.giveBack(ctx, req.Name, &m); err != nil {
		return ctrl.Result{}, err
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
	refused, err := r.takeAll(ctx, m.pool, &o)
	if err := errors.Join(err, r.report(ctx, m.pool, o.condition(m.pool))); err != nil {
		return ctrl.Result{}, err
	}
	if refused {
		return ctrl.Result{RequeueAfter: refusal.Again}, nil
	}
	for i := range o.nodes {
		if o.nodes[i].outOfService() {
			return ctrl.Result{RequeueAfter: retryAfter}, nil
		}
	}
	return ctrl.Result{}, nil
}

// giveBack uncordons the nodes that the pool no longer has. It reads the pools from the API server: a
// pool that a late cache does not show may be dividing the node's devices.
func (r *reconciler) giveBack(ctx context.Context, pool string, m *members) error {
	if len(m.left) == 0 {
		return nil
	}
	var pools v1alpha1.ComputePoolList
	if err := r.api.List(ctx, &pools); err != nil {
		return fmt.Errorf("list pools: %w", err)
	}
	now := membership.In(&pools)
	for _, n := range m.left {
		if in := membership.PoolOf(n.Labels, now); in != nil && in.Name == pool {
			continue
		}
		if upgrading(n) {
			continue // its label changes when that is done
		}
		if err := r.uncordon(ctx, m.pool, n); err != nil {
			return err
		}
	}
	return nil
}

// takeAll takes each node's step, and records why pods stay. refused reports that the API server refuses
// a step.
func (r *reconciler) takeAll(ctx context.Context, pool *v1alpha1.ComputePool, o *outcome) (refused bool, err error) {
	var errs []error
	for i := range o.nodes {
		n := &o.nodes[i]
		blocked, err := r.take(ctx, pool, n)
		if why := refusal.Of(err, "a change of node "+n.Name); why != "" {
			refused, err = true, nil
			blocked = append(blocked, why)
			r.events.Event(pool, v1.EventTypeWarning, refusal.EventRefused, why)
		}
		if len(blocked) > 0 {
			o.blocked[n.Name] = blocked
		}
		errs = append(errs, err)
	}
	return refused, errors.Join(errs...)
}

// take takes a node's step. While pods have to end first it returns why they stay.
func (r *reconciler) take(ctx context.Context, pool *v1alpha1.ComputePool, n *node) (blocked []string, err error) {
	switch n.step {
	case stepCordon:
		r.events.Eventf(pool, v1.EventTypeNormal, eventCordoned, "node %s is cordoned, to be drained and divided anew", n.Name)
		return nil, r.patch(ctx, n.Node, map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{AnnotationCordon: pool.Name, AnnotationDraining: r.now()}},
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
	case stepRetry:
		// The label is written again settleTime later: the manager must see the node without it.
		label, state := labelOf(n.target.strategy)
		return nil, r.patch(ctx, n.Node, map[string]any{"metadata": map[string]any{
			"labels": map[string]any{label: nil, state: nil}, "annotations": map[string]any{AnnotationRetry: nil, AnnotationDraining: r.now()},
		}})
	case stepTidy:
		return nil, r.patch(ctx, n.Node, annotations(AnnotationDraining, nil))
	case stepWait:
		if n.Annotations[AnnotationDraining] == "" {
			return nil, nil // it is not being divided, and its pods stay
		}
		_, blocked, err = r.clear(ctx, pool, n) // pods that were bound to it nevertheless
		return blocked, err
	case stepNone, stepFailed, stepUpgrade:
	}
	return nil, nil
}

// clear evicts the pods on a node that hold devices. left reports that there were any; blocked has the
// reasons of those that stay.
func (r *reconciler) clear(ctx context.Context, pool *v1alpha1.ComputePool, n *node) (left bool, blocked []string, err error) {
	var pods v1.PodList
	onNode := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", n.Name)}
	if err := r.api.List(ctx, &pods, onNode); err != nil {
		return true, nil, fmt.Errorf("list the pods of node %s: %w", n.Name, err)
	}
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
		if refused := refusal.Of(err, "an eviction"); refused != "" {
			why, err = refused, nil
		}
		if err != nil {
			return true, blocked, err
		}
		if why != "" {
			blocked = append(blocked, why)
		}
	}
	return left, blocked, nil
}

// now returns the time in the annotations' format, precise enough to differ for any two cordons.
func (r *reconciler) now() string { return r.clock.Now().UTC().Format(time.RFC3339Nano) }

// drain evicts the pods that hold devices. It labels the node for its manager once there are none and no
// more can arrive.
func (r *reconciler) drain(ctx context.Context, pool *v1alpha1.ComputePool, n *node) (blocked []string, err error) {
	word, published, err := r.cordonWord(ctx, n.Node)
	if err != nil {
		return nil, err
	}
	left, blocked, err := r.clear(ctx, pool, n)
	if left || err != nil {
		return blocked, err
	}
	since, err := time.Parse(time.RFC3339, n.Annotations[AnnotationDraining])
	if err != nil { // others have cordoned it, at an unknown time
		return nil, r.patch(ctx, n.Node, annotations(AnnotationDraining, r.now()))
	}
	if why := r.unsettled(pool, n.Node, r.clock.Since(since), word, published); why != "" {
		return []string{why}, nil
	}
	label, state := labelOf(n.target.strategy)
	labels := map[string]any{label: n.target.value}
	if n.target.value == "" {
		labels[label] = nil
	}
	if state != "" {
		labels[state] = nil // its next value will be about this label
	}
	r.events.Eventf(pool, v1.EventTypeNormal, eventDivided, "node %s: %s=%s", n.Name, label, n.target.value)
	return nil, r.patch(ctx, n.Node, map[string]any{"metadata": map[string]any{
		"labels": labels, "annotations": map[string]any{AnnotationStrategy: string(n.target.strategy)},
	}})
}

// evict requests the eviction of a pod, and returns why it is refused. The API server checks
// PodDisruptionBudgets.
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

// uncordon lifts a cordon of this package; the pool may be gone.
func (r *reconciler) uncordon(ctx context.Context, pool *v1alpha1.ComputePool, n *v1.Node) error {
	patch := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{AnnotationCordon: nil, AnnotationDraining: nil}},
		"spec":     map[string]any{"unschedulable": nil},
	}
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

// patch changes a node in the version that was read. If it has changed since, the step may be another
// one: it is taken on the event of that change.
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
