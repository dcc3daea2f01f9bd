// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/faults"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

const byNode = "node"

// testEnv is the cluster with all programs and simulated parts.
type testEnv struct {
	cluster *devcluster.Cluster
	seed    uint64
	kube    kubernetes.Interface
	dyn     dynamic.Interface
	boxes   []*box
	oracles map[string]*oracle.Oracle // graph class -> brute force; used by the calm only
	start   time.Time

	schedulers []*replica
	debug      *http.Client // of the schedulers' debug addresses
	pods       cache.SharedIndexInformer
	topologies cache.SharedIndexInformer
	triggers   triggers
	conflicts  conflicts
	gangs      gangs
	past       *history
	hostile    *hostile

	ctx     context.Context // ends with the run
	abort   context.CancelCauseFunc
	wg      sync.WaitGroup
	echoing func(string, ...any)

	mu          sync.Mutex
	notes       []string        // the last ones; guarded by mu
	marks       []string        // notes worth a line in the report; guarded by mu
	counts      map[string]int  // guarded by mu
	failures    []fault         // guarded by mu
	resumed     bool            // a paused leader was resumed since the last calm; guarded by mu
	paused      int             // number of paused leaders; guarded by mu
	disturbance string          // last event since the last calm that may cut a gang; guarded by mu
	pending     []string        // the checker's last findings that one check cannot prove; guarded by mu
	faultsNow   []faults.Rule   // of all requests of the schedulers; guarded by mu
	groupFaults []faults.Rule   // of those about PodGroups; guarded by mu
	deaths      []time.Time     // of scheduler processes since the last calm; guarded by mu
	deadly      bool            // this phase may end processes; guarded by mu
	over        <-chan struct{} // closed at the end of the phase; guarded by mu
}

// triggers are the agents' functions for changes, by node.
type triggers struct {
	mu sync.Mutex
	of map[string]func()
}

func (t *triggers) set(node string, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]func(){}
	}
	t.of[node] = f
}

func (t *triggers) fire(node string) {
	t.mu.Lock()
	f := t.of[node]
	t.mu.Unlock()
	if f != nil {
		f()
	}
}

func newTestEnv(t *testing.T, seed uint64, nodes int, log io.Writer) *testEnv {
	t.Helper()
	cluster, err := devcluster.Start(t.Context(), devcluster.Config{
		Controllers: true, Log: log, APIServerArgs: []string{"--request-timeout=" + serverTimeout.String()},
	})
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	cfg := cluster.RESTConfig()
	w := &testEnv{
		cluster: cluster, seed: seed, kube: kubernetes.NewForConfigOrDie(cfg), dyn: dynamic.NewForConfigOrDie(cfg),
		oracles: map[string]*oracle.Oracle{}, counts: map[string]int{}, start: time.Now(), echoing: t.Logf,
		past: newHistory(),
	}
	w.ctx, w.abort = context.WithCancelCause(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		w.abort(nil)
		w.wg.Wait()
	})
	if err := cluster.InstallManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.prepare(t)
	w.makeFabric(t)
	w.watch(t)
	for i := range nodes {
		b, err := newBox(w, i)
		if err == nil {
			b.kubelet, err = newKubelet(b, filepath.Join(cluster.Dir(), "nodes"), seed)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.boxes = append(w.boxes, b)
	}
	for _, b := range w.boxes {
		if err := b.join(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.run(b.kubelet.run)
	}
	w.run(w.collectRemains)
	w.awaitGraphs(t)
	return w
}

// prepare creates the objects that the pods need.
func (e *testEnv) prepare(t *testing.T) {
	t.Helper()
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := e.kube.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, p := range priorities[1:] {
		if _, err := e.kube.SchedulingV1().PriorityClasses().Create(t.Context(), priorityClass(p.name, p.value), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.kube.PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), budget(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// watch starts the informers that kubelets and agents share.
func (e *testEnv) watch(t *testing.T) {
	t.Helper()
	pods := informers.NewSharedInformerFactory(e.kube, 0)
	e.pods = pods.Core().V1().Pods().Informer()
	err := e.pods.AddIndexers(cache.Indexers{byNode: func(obj any) ([]string, error) {
		p, ok := obj.(*v1.Pod)
		if !ok {
			return nil, nil
		}
		return []string{p.Spec.NodeName}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	tell := func(obj any, deleted bool) {
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		if p, ok := obj.(*v1.Pod); ok {
			e.past.see(p, deleted)
		}
		if p, ok := obj.(*v1.Pod); ok && p.Spec.NodeName != "" {
			if i := slices.IndexFunc(e.boxes, func(b *box) bool { return b.name == p.Spec.NodeName }); i >= 0 {
				e.boxes[i].kubelet.look()
			}
			e.triggers.fire(p.Spec.NodeName)
		}
	}
	if _, err := e.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { tell(obj, false) }, DeleteFunc: func(obj any) { tell(obj, true) },
		UpdateFunc: func(old, obj any) {
			if was, is := old.(*v1.Pod), obj.(*v1.Pod); was.Spec.NodeName == "" && is.Spec.NodeName != "" {
				e.count("pods bound", 1)
			}
			tell(obj, false)
		},
	}); err != nil {
		t.Fatal(err)
	}
	topologies := dynamicinformer.NewDynamicSharedInformerFactory(e.dyn, 0)
	e.topologies = topologies.ForResource(v1alpha1.GroupVersionResource).Informer()
	seen := func(obj any) {
		if m, ok := obj.(metav1.Object); ok {
			e.triggers.fire(m.GetName())
		}
	}
	if _, err := e.topologies.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: seen, UpdateFunc: func(_, obj any) { seen(obj) }}); err != nil {
		t.Fatal(err)
	}
	pods.Start(e.ctx.Done())
	topologies.Start(e.ctx.Done())
	if !cache.WaitForCacheSync(t.Context().Done(), e.pods.HasSynced, e.topologies.HasSynced) {
		t.Fatal("the informers do not sync")
	}
}

func (e *testEnv) awaitGraphs(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, patience, fmt.Sprintf("%d graphs are published", len(e.boxes)), func(context.Context) (bool, string) {
		n := len(e.topologies.GetStore().List())
		return n == len(e.boxes), strconv.Itoa(n)
	})
}

// gpus returns the number of GPUs of all nodes.
func (e *testEnv) gpus() int {
	n := 0
	for _, b := range e.boxes {
		n += b.now().Len()
	}
	return n
}

// run runs a function until it is stopped or the soak ends.
func (e *testEnv) run(f func(context.Context) error) *runner {
	ctx, cancel := context.WithCancel(e.ctx)
	r := &runner{cancel: cancel, done: make(chan struct{})}
	e.wg.Go(func() {
		defer close(r.done)
		if err := f(ctx); err != nil && ctx.Err() == nil {
			e.fail("something that has to go on ended: %v", err)
		}
	})
	return r
}

func (e *testEnv) count(what string, n int) {
	e.mu.Lock()
	e.counts[what] += n
	e.mu.Unlock()
}

// try calls f until it succeeds: the API server may be down, or so young that its admission refuses pods
// whose PriorityClass it cannot find yet. f maps acceptable errors to nil.
func (e *testEnv) try(ctx context.Context, what string, f func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = f(ctx)
		if apierrors.IsInvalid(last) {
			return false, last
		}
		return last == nil, nil
	})
	if err == nil {
		return nil
	}
	if e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	return fmt.Errorf("%s: %w", what, errors.Join(err, last))
}

