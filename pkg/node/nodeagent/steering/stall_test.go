// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/answer"
)

// kubeletGivesUp is how long kubelet's sync loop may stand still for us.
const kubeletGivesUp = time.Second

// hang replaces a file by a pipe that nobody writes to: whoever opens it waits, as
// with a file system that does not answer. It answers again when the test ends.
func hang(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil { // opens for whoever reads
			_ = f.Close()
		}
	})
}

// inTime runs a question and fails if it does not end before kubelet gives up, by the
// agent's clock: how busy the machine is has no part in it.
func inTime(t *testing.T, clk *clocktesting.FakeClock, what string, ask func()) {
	t.Helper()
	const step = 10 * time.Millisecond
	done := make(chan struct{})
	go func() {
		defer close(done)
		ask()
	}()
	over := time.After(time.Minute)
	for passed := time.Duration(0); ; {
		select {
		case <-done:
			return
		case <-over:
			t.Fatalf("%s was not answered within %v", what, kubeletGivesUp)
		case <-time.After(time.Millisecond):
			if clk.HasWaiters() && passed < kubeletGivesUp {
				passed += step
				clk.Step(step)
			}
		}
	}
}

// holdUp stands for whatever else might stall: it keeps a lock until the test ends.
func holdUp(t *testing.T, lock interface {
	Lock()
	Unlock()
},
) {
	t.Helper()
	lock.Lock()
	t.Cleanup(lock.Unlock)
}

// TestStalledAnswers: an answer is given whatever stalls.
func TestStalledAnswers(t *testing.T) {
	t.Parallel()
	checkpoint := func(t *testing.T, n *testEnv) { t.Helper(); hang(t, n.model.path) }
	cases := map[string]struct {
		stall   func(t *testing.T, n *testEnv)
		kubelet Kubelet // nil: it answers
		pods    func(n *testEnv) Pods
		strict  bool
		// want is the answer for a pod with the choice GPU-3 and GPU-4; one without gets the
		// best pair of the others. wantRefused is for strict mode, where nobody tells who asks.
		want        []string
		wantRefused bool
	}{
		"the checkpoint":                  {stall: checkpoint, want: gpus(3, 4)},
		"the checkpoint and kubelet":      {stall: checkpoint, kubelet: slowKubelet{}, want: gpus(3, 4)},
		"the checkpoint, kubelet and API": {stall: checkpoint, kubelet: slowKubelet{}, pods: func(n *testEnv) Pods { return slowList{n.api} }, want: gpus(3, 4)},
		"the checkpoint, in strict mode":  {stall: checkpoint, strict: true, want: gpus(3, 4)},
		"what is remembered of the resource": {
			stall: func(t *testing.T, n *testEnv) { t.Helper(); holdUp(t, &n.shelf(testLogger, gpu).mu) },
			want:  gpus(3, 4),
		},
		"what is remembered of all resources": {
			stall: func(t *testing.T, n *testEnv) { t.Helper(); holdUp(t, &n.mu) },
			want:  gpus(3, 4),
		},
		"what is remembered of the resource, in strict mode": {
			stall:  func(t *testing.T, n *testEnv) { t.Helper(); holdUp(t, &n.shelf(testLogger, gpu).mu) },
			strict: true, want: gpus(3, 4),
		},
		"what is known of the pods": {
			stall: func(t *testing.T, n *testEnv) { t.Helper(); holdUp(t, &n.viewer.mu) },
			want:  gpus(4, 5),
		},
		"what is known of the pods, in strict mode": {
			stall:  func(t *testing.T, n *testEnv) { t.Helper(); holdUp(t, &n.viewer.mu) },
			strict: true, wantRefused: true,
		},
	}
	for name, tc := range cases {
		for kind, chosen := range map[string][]string{"a choice": gpus(3, 4), "no choice": nil} {
			t.Run(name+", a pod with "+kind, func(t *testing.T) {
				t.Parallel()
				n := newTestEnv(t, func(c *Config) { c.Strict = tc.strict })
				// One that runs already has the last two.
				n.admit(n.bind("other", ofOne(2), gpus(6, 7)))
				pod := n.bind("p", ofOne(2), chosen)
				n.model.mu.Lock()
				n.model.known[pod.Namespace+"/"+pod.Name] = pod // kubelet was handed it
				n.model.mu.Unlock()
				var pods Pods = n.api
				if tc.pods != nil {
					pods = tc.pods(n)
				}
				k := tc.kubelet
				if k == nil {
					k = n.model
				}
				clk := clocktesting.NewFakeClock(epoch)
				s, err := New(n.cfg, pods, k, testGraphs(t), clk)
				if err != nil {
					t.Fatal(err)
				}
				n.Steering = s
				tc.stall(t, n)
				want := tc.want
				if chosen == nil {
					want = gpus(4, 5)
				}
				for round := range 2 { // also while the first question's read still waits
					var got []string
					inTime(t, clk, "GetPreferredAllocation", func() {
						got, err = s.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(0, 1, 2, 3, 4, 5), Size: 2}, nil)
					})
					if tc.wantRefused {
						refused(t, err, codes.Unavailable, "in time")
						continue
					}
					if err != nil || len(got) != 2 || round == 0 && !slices.Equal(got, want) {
						t.Errorf("question %d: answer %v, %v; want %v", round, got, err, want)
					}
					inTime(t, clk, "Allocate", func() { err = s.Allocate(t.Context(), gpu, got) })
					if err != nil {
						t.Errorf("question %d: the pod is refused: %v", round, err)
					}
				}
			})
		}
	}
}

