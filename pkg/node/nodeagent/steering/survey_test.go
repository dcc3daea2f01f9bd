// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
)

// watchedKubelet is the model with a word in each request.
type watchedKubelet struct {
	*model
	get  func(name string) error // before it is asked about a pod; nil: nothing
	list func() error            // and for all; nil: nothing
}

func (k watchedKubelet) Get(ctx context.Context, namespace, name string) (kubelet.Devices, error) {
	if k.get != nil {
		if err := k.get(name); err != nil {
			return nil, err
		}
	}
	return k.model.Get(ctx, namespace, name)
}

func (k watchedKubelet) ActivePods(ctx context.Context) (map[types.NamespacedName]bool, error) {
	if k.list != nil {
		if err := k.list(); err != nil {
			return nil, err
		}
	}
	return k.model.ActivePods(ctx)
}

// latePods are not to be had at once.
type latePods struct {
	*api
	after time.Duration
}

func (p latePods) Pods() []*v1.Pod {
	time.Sleep(p.after)
	return p.api.Pods()
}

// TestLateSurvey: no survey is made late in a question. A request of all pods that kubelet carries
// out when it has the answer may make it forget the devices of it.
func TestLateSurvey(t *testing.T) {
	const latest = 300 * time.Millisecond
	cases := map[string]struct {
		get      time.Duration // how long kubelet takes to tell about a pod
		busy     time.Duration // for how long it is too busy to do so
		listBusy bool          // and always is to tell of all
		pods     time.Duration // how long the pods are not to be had
		want     bool          // it is asked for all
	}{
		"all is quick":                     {want: true},
		"kubelet takes its time":           {get: 650 * time.Millisecond},
		"kubelet is busy":                  {busy: 250 * time.Millisecond, listBusy: true, want: true},
		"kubelet is busy for long":         {busy: 400 * time.Millisecond},
		"the pods are not to be had":       {pods: 400 * time.Millisecond},
		"something else has it begin late": {get: 299 * time.Millisecond, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, nil)
				for i := range 6 {
					n.bind(fmt.Sprintf("p%d", i), ofOne(2), nil)
				}
				n.model.known["ns/p5"] = n.bind("p5", ofOne(2), gpus(3, 4))
				start, lists, last := time.Now(), 0, time.Duration(0)
				k := watchedKubelet{n.model, func(string) error {
					time.Sleep(tc.get)
					if time.Since(start) < tc.busy {
						return kubelet.ErrBusy
					}
					return nil
				}, func() error {
					lists++
					last = time.Since(start)
					if tc.listBusy {
						return kubelet.ErrBusy
					}
					return nil
				}}
				s, err := New(n.cfg, latePods{n.api, tc.pods}, k, testGraphs(t), clock.RealClock{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(0, 1, 2, 3, 4, 5), Size: 2}, nil); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Minute) // what was given up ends
				if lists > 0 != tc.want || last > latest {
					t.Errorf("kubelet was asked for all pods %d times, last %v after its question; want %v, and never after %v", lists, last, tc.want, latest)
				}
			})
		})
	}
}

// surveyable puts pods on the node of which the last cannot be told without asking
// about each or for all.
func surveyable(n *testEnv) (last *v1.Pod) {
	for i := range 6 {
		last = n.bind(fmt.Sprintf("p%d", i), ofOne(3), nil)
	}
	return last
}

// TestSurveyDuringAllocation: no survey is made while a worker is given devices. Beside admission
// the worker of a pod is given devices, however long it takes; they are not to be forgotten. The
// model complains.
func TestSurveyDuringAllocation(t *testing.T) {
	cases := map[string]struct {
		worker shape
		at     func(n *testEnv, stop func()) // has the worker stop, once
		wait   time.Duration                 // so long before the other question
	}{
		"it asks, and kubelet has taken a part": {shape{plain: []int{1}, apps: []int{2}}, func(n *testEnv, stop func()) {
			n.start(watchedKubelet{model: n.model, get: func(name string) error {
				n.model.mu.Lock()
				taking := n.model.taking
				n.model.mu.Unlock()
				if name == "worker" && taking > 0 {
					stop()
				}
				return nil
			}})
		}, 0},
		"it was answered":                 {ofOne(1), func(n *testEnv, stop func()) { n.model.between = stop }, 0},
		"it was answered a while ago":     {ofOne(1), func(n *testEnv, stop func()) { n.model.between = stop }, podfinder.SettleAge + time.Second},
		"the plugin is at it":             {ofOne(1), func(n *testEnv, stop func()) { n.model.plugin = stop }, 0},
		"the plugin has been for a while": {ofOne(1), func(n *testEnv, stop func()) { n.model.plugin = stop }, podfinder.SettleAge + time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, nil)
				n.model.provide(16)
				stopped, free := atomic.Bool{}, make(chan struct{})
				tc.at(n, func() {
					if stopped.CompareAndSwap(false, true) {
						<-free
					}
				})
				worker, last := n.bind("worker", tc.worker, gpus(12, 13)[:tc.worker.size()]), surveyable(n)
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := n.model.work(worker, nil); err != nil {
						t.Errorf("the worker is refused: %v", err)
					}
				})
				synctest.Wait()
				if !stopped.Load() {
					t.Error("the worker did not stop")
				}
				time.Sleep(tc.wait)
				n.admit(last)
				if n.model.lists > 0 {
					t.Errorf("kubelet was asked for all pods %d times", n.model.lists)
				}
				close(free)
				wg.Wait()
			})
		})
	}
}

// TestAnswerDuringSurvey: no answer is given during a survey: nor is a worker answered while
// kubelet is asked for all.
func TestAnswerDuringSurvey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		n.model.provide(16)
		worker, last := n.bind("worker", ofOne(1), gpus(7)), surveyable(n)
		free, during := make(chan struct{}), make(chan struct{})
		n.model.between = func() { <-free }
		var wg sync.WaitGroup
		n.model.during = func() {
			wg.Go(func() {
				if err := n.model.work(worker, nil); err != nil {
					t.Errorf("the worker is refused: %v", err)
				}
			})
			synctest.Wait() // it goes as far as it can
			close(during)
		}
		wg.Go(func() { n.admit(last) })
		<-during
		synctest.Wait()
		close(free)
		wg.Wait()
		if _, got := n.model.of(worker.UID); !got.Has("GPU-7") {
			t.Errorf("the worker's pod holds %v, want what was chosen for it", got.Sorted())
		}
	})
}

// withoutList is a kubelet that does not tell all its pods.
type withoutList struct{ *model }

func (withoutList) ActivePods(context.Context) (map[types.NamespacedName]bool, error) {
	return nil, kubelet.ErrUnsupported
}

// TestAskingWithoutList: each pod is asked about without a list: what tells of all pods only saves
// time.
func TestAskingWithoutList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		n.start(withoutList{n.model})
		var pods []*v1.Pod
		for i := range 8 {
			pods = append(pods, n.bind(fmt.Sprintf("p%d", i), ofOne(1), gpus(i)))
		}
		for i, pod := range slices.Backward(pods) {
			if got := n.admit(pod); !slices.Equal(got, gpus(i)) {
				t.Errorf("%s holds %v, want %v", pod.Name, got, gpus(i))
			}
		}
		n.counted(n.metrics.identity.WithLabelValues(podfinder.SourceGet), 8, "found by kubelet's answer")
	})
}
