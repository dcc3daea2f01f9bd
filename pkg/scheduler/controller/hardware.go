// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	// recheck is how often pods are checked again on nodes with a fault, and for
	// newsTime on nodes whose graph changed: some pods were bound or recorded while the
	// change was on its way, and the scheduler reads some graphs late.
	recheck  = 30 * time.Second
	newsTime = 5 * time.Minute
	// sortedFor is how long the pods sorted by node are reused: a new term checks the
	// whole cluster.
	sortedFor = time.Second
	// lookAfter is when a node is checked once more after a change: a pod that was bound just before may be
	// missing from the sorted pods, or from the informer.
	lookAfter = sortedFor + sortedFor/2
	// eventTTL is how long API servers keep events by default. An older fault was
	// reported when it began, and is not reported again after a restart.
	eventTTL = time.Hour
	// eventsPerSecond and eventBurst limit the events that a failing rack causes.
	eventsPerSecond = 10
	eventBurst      = 100
	// podEventBurst and podEventsPerHour limit those on one pod, whose links may fail and recover all the
	// time. They are the limits of client-go's spam filter for an object's other events.
	podEventBurst    = 25
	podEventsPerHour = 12
)

// errTold is the error if a pod got so many events that the rest has to wait.
var errTold = errors.New("the pod was told too much of its hardware of late")

// hardware sends events to running pods about their GPUs and links. It remembers for a term which events
// it has sent. After a restart, an event is not written twice, because its name is made from its content.
type hardware struct {
	state  State
	client kubernetes.Interface
	pods   corelisters.PodLister
	clock  clock.WithTicker
	limit  flowcontrol.RateLimiter

	mu    sync.Mutex
	nodes map[string]*v1alpha1.NodeGPUTopology         // node -> the informer's latest object; guarded by mu
	news  map[string]time.Time                         // node -> when its graph last changed; guarded by mu
	queue workqueue.TypedRateLimitingInterface[string] // of this term, nil when not leading; guarded by mu

	// The rest is of this term, and only the one worker uses it.
	told     map[string]map[types.UID]map[key]trouble // node -> pod -> reported troubles
	limits   map[string]map[types.UID]*rate.Limiter   // node -> pod -> limiter of its events
	sorted   map[string][]*v1.Pod                     // node -> live pods
	sortedAt time.Time
}

func newHardware(state State, client kubernetes.Interface, pods corelisters.PodLister) *hardware {
	return &hardware{
		state: state, client: client, pods: pods, clock: clock.RealClock{},
		limit: flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventBurst), nodes: map[string]*v1alpha1.NodeGPUTopology{},
		news: map[string]time.Time{},
	}
}

// seen records a new version of an object. old is nil if the object is new.
func (w *hardware) seen(old, t *v1alpha1.NodeGPUTopology) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[t.Name] = t
	if old != nil && old.Generation != t.Generation {
		w.news[t.Name] = w.clock.Now()
	}
	if w.queue == nil {
		return
	}
	// Agents write often, and kubelet's record matters only for nodes with a fault.
	if old == nil || old.Generation != t.Generation || hasFault(old) || hasFault(t) {
		w.queue.Add(t.Name)
		if old != nil {
			w.queue.AddAfter(t.Name, lookAfter)
		}
	}
}

func (w *hardware) gone(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.nodes, name)
	delete(w.news, name)
	if w.queue != nil {
		w.queue.Add(name)
	}
}

// hasFault reports whether a GPU of the node is not in full service.
func hasFault(t *v1alpha1.NodeGPUTopology) bool {
	for i := range t.Status.GPUHealth {
		if h := &t.Status.GPUHealth[i]; !h.Healthy || h.Degraded {
			return true
		}
	}
	for i := range t.Spec.GPUs {
		if t.Spec.GPUs[i].MIG {
			return true
		}
	}
	return false
}

// run sends events until the term ends.
func (w *hardware) run(ctx context.Context) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "nvtopo_hardware"})
	w.told, w.sorted = map[string]map[types.UID]map[key]trouble{}, nil
	w.limits = map[string]map[types.UID]*rate.Limiter{}
	w.mu.Lock()
	w.queue = queue
	for name := range w.nodes {
		queue.Add(name)
	}
	w.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		for w.next(ctx, queue) {
		}
	})
	ticker := w.clock.NewTicker(recheck)
	defer ticker.Stop()
	for done := false; !done; {
		select {
		case <-ctx.Done():
			done = true
		case <-ticker.C():
			w.again(queue)
		}
	}
	w.mu.Lock()
	w.queue = nil
	w.mu.Unlock()
	queue.ShutDown()
	wg.Wait()
}

// again queues the nodes that have a fault or whose graph has just changed.
func (w *hardware) again(queue workqueue.TypedRateLimitingInterface[string]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, t := range w.nodes {
		at, changed := w.news[name]
		if changed && w.clock.Since(at) > newsTime {
			delete(w.news, name)
			changed = false
		}
		if changed || hasFault(t) {
			queue.Add(name)
		}
	}
}

func (w *hardware) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string]) bool {
	name, down := queue.Get()
	if down {
		return false
	}
	defer queue.Done(name)
	if ctx.Err() != nil {
		return true // drained; the term is over
	}
	err := w.look(ctx, name)
	switch {
	case err == nil, errors.Is(err, errAbsent) && queue.NumRequeues(name) >= maxAbsent:
		queue.Forget(name) // the scheduler never takes a malformed object
	default:
		klog.FromContext(ctx).V(2).Info("Not all pods of a node got their events about its hardware, will retry", "node", name, "err", err)
		queue.AddRateLimited(name)
	}
	return true
}

