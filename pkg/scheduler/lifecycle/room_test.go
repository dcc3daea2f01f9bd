// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
)

// slow is an API server that takes its time for writes, and counts them.
type slow struct {
	patch, bind time.Duration // how long each takes
	fails       error

	mu             sync.Mutex
	now, most, all int // guarded by mu
}

// sent returns the number of writes, and the greatest number at a time.
func (s *slow) sent() (all, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all, s.most
}

func (s *slow) write(ctx context.Context, takes time.Duration) error {
	s.mu.Lock()
	s.now++
	s.all++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(takes):
		return s.fails
	}
}

type slowClient struct {
	kubernetes.Interface
	server *slow
}

// IsWatchListSemanticsUnSupported returns true like the fake client, for informers.
func (slowClient) IsWatchListSemanticsUnSupported() bool { return true }

func (c slowClient) CoreV1() corev1client.CoreV1Interface {
	return slowCore{c.Interface.CoreV1(), c.server}
}

type slowCore struct {
	corev1client.CoreV1Interface
	server *slow
}

func (c slowCore) Pods(namespace string) corev1client.PodInterface {
	return slowPods{c.CoreV1Interface.Pods(namespace), c.server}
}

type slowPods struct {
	corev1client.PodInterface
	server *slow
}

func (p slowPods) Bind(ctx context.Context, _ *v1.Binding, _ metav1.CreateOptions) error {
	return p.server.write(ctx, p.server.bind)
}

func (p slowPods) Patch(ctx context.Context, _ string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*v1.Pod, error) {
	return &v1.Pod{}, p.server.write(ctx, p.server.patch)
}

// gang is a plugin that holds every pod at Permit.
type gang struct{}

func (gang) Name() string { return "Gang" }

func (gang) Permit(context.Context, fwk.CycleState, *v1.Pod, string) (*fwk.Status, time.Duration) {
	return fwk.NewStatus(fwk.Wait), time.Minute
}

// lastBinder binds what no plugin before it has bound, as DefaultBinder does.
type lastBinder struct{ client kubernetes.Interface }

func (*lastBinder) Name() string { return "LastBinder" }

func (b *lastBinder) Bind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	return fwk.AsStatus(b.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &v1.Binding{}, metav1.CreateOptions{}))
}

// newSlowTestEnv is a profile of both plugins with a slow API server.
func newSlowTestEnv(tb testing.TB, server *slow, set setting) *testEnv {
	tb.Helper()
	binder := &lastBinder{}
	set.through = func(c kubernetes.Interface) kubernetes.Interface {
		binder.client = slowClient{c, server}
		return binder.client
	}
	set.others = append(set.others, binder)
	return newTestEnvOf(tb, set, topology.Name, numa.Name)
}

// small makes a pod of which a node takes a thousand: it has a NUMA policy.
func small(name string) *v1.Pod {
	return schedtest.Pod(name).Annotation(podrequest.NUMAAffinityKey, "preferred").CPU("20m").Memory("1Mi").Obj()
}

// reserve takes a pod to the end of its scheduling cycle.
func (e *testEnv) reserve(tb testing.TB, state fwk.CycleState, pod *v1.Pod) {
	tb.Helper()
	ctx := tb.Context()
	_, status, _ := e.fw.RunPreFilterPlugins(ctx, state, pod)
	if status.IsSuccess() {
		status = e.fw.RunReservePluginsReserve(ctx, state, pod, "n")
	}
	if status.IsSuccess() {
		status = e.fw.RunPermitPlugins(ctx, state, pod, "n")
	}
	if !status.IsSuccess() && !status.IsWait() {
		tb.Fatalf("reserving for pod %s: %v", pod.Name, status)
	}
}

// finish is the scheduler's binding cycle. A feature gate of kube-scheduler decides whether it announces
// its writes.
func (e *testEnv) finish(ctx context.Context, state fwk.CycleState, pod *v1.Pod, announces bool) *fwk.Status {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if announces {
		if status := e.fw.RunPreBindPreFlights(ctx, state, pod, "n"); !status.IsSuccess() && !status.IsSkip() {
			return status
		}
	}
	status := e.fw.WaitOnPermit(ctx, pod)
	if status.IsSuccess() {
		status = e.fw.RunPreBindPlugins(ctx, state, pod, "n")
	}
	if status.IsSuccess() {
		status = e.fw.RunBindPlugins(ctx, state, pod, "n")
	}
	if !status.IsSuccess() {
		e.fw.RunReservePluginsUnreserve(ctx, state, pod, "n")
		return status
	}
	e.fw.RunPostBindPlugins(ctx, state, pod, "n")
	return nil
}