// stuckKubelet answers when it is let go, whatever its caller's time is.
type stuckKubelet struct{ free chan struct{} }

func (k stuckKubelet) Get(context.Context, string, string) (kubelet.Devices, error) {
	<-k.free
	return kubelet.Devices{}, nil
}

func (k stuckKubelet) ActivePods(context.Context) (map[types.NamespacedName]bool, error) {
	<-k.free
	return nil, nil
}

// TestLateAnswer: a late answer leaves nothing behind: what was given up goes on, and must not take
// its answer for the one that kubelet got.
func TestLateAnswer(t *testing.T) {
	n := newTestEnv(t, nil)
	n.bind("p", ofOne(2), gpus(3, 4))
	synctest.Test(t, func(t *testing.T) {
		k := stuckKubelet{make(chan struct{})}
		s, err := New(n.cfg, n.api, k, testGraphs(t), clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		s.Devices(gpu, map[string]bool{"GPU-0": true})
		start := time.Now()
		ids, err := s.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(0, 1, 2, 3, 4, 5), Size: 2}, nil)
		if took := time.Since(start); err != nil || !slices.Equal(ids, gpus(3, 4)) || took != answerBudget {
			t.Errorf("answer %v, %v after %v; want the choice after %v", ids, err, took, answerBudget)
		}
		time.Sleep(grantAge) // kubelet never came back for it
		close(k.free)
		synctest.Wait()
		sh := s.shelf(testLogger, gpu)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		for _, g := range sh.grants {
			if time.Since(g.at) < grantAge {
				t.Errorf("an answer or claim is remembered of a question that is over: %+v", g)
			}
		}
		if got := testutil.ToFloat64(s.metrics.decisions.WithLabelValues(answer.ResultSteered)); got != 1 {
			t.Errorf("%v answers were counted, want the one that kubelet got", got)
		}
	})
}

// TestMemoryAnswer: an answer from memory goes by the order: that in which pods lately came, as any
// other.
func TestMemoryAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		// Those that are bound first are the youngest, and are admitted first.
		for i := range 2 {
			p := n.bind(fmt.Sprintf("before%d", i), ofOne(1), gpus(i), aged(i))
			n.bind(fmt.Sprintf("old%d", i), ofOne(1), nil, aged(100+i))
			n.admit(p)
		}
		n.bind("bound-first", ofOne(2), gpus(3, 4), aged(200))
		n.bind("oldest", ofOne(2), gpus(5, 6), aged(201))
		k := stuckKubelet{make(chan struct{})}
		defer close(k.free)
		n.kubelet = kubelet.NewPatient(k, clock.RealClock{})
		ids, err := n.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(2, 3, 4, 5, 6, 7), Size: 2}, nil)
		if err != nil || !slices.Equal(ids, gpus(3, 4)) {
			t.Errorf("answer %v, %v; want what was chosen for the pod that was bound first", ids, err)
		}
	})
}