// gone, exists and stale map errors to nil that mean that the desired state exists already.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func exists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func stale(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// remove deletes the pod with this UID.
func (e *testEnv) remove(ctx context.Context, p *v1.Pod, grace int64) error {
	return e.try(ctx, "delete "+p.Name, func(ctx context.Context) error {
		return stale(e.kube.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &p.UID},
		}))
	})
}

// podsOf returns the informer's pods that are bound to a node; for "" those without one.
func (e *testEnv) podsOf(node string) []*v1.Pod {
	objs, err := e.pods.GetIndexer().ByIndex(byNode, node)
	if err != nil {
		return nil
	}
	var out []*v1.Pod
	for _, o := range objs {
		if p, ok := o.(*v1.Pod); ok {
			out = append(out, p)
		}
	}
	return out
}

// explain returns why the scheduler may have chosen a GPU that a pod has. It may know before our informer
// that the pod is gone or has ended, so the API server is queried.
func (e *testEnv) explain(h *held) string {
	runs := true
	err := e.try(e.ctx, "look at "+h.name, func(ctx context.Context) error {
		p, err := e.kube.CoreV1().Pods(h.namespace).Get(ctx, h.name, metav1.GetOptions{})
		if err == nil {
			runs = p.UID == h.uid && !ended(p)
		} else if apierrors.IsNotFound(err) {
			runs = false
		}
		return gone(err)
	})
	switch {
	case err == nil && !runs:
		return causeForced
	case e.pausedLately():
		return causePause
	}
	return causeUnknown
}

func (e *testEnv) topology(node string) *v1alpha1.NodeGPUTopology {
	obj, ok, err := e.topologies.GetStore().GetByKey(node)
	if err != nil || !ok {
		return nil
	}
	return topologyFrom(obj)
}

// oracleOf returns the brute force for a graph; equal ones share it.
func (e *testEnv) oracleOf(g *nvtopo.Graph) *oracle.Oracle {
	key := g.ClassKey()
	if e.oracles[key] == nil {
		e.oracles[key] = oracle.New(g)
	}
	return e.oracles[key]
}

// pausedLately reports whether a leader is paused or was resumed since the last calm: until the next one
// its old decisions may show.
func (e *testEnv) pausedLately() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.paused > 0 || e.resumed
}

// calmed forgets disturbances before a calm: they excuse no later finding.
func (e *testEnv) calmed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resumed, e.deaths, e.disturbance = false, nil, ""
}

// lost records the end of a scheduler process.
func (e *testEnv) lost() {
	e.mu.Lock()
	e.deaths = append(e.deaths, time.Now())
	e.mu.Unlock()
}
