// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/refusal"
)

// testEnv is the controller over an API server in memory, with one node of a pool of slices.
type testEnv struct {
	*reconciler
	clock  *clocktesting.FakeClock
	events *record.FakeRecorder
	told   *string // the pool's condition as it was applied last
}

// why returns the last message of the pool's condition.
func (e *testEnv) why() string { return *e.told }

func newTestEnv(t *testing.T, node *v1.Node, patch func(client.Object) error, pods ...client.Object) *testEnv {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), v1alpha1.AddToScheme(s), topologyv1alpha1.AddToScheme(s)); err != nil {
		t.Fatal(err)
	}
	node.Labels[v1alpha1.LabelPool] = "p"
	pool := poolOf(&v1alpha1.Virtualization{Enabled: true, Strategy: v1alpha1.StrategyMIG, Profile: "all-3g.40gb"})
	pool.Name = "p"
	told := ""
	api := fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(pool).WithObjects(append(pods, pool, node)...).
		WithIndex(&v1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*v1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if patch != nil {
					if err := patch(o); err != nil {
						return err
					}
				}
				return c.Patch(ctx, o, p, opts...)
			},
			SubResourcePatch: func(_ context.Context, _ client.Client, _ string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
				text, err := json.Marshal(o)
				told = string(text)
				return err
			},
		}).Build()
	clock, events := clocktesting.NewFakeClock(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)), record.NewFakeRecorder(50)
	return &testEnv{&reconciler{Client: api, api: api, events: events, clock: clock}, clock, events, &told}
}

// look reconciles once, and returns the node after it.
func (e *testEnv) look(t *testing.T) (node v1.Node, again time.Duration) {
	t.Helper()
	result, err := e.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Get(t.Context(), client.ObjectKey{Name: "n"}, &node); err != nil {
		t.Fatal(err)
	}
	return node, result.RequeueAfter
}

func gpuPod(name string) *v1.Pod {
	return testobj.Pod(name).Namespace("free").Node("n").Limit("nvidia.com/gpu", "1").Phase(v1.PodRunning).Obj()
}

// TestDrain: a node is labelled settleTime after its cordon, once no pod on it has devices. Pods that are
// bound later are evicted until the manager is done.
func TestDrain(t *testing.T) {
	for name, tc := range map[string]struct {
		node *v1.Node
		own  bool // the cordon is ours
	}{
		"a node that serves":                 {aNode("n"), true},
		"a node that somebody else cordoned": {aNode("n", cordon), false},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t, tc.node, nil)
			n, again := e.look(t)
			if n.Annotations[AnnotationDraining] == "" || !n.Spec.Unschedulable || cordonedByUs(&n) != tc.own || again != retryAfter {
				t.Fatalf("node %v, unschedulable %t, again after %v; want it cordoned with the time", n.Annotations, n.Spec.Unschedulable, again)
			}
			late := gpuPod("late") // bound by a scheduler that did not know
			if err := e.Create(t.Context(), late); err != nil {
				t.Fatal(err)
			}
			e.clock.Step(settleTime)
			if n, _ = e.look(t); n.Labels[LabelMIG] != "" {
				t.Errorf("the manager was told %s with a pod on the node", n.Labels[LabelMIG])
			}
			if err := e.Get(t.Context(), client.ObjectKeyFromObject(late), late); !apierrors.IsNotFound(err) {
				t.Errorf("pod late was not evicted: %v", err)
			}
			if n, _ = e.look(t); n.Labels[LabelMIG] != "all-3g.40gb" {
				t.Fatalf("labels %v: the manager was not told", n.Labels)
			}
			later := gpuPod("later")
			if err := e.Create(t.Context(), later); err != nil {
				t.Fatal(err)
			}
			e.look(t)
			if err := e.Get(t.Context(), client.ObjectKeyFromObject(later), later); !apierrors.IsNotFound(err) {
				t.Errorf("pod later was not evicted while the manager worked: %v", err)
			}
			n.Labels[LabelMIGState] = "success"
			if err := e.Update(t.Context(), &n); err != nil {
				t.Fatal(err)
			}
			if n, _ = e.look(t); n.Annotations[AnnotationDraining] != "" || n.Spec.Unschedulable == tc.own {
				t.Errorf("done: node %v, unschedulable %t", n.Annotations, n.Spec.Unschedulable)
			}
		})
	}
}

