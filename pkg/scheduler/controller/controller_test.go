// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// testEnv is a controller whose API server only records requests.
type testEnv struct {
	*Controller
	graph  *nvtopo.Graph
	store  cache.Indexer
	events *events.FakeRecorder

	mu       sync.Mutex
	enforced bool
	verdicts []error // of the next patches
	patches  []string
}

// testState is a State whose agent's Lease the test controls.
type testState struct {
	*nodestate.NodeCache
	b *testEnv
}

func (s testState) Enforced(string) bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	return s.b.enforced
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	state, g := stateOf(t, "dgx1-v100")
	b := &testEnv{graph: g, events: events.NewFakeRecorder(10_000), enforced: true, store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})}
	client := fake.NewClientset()
	client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p, ok := a.(clienttesting.PatchAction)
		if !ok || p.GetPatchType() != types.MergePatchType {
			return true, nil, fmt.Errorf("unexpected request %v", a)
		}
		return true, &v1.Pod{}, b.patched(p)
	})
	b.Controller = New(testState{state.Nodes, b}, client, corelisters.NewPodLister(b.store), b.events)
	return b
}

func (e *testEnv) patched(p clienttesting.PatchAction) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var body struct {
		Metadata struct {
			UID, ResourceVersion string
			Annotations          map[string]*string
		}
	}
	if err := json.Unmarshal(p.GetPatch(), &body); err != nil {
		return err
	}
	line := fmt.Sprintf("%s uid %s version %s", p.GetName(), body.Metadata.UID, body.Metadata.ResourceVersion)
	if text := body.Metadata.Annotations[allocation.Key]; text != nil {
		a, err := allocation.Parse(*text)
		if err != nil {
			return err
		}
		line += ": " + inWords(e.graph, a)
	}
	var err error
	if len(e.verdicts) > 0 {
		err, e.verdicts = e.verdicts[0], e.verdicts[1:]
	}
	if err != nil {
		line += " refused"
	}
	e.patches = append(e.patches, line)
	return err
}

// asked returns the patches since the last call.
func (e *testEnv) asked() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.patches
	e.patches = nil
	return out
}

// pod stores a pod in the informer.
func (e *testEnv) pod(t *testing.T, name, chosen, version string) *v1.Pod {
	t.Helper()
	a := allocated(e.graph, chosen)
	a.PodUID = types.UID(name)
	text, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	p := testobj.Pod(name).Namespace("ns").ResourceVersion(version).Node(testNode).Annotation(allocation.Key, text).Obj()
	if err := e.store.Update(p); err != nil {
		t.Fatal(err)
	}
	return p
}

// publish publishes an agent's record: pod -> GPUs that kubelet recorded.
func (e *testEnv) publish(records map[string]string) {
	e.Handler().OnAdd(e.topology(records), false)
}

func (e *testEnv) topology(records map[string]string) *v1alpha1.NodeGPUTopology {
	t := &v1alpha1.NodeGPUTopology{ObjectMeta: metav1.ObjectMeta{Name: testNode}, Spec: v1alpha1.NodeGPUTopologySpec{NodeUID: "node"}}
	for _, name := range []string{"a", "b", "c"} {
		if records[name] == "" {
			continue
		}
		for _, r := range recorded(e.graph, records[name]) {
			r.Pod, r.PodUID = name, types.UID(name)
			t.Status.Allocations = append(t.Status.Allocations, r)
		}
	}
	return t
}

// lead runs a term.
func (e *testEnv) lead(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); e.Run(ctx) }()
	return func() { cancel(); <-done }
}

func conflict() error {
	return apierrors.NewConflict(v1.Resource("pods"), "a", errors.New("the object has been modified"))
}

