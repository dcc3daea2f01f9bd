// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
)

// limited is the model with kubelet's limit on all clients together: 100 questions a second, 10
// at once. Its time is a bubble's.
type limited struct {
	*model
	limiter *rate.Limiter
}

func (l limited) Get(ctx context.Context, namespace, name string) (kubelet.Devices, error) {
	if !l.limiter.Allow() {
		return nil, kubelet.ErrBusy
	}
	return l.model.Get(ctx, namespace, name)
}

func (l limited) ActivePods(ctx context.Context) (map[types.NamespacedName]bool, error) {
	if !l.limiter.Allow() {
		return nil, kubelet.ErrBusy
	}
	return l.model.ActivePods(ctx)
}

// times collects how long answers took.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (x *times) since(start time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = append(x.all, time.Since(start))
}

func (x *times) report(tb testing.TB, what string) {
	tb.Helper()
	slices.Sort(x.all)
	at := func(q float64) time.Duration { return x.all[int(q*float64(len(x.all)-1))].Round(10 * time.Microsecond) }
	tb.Logf("%s: %d answers, p50 %v, p99 %v, max %v", what, len(x.all), at(0.5), at(0.99), at(1))
	// Kubelet's sync loop must not stand still longer.
	if at(1) > time.Second {
		tb.Errorf("%s: an answer took %v, more than a second", what, at(1))
	}
}

// TestAnswerTime: answers are in time. Pods of one GPU, bound in one burst, are admitted one after
// another while another client of kubelet uses up part of its limit.
func TestAnswerTime(t *testing.T) {
	cases := map[string]struct {
		pods   int
		others int // questions a second of other clients
		order  func(i int) int
	}{
		"alone, in order":                   {110, 0, func(i int) int { return i }},
		"beside a busy client, in order":    {110, 60, func(i int) int { return i }},
		"in an order nobody could know":     {30, 0, func(i int) int { return i * 7 % 30 }},
		"beside a client that takes it all": {30, 400, func(i int) int { return i }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newModel(t, tc.pods, 1)
				client := limited{m, rate.NewLimiter(100, 10)}
				a := newAPI()
				var pods []*v1.Pod
				for i := range tc.pods {
					p := newPod(fmt.Sprintf("p%d", i), types.UID(fmt.Sprintf("uid-%d", i)), epoch.Add(time.Duration(i)*time.Second),
						shape{apps: []int{1}}, []string{fmt.Sprintf("GPU-%d", (i*29)%tc.pods)})
					a.set(p, func(*v1.Pod) {})
					pods = append(pods, p)
				}
				a.sync()
				s, err := New(Config{Node: testNode, StateDir: t.TempDir(), CheckpointPath: m.path}, a, client, graphs{}, clock.RealClock{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				defer wg.Wait()
				defer cancel()
				wg.Go(func() { _ = s.Run(ctx) })
				if tc.others > 0 {
					wg.Go(func() {
						for ctx.Err() == nil {
							_, _ = client.Get(ctx, "ns", "p0")
							time.Sleep(time.Second / time.Duration(tc.others))
						}
					})
				}
				var preferred, allocate times
				m.ask = func() *Steering { return s }
				m.measure = func(rpc string, start time.Time) {
					if rpc == "preferred" {
						preferred.since(start)
					} else {
						allocate.since(start)
					}
				}
				right := 0
				for i := range pods {
					p := pods[tc.order(i)]
					if err := m.admit(p, nil); err != nil {
						t.Fatalf("admitting %s: %v", p.Name, err)
					}
					if _, got := m.of(p.UID); got.Has(fmt.Sprintf("GPU-%d", (tc.order(i)*29)%tc.pods)) {
						right++
					}
				}
				preferred.report(t, "GetPreferredAllocation")
				allocate.report(t, "Allocate")
				t.Logf("%d of %d pods got what was chosen, %d questions answered", right, tc.pods, m.asked())
				if tc.others < 100 && right != tc.pods {
					t.Errorf("only %d of %d pods got what was chosen for them", right, tc.pods)
				}
			})
		})
	}
}