// TestGangWriteLimit: a gang is written a few pods at a time. A thousand pods are released at once.
// Before, each began its PATCH or Binding at once: the API server refuses requests beyond its limit, and
// each refused pod is tried again.
func TestGangWriteLimit(t *testing.T) {
	const pods, most = 1000, 64
	tests := map[string]struct {
		write      string
		announces  bool // the feature gate NominatedNodeNameForExpectation
		held       bool // at Permit
		wantWrites int
	}{
		"a PATCH and a Binding for each, held at Permit":       {write: "PreBind", held: true, wantWrites: 2 * pods},
		"announced, and held at Permit":                        {write: "PreBind", held: true, announces: true, wantWrites: 2 * pods},
		"not held, and not announced":                          {write: "PreBind", wantWrites: 2 * pods},
		"a Binding for each, held at Permit":                   {write: "Binding", held: true, wantWrites: pods},
		"a Binding for each, announced, and held at Permit":    {write: "Binding", held: true, announces: true, wantWrites: pods},
		"a Binding for each, neither announced nor held there": {write: "Binding", wantWrites: pods},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			server := &slow{patch: 10 * time.Millisecond, bind: 10 * time.Millisecond}
			set := setting{write: tc.write}
			if tc.held {
				set.others = []fwk.Plugin{gang{}}
			}
			b := newSlowTestEnv(t, server, set)
			ends, begin := make(chan *fwk.Status, pods), make(chan struct{})
			for i := range pods {
				pod, state := small(fmt.Sprint("p", i)), framework.NewCycleState()
				b.reserve(t, state, pod)
				go func() {
					<-begin
					ends <- b.finish(t.Context(), state, pod, tc.announces)
				}()
			}
			close(begin)
			b.fw.IterateOverWaitingPods(func(w fwk.WaitingPod) { w.Allow("Gang") })
			for range pods {
				if status := <-ends; !status.IsSuccess() {
					t.Fatalf("a pod is not bound: %v", status)
				}
			}
			all, atOnce := server.sent()
			if all != tc.wantWrites {
				t.Errorf("%d writes, want %d", all, tc.wantWrites)
			}
			if atOnce > most {
				t.Errorf("up to %d writes are under way, want %d at most", atOnce, most)
			}
		})
	}
}

// fill takes all slots for writes, and returns the function that frees them.
func (e *testEnv) fill(tb testing.TB) (empty func()) {
	tb.Helper()
	var ends []func()
	for range 64 {
		end, err := e.state(tb).Binder.Attempt("", "").BeginWrite(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		ends = append(ends, end)
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// TestChangesBeforeWrite changes the pod's conditions between the end of the scheduling cycle and the
// write.
func TestChangesBeforeWrite(t *testing.T) {
	tests := map[string]func(t *testing.T, b *testEnv, pod *v1.Pod, cancel func()){
		"the scheduler": func(_ *testing.T, _ *testEnv, _ *v1.Pod, cancel func()) { cancel() },
		"the pod": func(t *testing.T, b *testEnv, pod *v1.Pod, _ func()) {
			t.Helper()
			if err := b.client.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			testkit.Soon(t, "the pod is known to be gone", func() bool { return b.state(t).Allocations.Gone(pod.UID) })
		},
	}
	for name, happens := range tests {
		for _, write := range []string{"PreBind", "Binding"} {
			t.Run(name+"/"+write, func(t *testing.T) {
				server := &slow{}
				b := newSlowTestEnv(t, server, setting{write: write})
				pod, state := b.waits(t, "p", 2, 0), framework.NewCycleState()
				b.reserve(t, state, pod)
				empty := b.fill(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ends := make(chan *fwk.Status)
				go func() { ends <- b.finish(ctx, state, pod, false) }()
				happens(t, b, pod, cancel)
				if name == "the pod" {
					empty()
				}
				if status := <-ends; status.Code() != fwk.Error {
					t.Errorf("the binding ends with %v, want an error", status)
				}
				if n, _ := server.sent(); n > 0 {
					t.Errorf("%d writes were sent, want none", n)
				}
				for _, c := range b.state(t).Allocations.Dump() {
					if c.Phase != "void" {
						t.Errorf("a choice is %s, and nothing of it was written", c.Phase)
					}
				}
			})
		}
	}
}

// TestTurnEnd: a turn ends. The attempts of more pods than may be written at a time fail, or get no
// answer: the next pod must be written all the same.
func TestTurnEnd(t *testing.T) {
	const pods = 100
	tests := map[string]struct {
		write      string
		server     *slow
		wantWrites int
	}{
		"when the PATCH is refused":                {"PreBind", &slow{fails: refusal}, pods},
		"when the PATCH gets no answer":            {"PreBind", &slow{patch: time.Hour}, pods},
		"when the Binding is refused":              {"Binding", &slow{fails: refusal}, pods},
		"when our own Binding gets no answer":      {"Binding", &slow{bind: time.Hour}, pods},
		"when the next binder's gets none, either": {"PreBind", &slow{bind: time.Hour}, 2 * pods},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newSlowTestEnv(t, tc.server, setting{write: tc.write, requestTimeout: "1s"})
			for i := range pods {
				pod, state := small(fmt.Sprint("p", i)), framework.NewCycleState()
				b.reserve(t, state, pod)
				go b.finish(t.Context(), state, pod, false)
			}
			testkit.Soon(t, "every pod has had its turn", func() bool {
				all, _ := tc.server.sent()
				return all >= tc.wantWrites
			})
		})
	}
}