// TestLeaderWrites: only a leader writes.
func TestLeaderWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestEnv(t)
		b.pod(t, "a", "m=0,3", "1")
		b.pod(t, "b", "m=4,7", "2")
		b.publish(map[string]string{"a": "m=4,7", "b": "m=0,3"})
		time.Sleep(time.Hour)
		if got := b.asked(); len(got) > 0 {
			t.Fatalf("without leading it wrote %q", got)
		}
		stop := b.lead(t)
		time.Sleep(time.Second)
		want := []string{"a uid a version 1: m=4,7", "b uid b version 2: m=0,3"}
		if diff := cmp.Diff(want, b.asked()); diff != "" {
			t.Errorf("patches (-want,+got):\n%s", diff)
		}
		for range want {
			if e := <-b.events.Events; !strings.HasPrefix(e, "Normal AllocationCorrected ") || !strings.HasSuffix(e, " of node "+testNode) {
				t.Errorf("event %q, want the correction", e)
			}
		}
		stop()
		b.publish(map[string]string{"a": "m=1,2"})
		time.Sleep(time.Hour)
		if got := b.asked(); len(got) > 0 {
			t.Errorf("after its term it wrote %q", got)
		}
		stop = b.lead(t)
		time.Sleep(time.Second)
		if diff := cmp.Diff([]string{"a uid a version 1: m=1,2"}, b.asked()); diff != "" {
			t.Errorf("patches of the next term (-want,+got):\n%s", diff)
		}
		stop()
	})
}

// TestChoiceCorrection: an allocation for another node is corrected. A Binding was carried out after the
// PATCH of the next attempt, and the scheduler then ended.
func TestChoiceCorrection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestEnv(t)
		pod := b.pod(t, "a", "m=0,3", "1").DeepCopy()
		choice := allocated(b.graph, "m=0,3")
		choice.PodUID, choice.Node, choice.CPUSet = pod.UID, "another", "0-1"
		text, err := choice.Encode()
		if err != nil {
			t.Fatal(err)
		}
		pod.Annotations[allocation.Key] = text
		if err := b.store.Update(pod); err != nil {
			t.Fatal(err)
		}
		b.publish(map[string]string{"a": "m=4,7"})
		stop := b.lead(t)
		time.Sleep(time.Second)
		stop()
		if diff := cmp.Diff([]string{"a uid a version 1: m=4,7"}, b.asked()); diff != "" {
			t.Errorf("patches (-want,+got):\n%s", diff)
		}
	})
}

// TestRetries: transient errors are retried and others are not.
func TestRetries(t *testing.T) {
	refused := "a uid a version 1: m=4,7 refused"
	for name, tc := range map[string]struct {
		setup func(t *testing.T, b *testEnv)
		later func(t *testing.T, b *testEnv) // after 20 seconds
		want  []string
		after []string
	}{
		"a conflict is tried again": {
			setup: func(_ *testing.T, b *testEnv) { b.verdicts = []error{conflict()} },
			want:  []string{refused, "a uid a version 1: m=4,7"},
		},
		"a conflict ends with the informer's next version": {
			setup: func(t *testing.T, b *testEnv) {
				t.Helper()
				for range 100 {
					b.verdicts = append(b.verdicts, conflict())
				}
				time.AfterFunc(time.Second, func() { b.pod(t, "a", "m=4,7", "2") }) // as written by another leader
			},
			want: []string{refused, refused, refused, refused, refused},
		},
		"a server that fails is tried again": {
			setup: func(_ *testing.T, b *testEnv) { b.verdicts = []error{errors.New("no server"), errors.New("no server")} },
			want:  []string{refused, refused, "a uid a version 1: m=4,7"},
		},
		"a pod that went is let go": {
			setup: func(_ *testing.T, b *testEnv) { b.verdicts = []error{apierrors.NewNotFound(v1.Resource("pods"), "a")} },
			want:  []string{refused},
		},
		"a pod that the informer has not yet is waited for, but not for ever": {
			setup: func(t *testing.T, b *testEnv) {
				t.Helper()
				_ = b.store.Delete(b.pod(t, "a", "m=0,3", "1"))
			},
			later: func(t *testing.T, b *testEnv) {
				t.Helper()
				b.pod(t, "a", "m=0,3", "1")
			},
			after: nil, // it was given up
		},
		"an annotation that the informer has not yet is waited for": {
			setup: func(t *testing.T, b *testEnv) {
				t.Helper()
				p := b.pod(t, "a", "m=0,3", "1").DeepCopy()
				p.Annotations = nil
				if err := b.store.Update(p); err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(time.Second, func() { b.pod(t, "a", "m=0,3", "1") })
			},
			want: []string{"a uid a version 1: m=4,7"},
		},
		"another pod of the name is not touched": {
			setup: func(t *testing.T, b *testEnv) {
				t.Helper()
				p := b.pod(t, "a", "m=0,3", "1").DeepCopy()
				p.UID = "another"
				if err := b.store.Update(p); err != nil {
					t.Fatal(err)
				}
			},
		},
		"a pod that ended is not touched": {
			setup: func(t *testing.T, b *testEnv) {
				t.Helper()
				p := b.pod(t, "a", "m=0,3", "1").DeepCopy()
				p.Status.Phase = v1.PodFailed
				if err := b.store.Update(p); err != nil {
					t.Fatal(err)
				}
			},
		},
		"a pod of another node is not touched": {
			setup: func(t *testing.T, b *testEnv) {
				t.Helper()
				p := b.pod(t, "a", "m=0,3", "1").DeepCopy()
				p.Spec.NodeName = "n2"
				if err := b.store.Update(p); err != nil {
					t.Fatal(err)
				}
			},
		},
		"an agent that is not heard of is waited for": {
			setup: func(_ *testing.T, b *testEnv) { b.enforced = false },
			later: func(_ *testing.T, b *testEnv) { b.mu.Lock(); b.enforced = true; b.mu.Unlock() },
			after: []string{"a uid a version 1: m=4,7"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestEnv(t)
				b.pod(t, "a", "m=0,3", "1")
				tc.setup(t, b)
				stop := b.lead(t)
				b.publish(map[string]string{"a": "m=4,7"})
				time.Sleep(20 * time.Second)
				if diff := cmp.Diff(tc.want, b.asked()); diff != "" {
					t.Errorf("patches (-want,+got):\n%s", diff)
				}
				if tc.later != nil {
					tc.later(t, b)
				}
				time.Sleep(time.Minute)
				if diff := cmp.Diff(tc.after, b.asked()); diff != "" {
					t.Errorf("patches afterwards (-want,+got):\n%s", diff)
				}
				stop()
			})
		})
	}
}