// TestServeWithoutFile: the agent serves without its file. The agent's own file hangs, so that it
// begins without.
func TestServeWithoutFile(t *testing.T) {
	n := newTestEnv(t, nil)
	n.admit(n.bind("other", ofOne(2), gpus(6, 7)))
	clk := clocktesting.NewFakeClock(epoch)
	s, err := New(n.cfg, n.api, n.model, testGraphs(t), clk)
	if err != nil {
		t.Fatal(err)
	}
	hang(t, filepath.Join(n.state, "served-nvidia.com%2Fgpu.json"))
	inTime(t, clk, "a list of devices", func() { s.Devices(gpu, map[string]bool{"GPU-0": true}) })
	n.Steering = s
	pod := n.bind("p", ofOne(2), gpus(3, 4))
	inTime(t, clk, "an admission", func() { err = n.model.admit(pod, nil) })
	if _, all := n.model.of(pod.UID); err != nil || !slices.Equal(all.Sorted(), gpus(3, 4)) {
		t.Errorf("the pod holds %v, %v; want what was chosen for it", all.Sorted(), err)
	}
}

// stuckPods are not to be had until they are let go.
type stuckPods struct {
	*api
	free chan struct{}
}

func (p stuckPods) Pods() []*v1.Pod {
	<-p.free
	return p.api.Pods()
}

// TestLateCheck: a late check leaves nothing behind: so does the check before an Allocate, which
// must not take the pod for one that is being allocated to when it looks again.
func TestLateCheck(t *testing.T) {
	n := newTestEnv(t, nil)
	n.bind("p", ofOne(2), gpus(3, 4))
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		s, err := New(n.cfg, stuckPods{n.api, free}, n.model, testGraphs(t), clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := s.Allocate(t.Context(), gpu, gpus(3, 4)); err != nil {
			t.Errorf("the pod is refused: %v", err)
		}
		close(free)
		synctest.Wait()
		sh := s.shelf(testLogger, gpu)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		if len(sh.pending) > 0 || len(sh.claims(start)) > 0 {
			t.Errorf("%d allocations and the claims %v are left of a check that is over", len(sh.pending), sh.claims(start))
		}
	})
}

// TestLateAnswerClaim: a late answer is for the pod that asked: who asks had been found and claimed
// when the plugin's preference did not come. Its own claim must not have another pod of the size
// take its place.
func TestLateAnswerClaim(t *testing.T) {
	n := newTestEnv(t, nil)
	a := n.bind("a", ofOne(2), nil)
	n.bind("b", ofOne(2), gpus(3, 4))
	n.model.known["ns/a"] = a
	synctest.Test(t, func(t *testing.T) {
		s, err := New(n.cfg, n.api, n.model, testGraphs(t), clock.RealClock{})
		if err != nil {
			t.Fatal(err)
		}
		free := make(chan struct{})
		defer close(free)
		inner := func(context.Context, interposer.Question) ([]string, error) {
			<-free
			return nil, context.DeadlineExceeded
		}
		ids, err := s.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(0, 1, 2, 3, 4, 5), Size: 2}, inner)
		if err != nil || len(ids) != 2 || slices.Contains(ids, "GPU-3") || slices.Contains(ids, "GPU-4") {
			t.Errorf("a is answered %v, %v; want two that were not chosen for b", ids, err)
		}
		sh := s.shelf(testLogger, gpu)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		for _, g := range sh.grants {
			if g.who == nil || g.who.Pod.UID != a.UID {
				t.Errorf("%v is remembered as answered to %+v, want pod a", g.ids, g.who)
			}
		}
		if len(sh.grants) != 1 {
			t.Errorf("%d answers are remembered, want 1", len(sh.grants))
		}
	})
}

// TestStalledContainerStart: a container starts whatever stalls: before its start nothing is waited
// for longer than for any other answer.
func TestStalledContainerStart(t *testing.T) {
	n := newTestEnv(t, func(c *Config) { c.Strict = true })
	n.admit(n.bind("p", ofOne(2), gpus(3, 4)))
	clk := clocktesting.NewFakeClock(epoch)
	n.clock = clk
	holdUp(t, &n.mu)
	var err error
	inTime(t, clk, "PreStartContainer", func() { err = n.PreStart(t.Context(), gpu, gpus(3, 4)) })
	if err != nil {
		t.Errorf("the container may not start: %v", err)
	}
}