// look compares the state of the devices of a node's pods with the events they got.
func (w *hardware) look(ctx context.Context, name string) error {
	w.mu.Lock()
	t := w.nodes[name]
	w.mu.Unlock()
	if t == nil {
		delete(w.told, name)
		delete(w.limits, name)
		return nil
	}
	n := w.state.Node(name)
	if n == nil || n.NodeUID != t.Spec.NodeUID || n.ResourceVersion != t.ResourceVersion {
		return fmt.Errorf("node %s: its topology is %w", name, errAbsent)
	}
	pods, err := w.podsOf(name)
	if err != nil {
		return err
	}
	before, after := w.told[name], map[types.UID]map[key]trouble{}
	var errs []error
	for _, pod := range pods {
		h := holdingOf(pod, t.Status.Allocations)
		now, links := troubles(h, n, t.Status.GPUHealth)
		told, err := w.tell(ctx, h, t, now, links, before[pod.UID])
		if len(told) > 0 {
			after[pod.UID] = told
		}
		errs = append(errs, err)
	}
	w.told[name] = after
	w.keepLimits(name, pods)
	return errors.Join(errs...)
}

// limitOf returns the limiter of a pod's events.
func (w *hardware) limitOf(node string, pod types.UID) *rate.Limiter {
	if w.limits[node] == nil {
		w.limits[node] = map[types.UID]*rate.Limiter{}
	}
	l := w.limits[node][pod]
	if l == nil {
		l = rate.NewLimiter(rate.Every(time.Hour/podEventsPerHour), podEventBurst)
		w.limits[node][pod] = l
	}
	return l
}

// keepLimits forgets the limits of pods that are gone from the node.
func (w *hardware) keepLimits(node string, pods []*v1.Pod) {
	if len(w.limits[node]) == 0 {
		return
	}
	here := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		here[pod.UID] = true
	}
	maps.DeleteFunc(w.limits[node], func(uid types.UID, _ *rate.Limiter) bool { return !here[uid] })
}

// tell writes the new events about a pod and returns all that it has been told. If the state of the links
// is unknown, the old report about them stays. So does the report about a GPU that is no longer part of
// the node.
func (w *hardware) tell(
	ctx context.Context, h *holding, t *v1alpha1.NodeGPUTopology, now []trouble, links bool, before map[key]trouble,
) (map[key]trouble, error) {
	if len(now) == 0 && len(before) == 0 {
		return nil, nil
	}
	told, still, err := w.warn(ctx, h, t, now, before)
	errs := []error{err}
	ended := map[string]bool{}
	for k, tr := range before {
		_, is := told[k]
		switch {
		case is || still[tr.gpu] || ended[tr.gpu] || tr.gpu != "" && !h.has(tr.gpu):
			continue
		case tr.gpu == "" && !links, tr.gpu != "" && !listed(t, tr.gpu):
			told[k] = tr
			continue
		}
		ended[tr.gpu] = true
		if err := w.write(ctx, h, t, v1.EventTypeNormal, recovered(&tr, h)); err != nil {
			errs = append(errs, err)
			told[k] = tr // to try again
		}
	}
	return told, errors.Join(errs...)
}

func listed(t *v1alpha1.NodeGPUTopology, gpu string) bool {
	return slices.ContainsFunc(t.Spec.GPUs, func(g v1alpha1.GPU) bool { return g.ID == gpu })
}

// warn writes the new troubles. It returns all that were reported on the pod, and the GPUs
// that have troubles; "" means the links.
func (w *hardware) warn(
	ctx context.Context, h *holding, t *v1alpha1.NodeGPUTopology, now []trouble, before map[key]trouble,
) (told map[key]trouble, still map[string]bool, err error) {
	told, still = map[key]trouble{}, map[string]bool{}
	var errs []error
	for i := range now {
		tr := &now[i]
		still[tr.gpu] = true
		if _, known := before[tr.key()]; !known && !w.old(h, tr) {
			if err := w.write(ctx, h, t, v1.EventTypeWarning, tr); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		told[tr.key()] = *tr
	}
	return told, still, errors.Join(errs...)
}

// old reports whether the pod was told before this term, if there was a leader then.
func (w *hardware) old(h *holding, t *trouble) bool {
	if t.since.IsZero() {
		return false
	}
	began := t.since
	if b := h.begun(); b.After(began) {
		began = b
	}
	return w.clock.Since(began) > eventTTL
}

// recovered returns the trouble that reports the end of t.
func recovered(t *trouble, h *holding) *trouble {
	r := &trouble{reason: eventGPURecovered, gpu: t.gpu, text: t.text, since: t.since}
	if t.gpu == "" {
		r.reason, r.note = eventLinkRecovered, "the links between the pod's GPUs are as good as when they were chosen"
	} else {
		r.note = fmt.Sprintf("GPU %s is in full service again; the pod was told of %s", t.gpu, t.reason)
	}
	r.note += fmt.Sprintf(" (pod %s/%s)", h.pod.Namespace, h.pod.Name)
	return r
}

// podsOf returns the live pods of a node.
func (w *hardware) podsOf(node string) ([]*v1.Pod, error) {
	if w.sorted == nil || w.clock.Since(w.sortedAt) > sortedFor {
		all, err := w.pods.List(labels.Everything())
		if err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
		w.sorted, w.sortedAt = map[string][]*v1.Pod{}, w.clock.Now()
		for _, pod := range all {
			if pod.Spec.NodeName != "" && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
				w.sorted[pod.Spec.NodeName] = append(w.sorted[pod.Spec.NodeName], pod)
			}
		}
	}
	return w.sorted[node], nil
}
