// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

const (
	// workers is how many nodes are checked at the same time.
	workers = 2
	// firstRetry and lastRetry bound the delay before a node is checked again after a
	// failure, usually because the pods' informer is a moment behind.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second
	// maxAbsent is how often a node is checked again because a pod is unknown: for more
	// than twelve seconds, longer than a healthy informer is behind.
	maxAbsent = 8
	// repairRate and repairBurst limit the corrections that one node's agent can cause:
	// as many as it has pods at once, and then one in two seconds. Otherwise an agent
	// that reports other GPUs each time would make the scheduler write without end.
	repairRate, repairBurst = 0.5, 128
)

const (
	eventRequirementLost = "RequirementLost"
	eventCorrected       = "AllocationCorrected"
	actionRepair         = "Repairing"
)

// State is the part of the scheduler's view of the nodes that the controller needs.
type State interface {
	Node(name string) *usage.Node
	Enforced(node string) bool
	Annotations(a *allocation.Allocation, aliases bool) (map[string]string, error)
}

// Controller corrects annotations. Make it with New, register Handler with an informer
// of NodeGPUTopologies, and call Run while this process leads.
type Controller struct {
	state    State
	client   kubernetes.Interface
	pods     corelisters.PodLister
	recorder events.EventRecorder
	hardware *hardware

	mu     sync.Mutex
	nodes  map[string]*v1alpha1.NodeGPUTopology         // node -> object that may contradict annotations; guarded by mu
	shares map[string]flowcontrol.RateLimiter           // node -> limiter of its corrections; guarded by mu
	queue  workqueue.TypedRateLimitingInterface[string] // of this term, nil when not leading; guarded by mu
}

// New returns a Controller that reads pods from a synced lister.
func New(state State, client kubernetes.Interface, pods corelisters.PodLister, recorder events.EventRecorder) *Controller {
	registerMetrics()
	return &Controller{
		state: state, client: client, pods: pods, recorder: recorder, hardware: newHardware(state, client, pods),
		nodes: map[string]*v1alpha1.NodeGPUTopology{}, shares: map[string]flowcontrol.RateLimiter{},
	}
}

// Handler is the handler for NodeGPUTopologies. It keeps only objects that may
// contradict an annotation. They are the informer's, not copies.
func (c *Controller) Handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.seen(nil, obj) },
		UpdateFunc: c.seen,
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			if t, ok := obj.(*v1alpha1.NodeGPUTopology); ok {
				c.mu.Lock()
				delete(c.nodes, t.Name)
				delete(c.shares, t.Name)
				c.mu.Unlock()
				c.hardware.gone(t.Name)
			}
		},
	}
}

func (c *Controller) seen(old, obj any) {
	t, ok := obj.(*v1alpha1.NodeGPUTopology)
	if !ok {
		return
	}
	before, _ := old.(*v1alpha1.NodeGPUTopology)
	c.hardware.seen(before, t)
	differs := contradicts(t) || c.givesBack(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !differs {
		delete(c.nodes, t.Name)
		return
	}
	c.nodes[t.Name] = t
	if c.queue != nil {
		c.queue.Add(t.Name)
	}
}

// contradicts reports whether an object may contradict an annotation.
func contradicts(t *v1alpha1.NodeGPUTopology) bool {
	for i := range t.Status.Allocations {
		switch a := &t.Status.Allocations[i]; {
		case a.State == v1alpha1.StateForeign:
		case a.State != v1alpha1.StateConfirmed, a.CPUs != "":
			return true
		}
	}
	return false
}

// givesBack reports whether an object confirms an allocation whose annotation is not marked as enforced.
func (c *Controller) givesBack(t *v1alpha1.NodeGPUTopology) bool {
	for i := range t.Status.Allocations {
		r := &t.Status.Allocations[i]
		if r.State != v1alpha1.StateConfirmed || r.Pod == "" {
			continue
		}
		pod, err := c.pods.Pods(r.Namespace).Get(r.Pod)
		if err != nil || pod.UID != r.PodUID {
			continue
		}
		if a := lastChoice(pod); a != nil && !a.Enforced {
			return true
		}
	}
	return false
}

// Run corrects annotations, and informs pods about their hardware, until ctx ends. Call
// it once for each term in which this process leads.
func (c *Controller) Run(ctx context.Context) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "nvtopo_repair"})
	c.mu.Lock()
	c.queue = queue
	for name := range c.nodes {
		queue.Add(name)
	}
	c.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { c.hardware.run(ctx) })
	for range workers {
		wg.Go(func() {
			for c.next(ctx, queue) {
			}
		})
	}
	<-ctx.Done()
	c.mu.Lock()
	c.queue = nil
	c.mu.Unlock()
	queue.ShutDown()
	wg.Wait()
}

func (c *Controller) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) bool {
	name, down := queue.Get()
	if down {
		return false
	}
	defer queue.Done(name)
	if ctx.Err() != nil {
		return true // drained; the term is over
	}
	absent, err := c.repairNode(ctx, name)
	switch {
	case err == nil && (absent == 0 || queue.NumRequeues(name) >= maxAbsent):
		queue.Forget(name) // the missing pods will not come; the agent will publish that
	default:
		klog.FromContext(ctx).V(2).Info("Not all annotations of a node's pods are corrected, will retry", "node", name, "absent", absent, "err", err)
		queue.AddRateLimited(name)
	}
	return true
}

// errAbsent is the error if a pod of the record is not known as recorded: the pods' informer is probably
// behind the topologies'.
var errAbsent = errors.New("not known yet")