// TestAgreedNodes: nodes whose record agrees are forgotten.
func TestAgreedNodes(t *testing.T) {
	b := newTestEnv(t)
	b.publish(map[string]string{"a": "m=4,7"})
	if len(b.nodes) != 1 {
		t.Fatalf("%d nodes are kept, want 1", len(b.nodes))
	}
	agreed := &v1alpha1.NodeGPUTopology{ObjectMeta: metav1.ObjectMeta{Name: testNode}}
	agreed.Status.Allocations = []v1alpha1.Allocation{{State: v1alpha1.StateConfirmed}, {State: v1alpha1.StateForeign, CPUs: "1"}}
	b.Handler().OnUpdate(nil, agreed)
	if len(b.nodes) != 0 {
		t.Error("a node is kept that says nothing new")
	}
	b.publish(map[string]string{"a": "m=4,7"})
	b.Handler().OnDelete(cache.DeletedFinalStateUnknown{Key: testNode, Obj: agreed})
	if len(b.nodes) != 0 {
		t.Error("a node is kept that is gone")
	}
}

// TestEnforcedMark: the mark "enforced" is restored. The agent was away, the marker removed the mark, and
// the returning agent confirms exactly the chosen GPUs. One patch restores it.
func TestEnforcedMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestEnv(t)
		p := b.pod(t, "a", "m=0,3", "1")
		text := p.Annotations[allocation.Key]
		p.Annotations[allocation.Key] = strings.Replace(text, `"enforced":true`, `"enforced":false`, 1)
		stop := b.lead(t)
		defer stop()
		agreed := b.topology(map[string]string{"a": "m=0,3"})
		for i := range agreed.Status.Allocations {
			agreed.Status.Allocations[i].State = v1alpha1.StateConfirmed
		}
		b.Handler().OnAdd(agreed, false)
		synctest.Wait()
		if diff := cmp.Diff([]string{"a uid a version 1: m=0,3"}, b.asked()); diff != "" {
			t.Errorf("patches (-want,+got):\n%s", diff)
		}
		b.pod(t, "a", "m=0,3", "2") // as patched
		b.Handler().OnUpdate(agreed, agreed)
		synctest.Wait()
		if got := b.asked(); len(got) > 0 || len(b.nodes) > 0 {
			t.Errorf("patched again: %v; %d nodes are kept", got, len(b.nodes))
		}
	})
}