// TestLatePool: a cordoned node whose pool only the cache does not show stays cordoned; once the API server
// has no such pool either, it is uncordoned.
func TestLatePool(t *testing.T) {
	e := newTestEnv(t, aNode("n"), nil)
	if n, _ := e.look(t); !n.Spec.Unschedulable {
		t.Fatal("the node was not cordoned")
	}
	e.Client = interceptor.NewClient(e.Client.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*v1alpha1.ComputePoolList); ok {
				return nil // the cache has none yet
			}
			return c.List(ctx, list, opts...)
		},
	})
	if n, _ := e.look(t); !n.Spec.Unschedulable {
		t.Error("the node was uncordoned while the API server had its pool")
	}
	pool := &v1alpha1.ComputePool{}
	pool.Name = "p"
	if err := e.Delete(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if n, _ := e.look(t); n.Spec.Unschedulable {
		t.Error("the node stays cordoned though its pool is gone")
	}
}

// TestSettle: a node that was just cordoned is not divided before settleTime, though it is empty.
func TestSettle(t *testing.T) {
	e := newTestEnv(t, aNode("n"), nil)
	e.look(t)
	e.clock.Step(settleTime - time.Second)
	if n, _ := e.look(t); n.Labels[LabelMIG] != "" {
		t.Errorf("the manager was told %s a second too early", n.Labels[LabelMIG])
	}
	e.clock.Step(time.Second)
	if n, _ := e.look(t); n.Labels[LabelMIG] == "" {
		t.Error("the manager was not told")
	}
}

// graphOf returns the node's NodeGPUTopology with the scheduler's condition on a cordon; nil for none.
func graphOf(word *metav1.Condition) *topologyv1alpha1.NodeGPUTopology {
	graph := &topologyv1alpha1.NodeGPUTopology{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	if word != nil {
		word.Type = topologyv1alpha1.ConditionCordonAcknowledged
		graph.Status.Conditions = []metav1.Condition{*word}
	}
	return graph
}

// TestAcknowledgement: where the scheduler can acknowledge a cordon, the devices are divided once it
// did, or has not reported for silence.
func TestAcknowledgement(t *testing.T) {
	const waits = "pod team/a is being bound to the node, or may still be"
	for name, tc := range map[string]struct {
		word     func(token string) *metav1.Condition
		after    time.Duration
		wantTold bool
		wantWhy  string // why not
		wantSays bool   // event that no scheduler acknowledged it
	}{
		"acknowledged": {
			word: func(token string) *metav1.Condition {
				return &metav1.Condition{Status: metav1.ConditionTrue, Message: topologyv1alpha1.CordonMessage(token, "")}
			},
			after: settleTime, wantTold: true,
		},
		"acknowledged, and too early for other schedulers": {
			word: func(token string) *metav1.Condition {
				return &metav1.Condition{Status: metav1.ConditionTrue, Message: topologyv1alpha1.CordonMessage(token, "")}
			},
			after: settleTime - time.Second, wantWhy: "it takes no pods since",
		},
		"a pod is in flight for longer than the settle time": {
			word: func(token string) *metav1.Condition {
				return &metav1.Condition{Status: metav1.ConditionFalse, Message: topologyv1alpha1.CordonMessage(token, waits)}
			},
			after: 2 * settleTime, wantWhy: waits,
		},
		"a pod is in flight for longer than a scheduler may be silent": {
			word: func(token string) *metav1.Condition {
				return &metav1.Condition{Status: metav1.ConditionFalse, Message: topologyv1alpha1.CordonMessage(token, waits)}
			},
			after: silence + time.Hour, wantWhy: waits,
		},
		"an earlier cordon was acknowledged": {
			word: func(string) *metav1.Condition {
				return &metav1.Condition{Status: metav1.ConditionTrue, Message: topologyv1alpha1.CordonMessage("2026-11-29T11:00:00Z", "")}
			},
			after: 2 * settleTime, wantWhy: "the scheduler has not acknowledged the cordon of",
		},
		"nobody says anything": {
			word: func(string) *metav1.Condition { return nil }, after: silence - time.Second, wantWhy: "the scheduler has not acknowledged the cordon of",
		},
		"nobody says anything for long": {
			word: func(string) *metav1.Condition { return nil }, after: silence, wantTold: true, wantSays: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTestEnv(t, aNode("n"), nil)
			n, _ := e.look(t)
			if err := e.Create(t.Context(), graphOf(tc.word(n.Annotations[AnnotationDraining]))); err != nil {
				t.Fatal(err)
			}
			for len(e.events.Events) > 0 {
				<-e.events.Events
			}
			e.clock.Step(tc.after)
			n, _ = e.look(t)
			if told := n.Labels[LabelMIG] != ""; told != tc.wantTold {
				t.Errorf("%v after the cordon the manager was told: %t, want %t", tc.after, told, tc.wantTold)
			}
			if !tc.wantTold && !strings.Contains(e.why(), tc.wantWhy) {
				t.Errorf("the pool says %q, want %q in it", e.why(), tc.wantWhy)
			}
			says := false
			for len(e.events.Events) > 0 {
				event := <-e.events.Events
				says = says || strings.HasPrefix(event, "Warning CordonUnacknowledged node n: ")
			}
			if says != tc.wantSays {
				t.Errorf("an event says that nobody acknowledged it: %t, want %t", says, tc.wantSays)
			}
		})
	}
}