// repair is the correction of one pod.
type repair struct {
	pod  *v1.Pod
	to   *allocation.Allocation
	body []byte
	// moved: the GPUs or CPUs differ, not only the mark "enforced".
	moved bool
}

// repairNode corrects all pods of a node in one pass. So when two pods swapped GPUs,
// both seem to have the same GPUs only between two requests. absent counts the pods to
// check again.
func (c *Controller) repairNode(ctx context.Context, name string) (absent int, err error) {
	c.mu.Lock()
	t := c.nodes[name]
	c.mu.Unlock()
	n := c.state.Node(name)
	switch {
	case t == nil:
		return 0, nil
	case n == nil || n.NodeUID != t.Spec.NodeUID:
		return 1, nil // the informer's other handler has not seen it yet
	case !c.state.Enforced(name):
		return 0, fmt.Errorf("node %s: its agent is silent, so what it published may be old", name)
	}
	var errs []error
	var all []repair
	for _, records := range byPod(t.Status.Allocations) {
		r, err := c.repairOf(n, records)
		switch {
		case errors.Is(err, errAbsent):
			absent++
		case err != nil:
			errs = append(errs, err)
		case r != nil:
			all = append(all, *r)
		}
	}
	for i := range all {
		if !c.mayRepair(name) {
			errs = append(errs, fmt.Errorf("node %s: its record changes more often than annotations are corrected", name))
			break
		}
		if err := c.patch(ctx, n, &all[i]); err != nil {
			errs = append(errs, err)
		}
	}
	return absent, errors.Join(errs...)
}

// mayRepair uses up one of the node's corrections, if it has any.
func (c *Controller) mayRepair(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	share := c.shares[node]
	if share == nil {
		share = flowcontrol.NewTokenBucketRateLimiter(repairRate, repairBurst)
		c.shares[node] = share
	}
	return share.TryAccept()
}

// byPod groups allocations by pod, in any order.
func byPod(all []v1alpha1.Allocation) [][]v1alpha1.Allocation {
	at := map[types.UID]int{}
	var out [][]v1alpha1.Allocation
	for _, a := range all {
		i, ok := at[a.PodUID]
		if !ok {
			i = len(out)
			at[a.PodUID] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], a)
	}
	return out
}

// repairOf returns the correction that one pod needs, or nil.
func (c *Controller) repairOf(n *usage.Node, records []v1alpha1.Allocation) (*repair, error) {
	first := &records[0]
	ours := slices.ContainsFunc(records, func(a v1alpha1.Allocation) bool { return a.State != v1alpha1.StateForeign })
	if !ours || first.Pod == "" {
		return nil, nil
	}
	pod, err := c.pods.Pods(first.Namespace).Get(first.Pod)
	switch {
	case apierrors.IsNotFound(err):
		return nil, errAbsent
	case err != nil:
		return nil, fmt.Errorf("pod %s/%s: %w", first.Namespace, first.Pod, err)
	case pod.UID != first.PodUID:
		return nil, nil // another pod with the same name
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		return nil, nil
	}
	chosen := lastChoice(pod)
	if pod.Spec.NodeName != n.Name || chosen == nil {
		return nil, errAbsent
	}
	to, err := actual(chosen, n, records)
	if err != nil || to == nil {
		return nil, err
	}
	annotations, err := c.state.Annotations(to, allocation.HasAliases(pod))
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if why, ok := pod.Annotations[allocation.DecisionKey]; ok { // of the node, which stays
		annotations[allocation.DecisionKey] = why
	}
	body, err := allocation.CorrectionBody(pod, annotations)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return &repair{pod: pod, to: to, body: body, moved: !to.Equal(chosen)}, nil
}

func (c *Controller) patch(ctx context.Context, n *usage.Node, r *repair) error {
	opts := metav1.PatchOptions{FieldManager: allocation.CorrectionManager}
	_, err := c.client.CoreV1().Pods(r.pod.Namespace).Patch(ctx, r.pod.Name, types.MergePatchType, r.body, opts)
	switch {
	case apierrors.IsNotFound(err):
		return nil // the pod is gone
	case apierrors.IsConflict(err):
		repairs.WithLabelValues(resultConflict).Inc()
		return fmt.Errorf("correcting the annotations of pod %s/%s: %w", r.pod.Namespace, r.pod.Name, err)
	case err != nil:
		repairs.WithLabelValues(resultFailed).Inc()
		return fmt.Errorf("correcting the annotations of pod %s/%s: %w", r.pod.Namespace, r.pod.Name, err)
	}
	repairs.WithLabelValues(resultPatched).Inc()
	klog.FromContext(ctx).Info("Corrected the annotations of a pod to what kubelet gave it", "pod", klog.KObj(r.pod), "node", n.Name, "gpus", gpusOf(r.to))
	if !r.moved {
		return nil
	}
	c.recorder.Eventf(r.pod, nil, v1.EventTypeNormal, eventCorrected, actionRepair,
		"the annotations now say what kubelet gave this pod: %s of node %s", eviction.Shortened(gpusOf(r.to)), n.Name)
	if what := unmet(r.pod, r.to, n); what != "" {
		requirementsLost.Inc()
		c.recorder.Eventf(r.pod, nil, v1.EventTypeWarning, eventRequirementLost, actionRepair,
			"the GPUs that kubelet gave this pod do not meet its demand: %s; it keeps running", what)
	}
	return nil
}

func gpusOf(a *allocation.Allocation) []string {
	var out []string
	for i := range a.Containers {
		out = append(out, a.Containers[i].GPUs...)
	}
	return out
}