// TestRequestsPerAnswer: the requests for one answer are bounded. Kubelet answers 100 requests a
// second, so that each one may cost a question 10 ms. Whatever the order in which pods of one size
// are admitted, a question needs no more than a few, and one as soon as the order is known. Time
// stands still for it and the tests after it: what comes late on a busy machine is asked for one by
// one.
func TestRequestsPerAnswer(t *testing.T) {
	orders := map[string]struct {
		at func(i, n int) int // which one in the order of binding; the last bound is the oldest
		// first and then are what the first question and each later one may cost.
		first, then int
	}{
		"as bound":                      {func(i, _ int) int { return i }, 3, 1},
		"by age":                        {func(i, n int) int { return n - 1 - i }, 3, 1},
		"from the middle":               {func(i, n int) int { return (n/2 + i) % n }, 3, 3},
		"in an order nobody could know": {func(i, n int) int { return i * 37 % n }, 3, 3},
	}
	for name, order := range orders {
		for _, n := range []int{2, 3, 4, 8, 16, 30, 110} {
			t.Run(fmt.Sprintf("%s, %d pods", name, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					node := newTestEnv(t, nil)
					node.model.provide(n)
					node.start(node.model)
					pods := make([]*v1.Pod, n)
					for i := range pods {
						pods[i] = node.bind(fmt.Sprintf("p%d", i), ofOne(1), gpus(i*29%n), aged(i))
					}
					requests := node.countRequests()
					for i := range pods {
						at, most := order.at(i, n), order.then
						if i == 0 {
							most = order.first
						}
						if got, want := node.admit(pods[at]), gpus(at*29%n); !slices.Equal(got, want) {
							t.Fatalf("%s holds %v, want %v", pods[at].Name, got, want)
						}
						if got := requests(); got > most {
							t.Fatalf("question %d took %d requests to kubelet, which is up to %d ms, want at most %d", i, got, 10*got, most)
						}
					}
				})
			})
		}
	}
}

// aged has a pod be as many seconds old as others count from.
func aged(seconds int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.CreationTimestamp = metav1.NewTime(epoch.Add(-time.Duration(seconds) * time.Second))
	}
}

// countRequests returns what tells how many requests to kubelet the last
// GetPreferredAllocation of an admission took.
func (e *testEnv) countRequests() func() int {
	before, requests := e.model.asked(), 0
	e.model.measure = func(rpc string, _ time.Time) {
		if rpc == "preferred" {
			requests = e.model.asked() - before
		}
		before = e.model.asked()
	}
	return func() int { return requests }
}

// TestEndedPodRequests: the requests about pods that ended are bounded. Devices that the checkpoint
// still gives to pods, and kubelet offers, are free. To make sure of it takes one request for all
// these pods.
func TestEndedPodRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		var ended []*v1.Pod
		for i := range 8 {
			ended = append(ended, n.bind(fmt.Sprintf("p%d", i), ofOne(1), gpus(i)))
			n.admit(ended[i])
		}
		for _, p := range ended {
			n.model.end(p) // the watch has not seen it
		}
		requests := n.countRequests()
		want := gpus(0, 1, 2, 3, 4, 5, 6, 7)
		if got := n.admit(n.bind("all", ofOne(8), want)); !slices.Equal(got, want) {
			t.Errorf("the pod holds %v, want %v", got, want)
		}
		if got := requests(); got > 3 {
			t.Errorf("a question took %d requests to kubelet, which is up to %d ms, want at most 3", got, 10*got)
		}
	})
}

// TestWaitingAndEndedRequests: the requests are bounded while others wait and others have ended:
// neither the pods that wait nor those that ended are three, but together they are.
func TestWaitingAndEndedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		for i := range 2 {
			ended := n.bind(fmt.Sprintf("ended%d", i), ofOne(1), gpus(i))
			n.admit(ended)
			n.model.end(ended) // the watch has not seen it
		}
		n.bind("p0", ofOne(2), gpus(2, 3))
		n.bind("p1", ofOne(2), gpus(4, 5))
		last := n.bind("p2", ofOne(2), gpus(0, 1))
		requests := n.countRequests()
		if got := n.admit(last); !slices.Equal(got, gpus(0, 1)) {
			t.Errorf("the pod holds %v, want %v", got, gpus(0, 1))
		}
		if got := requests(); got > 3 {
			t.Errorf("a question took %d requests to kubelet, which is up to %d ms, want at most 3", got, 10*got)
		}
	})
}

// TestLaggingWatchRequests: the requests are bounded while the watch is behind: of the pods that
// only the API server shows, those that kubelet did not name are not asked about.
func TestLaggingWatchRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		for i := range 5 {
			n.bind(fmt.Sprintf("p%d", i), ofOne(1), nil)
		}
		for i := 5; i < 9; i++ {
			n.api.set(newPod(fmt.Sprintf("p%d", i), types.UID(fmt.Sprintf("uid-p%d", i)), epoch, ofOne(1), nil), func(*v1.Pod) {})
		}
		last := newPod("last", "uid-last", epoch, ofOne(1), gpus(3))
		n.api.set(last, func(*v1.Pod) {})
		requests := n.countRequests()
		if got := n.admit(last); !slices.Equal(got, gpus(3)) {
			t.Errorf("the pod holds %v, want %v", got, gpus(3))
		}
		if got := requests(); got > 3 {
			t.Errorf("a question took %d requests to kubelet, which is up to %d ms, want at most 3", got, 10*got)
		}
	})
}