// TestBoundMeanwhile: a pod whose Binding ends between the acknowledgement and the list of pods is seen.
func TestBoundMeanwhile(t *testing.T) {
	e := newTestEnv(t, aNode("n"), nil)
	n, _ := e.look(t)
	token := n.Annotations[AnnotationDraining]
	e.clock.Step(settleTime)
	// The scheduler acknowledges once its last Binding is carried out, which is right before the read.
	late := gpuPod("late")
	e.api = interceptor.NewClient(e.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if graph, ok := o.(*topologyv1alpha1.NodeGPUTopology); ok {
				if err := c.Create(ctx, late); err != nil {
					return err
				}
				*graph = *graphOf(&metav1.Condition{Status: metav1.ConditionTrue, Message: topologyv1alpha1.CordonMessage(token, "")})
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	if n, _ = e.look(t); n.Labels[LabelMIG] != "" {
		t.Errorf("the manager was told %s while a pod was on the node", n.Labels[LabelMIG])
	}
}

// TestCordonAlone: a person's cordon evicts no pods, even while the manager reports nothing.
func TestCordonAlone(t *testing.T) {
	node := aNode("n", cordon, has("mig", "all-3g.40gb")) // without the manager's state, as after a new installation
	e := newTestEnv(t, node, nil, gpuPod("works"))
	e.look(t)
	if err := e.Get(t.Context(), client.ObjectKey{Namespace: "free", Name: "works"}, &v1.Pod{}); err != nil {
		t.Errorf("the pod was evicted: %v", err)
	}
}

// TestRefusedNode: a refused change of a node is an event, and is retried each minute.
func TestRefusedNode(t *testing.T) {
	e := newTestEnv(t, aNode("n"), func(o client.Object) error {
		if _, ok := o.(*v1.Node); ok {
			return apierrors.NewForbidden(v1.Resource("nodes"), o.GetName(), errors.New("a policy says no"))
		}
		return nil
	})
	if _, again := e.look(t); again != refusal.Again {
		t.Errorf("looked at again after %v, want %v", again, refusal.Again)
	}
	told := false
	for len(e.events.Events) > 0 {
		told = told || strings.HasPrefix(<-e.events.Events, "Warning Refused the API server refuses a change of node n")
	}
	if !told {
		t.Error("no event says so")
	}
}

// TestRetry: a retry removes the label, and writes it again after settleTime.
func TestRetry(t *testing.T) {
	e := newTestEnv(t, aNode("n", ours, has("mig", "all-3g.40gb"), label(LabelMIGState, "failed"), retry), nil)
	if n, _ := e.look(t); n.Labels[LabelMIG] != "" || n.Annotations[AnnotationRetry] != "" {
		t.Errorf("labels %v, annotations %v", n.Labels, n.Annotations)
	}
	e.clock.Step(settleTime - time.Second)
	if n, _ := e.look(t); n.Labels[LabelMIG] != "" {
		t.Error("the manager was told before it can have seen the node without the label")
	}
	e.clock.Step(time.Second)
	if n, _ := e.look(t); n.Labels[LabelMIG] != "all-3g.40gb" {
		t.Errorf("labels %v: the manager was not told again", n.Labels)
	}
}
