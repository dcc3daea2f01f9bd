// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/answer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

var testLogger = klog.Background()

// testEnv is an agent beside the model of kubelet.
type testEnv struct {
	*Steering
	api   *api
	model *model
	state string
	cfg   Config
	t     *testing.T
}

func newTestEnv(t *testing.T, change func(*Config)) *testEnv {
	t.Helper()
	n := &testEnv{api: newAPI(), model: newModel(t, 8, 1), state: t.TempDir(), t: t}
	n.cfg = Config{Node: testNode, StateDir: n.state, CheckpointPath: n.model.path}
	if change != nil {
		change(&n.cfg)
	}
	n.model.ask = func() *Steering { return n.Steering }
	n.start(n.model)
	return n
}

func (e *testEnv) start(k Kubelet) {
	s, err := New(e.cfg, e.api, k, testGraphs(e.t), clock.RealClock{})
	if err != nil {
		e.t.Fatal(err)
	}
	e.Steering = s
	healthy := map[string]bool{}
	for id := range e.model.healthy {
		healthy[id] = true
	}
	e.Devices(gpu, healthy)
}

// bind puts a pod on the node; the watch sees it.
func (e *testEnv) bind(name string, s shape, set []string, change ...func(*v1.Pod)) *v1.Pod {
	pod := newPod(name, types.UID("uid-"+name), epoch, s, set)
	for _, c := range change {
		c(pod)
	}
	e.api.set(pod, func(*v1.Pod) {})
	e.api.sync()
	return pod
}

// admit has kubelet admit a pod and returns what it then holds.
func (e *testEnv) admit(pod *v1.Pod) []string {
	e.t.Helper()
	if err := e.model.admit(pod, nil); err != nil {
		e.t.Fatalf("pod %s is refused: %v", pod.Name, err)
	}
	_, all := e.model.of(pod.UID)
	return all.Sorted()
}

func (e *testEnv) counted(c prometheus.Collector, want float64, what string) {
	e.t.Helper()
	if got := testutil.ToFloat64(c); got != want {
		e.t.Errorf("%s: counted %v, want %v", what, got, want)
	}
}

func ofOne(k int) shape { return shape{apps: []int{k}} }

func refersToOutput(pod *v1.Pod) {
	pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "CUDA_VISIBLE_DEVICES", ValueFrom: &v1.EnvVarSource{
		FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['nvtopo.dev/gpu-ids']"},
	}}}
}

// TestAnnotatedPods: annotated pods get the devices chosen for them.
func TestAnnotatedPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		n.bind("first", ofOne(2), gpus(0, 3))
		second := n.bind("second", ofOne(2), gpus(1, 6))
		if got := n.admit(second); !slices.Equal(got, gpus(1, 6)) {
			t.Errorf("second holds %v, want what was chosen for it", got)
		}
		n.counted(n.metrics.decisions.WithLabelValues(answer.ResultSteered), 1, "steered")
		n.counted(n.metrics.identity.WithLabelValues(podfinder.SourceGet), 1, "found by asking kubelet")
	})
}

// TestInvalidAnnotations: annotations that do not count are ignored.
func TestInvalidAnnotations(t *testing.T) {
	annotate := func(text string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Annotations["nvtopo.dev/allocation"] = text }
	}
	cases := map[string]struct {
		change func(*v1.Pod)
		reason string
	}{
		"of another node":              {func(p *v1.Pod) { p.Annotations = newPodOn("other", p) }, podfinder.IgnoredStale},
		"of another pod":               {annotate(`{"version":1,"node":"node-a","podUID":"uid-x","assumed":"2026-01-01T00:00:00Z","enforced":true,"containers":[{"name":"app0","resource":"nvidia.com/gpu","gpus":["GPU-6","GPU-7"]}]}`), podfinder.IgnoredStale},
		"with another number of GPUs":  {annotate(`{"version":1,"node":"node-a","podUID":"uid-p","assumed":"2026-01-01T00:00:00Z","enforced":true,"containers":[{"name":"app0","resource":"nvidia.com/gpu","gpus":["GPU-7"]}]}`), podfinder.IgnoredCount},
		"for a container there is not": {annotate(`{"version":1,"node":"node-a","podUID":"uid-p","assumed":"2026-01-01T00:00:00Z","enforced":true,"containers":[{"name":"appX","resource":"nvidia.com/gpu","gpus":["GPU-6","GPU-7"]}]}`), podfinder.IgnoredCount},
		"of a later version":           {annotate(`{"version":2,"node":"node-a","podUID":"uid-p","gpus":"all"}`), podfinder.IgnoredMalformed},
		"that is no JSON":              {annotate("GPU-6,GPU-7"), podfinder.IgnoredMalformed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, nil)
				n.bind("other", ofOne(4), gpus(0, 1, 2, 3))
				if got := n.admit(n.bind("p", ofOne(2), gpus(6, 7), tc.change)); !slices.Equal(got, gpus(4, 5)) {
					t.Errorf("the pod holds %v, want the best of what nobody waits for", got)
				}
				n.counted(n.metrics.ignored.WithLabelValues(tc.reason), 1, "ignored as "+tc.reason)
				n.counted(n.metrics.decisions.WithLabelValues(answer.ResultForeign), 1, "foreign")
			})
		})
	}
}

// newPodOn is the annotation the pod would have on another node.
func newPodOn(node string, p *v1.Pod) map[string]string {
	return map[string]string{"nvtopo.dev/allocation": strings.Replace(p.Annotations["nvtopo.dev/allocation"], testNode, node, 1)}
}

func TestForeignPods(t *testing.T) {
	t.Run("are kept off what others wait for, and the plugin chooses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newTestEnv(t, nil)
			n.bind("waits", ofOne(4), gpus(0, 1, 2, 3))
			n.bind("foreign", ofOne(2), nil)
			n.model.known["ns/foreign"] = n.api.watched["uid-foreign"]
			var asked interposer.Question
			got, err := n.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(0, 1, 2, 3, 4, 5, 6, 7), Size: 2},
				func(_ context.Context, q interposer.Question) ([]string, error) {
					asked = q
					return gpus(7, 4), nil
				})
			if err != nil || !slices.Equal(got, gpus(4, 7)) {
				t.Errorf("answer %v, %v; want the plugin's", got, err)
			}
			if diff := cmp.Diff(interposer.Question{Resource: gpu, Available: gpus(4, 5, 6, 7), Size: 2}, asked); diff != "" {
				t.Errorf("question to the plugin (-want +got):\n%s", diff)
			}
		})
	})
	answers := map[string]func(context.Context, interposer.Question) ([]string, error){
		"an error of the plugin":                 func(context.Context, interposer.Question) ([]string, error) { return nil, errors.New("NVML is gone") },
		"too few devices":                        func(context.Context, interposer.Question) ([]string, error) { return gpus(4), nil },
		"too many devices":                       func(context.Context, interposer.Question) ([]string, error) { return gpus(4, 5, 6), nil },
		"one device twice":                       func(context.Context, interposer.Question) ([]string, error) { return gpus(4, 4), nil },
		"a device that was kept back":            func(context.Context, interposer.Question) ([]string, error) { return gpus(0, 4), nil },
		"nothing":                                func(context.Context, interposer.Question) ([]string, error) { return nil, nil },
		"devices, but not what must be included": func(context.Context, interposer.Question) ([]string, error) { return gpus(6, 7), nil },
	}
	for name, inner := range answers {
		t.Run("get our pick when the plugin answers "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, nil)
				n.bind("waits", ofOne(4), gpus(0, 1, 2, 3))
				n.bind("foreign", ofOne(2), nil)
				n.model.known["ns/foreign"] = n.api.watched["uid-foreign"]
				got, err := n.Preferred(t.Context(), interposer.Question{
					Resource: gpu, Available: gpus(0, 1, 2, 3, 4, 5, 6, 7), MustInclude: gpus(5), Size: 2,
				}, inner)
				if err != nil || !slices.Equal(got, gpus(4, 5)) {
					t.Errorf("answer %v, %v; want the best pair with GPU-5", got, err)
				}
			})
		})
	}
	t.Run("that no list shows are still served", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newTestEnv(t, nil)
			n.bind("waits", ofOne(4), gpus(0, 1, 2, 3))
			hidden := newPod("hidden", "uid-hidden", epoch, ofOne(2), nil)
			if got := n.admit(hidden); !slices.Equal(got, gpus(4, 5)) {
				t.Errorf("it holds %v, want the best of what nobody waits for", got)
			}
			n.counted(n.metrics.identity.WithLabelValues(podfinder.SourceNone), 2, "nobody found") // for the answer and the allocation
			n.api.set(hidden, func(*v1.Pod) {})
			n.api.sync()
			n.clean(t.Context()) // kubelet's record tells, by now
			if got := n.shelf(testLogger, gpu).served["uid-hidden"]; got == nil || !slices.Equal(got.containers["app0"].IDs, gpus(4, 5)) {
				t.Errorf("what it was served is not learnt from kubelet's record: %+v", got)
			}
		})
	})
}

func TestConflict(t *testing.T) {
	held := func(n *testEnv) {
		n.admit(n.bind("holder", ofOne(1), gpus(2)))
	}
	unhealthy := func(n *testEnv) {
		delete(n.model.healthy, "GPU-2")
		n.Devices(gpu, map[string]bool{"GPU-0": true, "GPU-1": true, "GPU-2": false})
	}
	unknown := func(n *testEnv) {
		delete(n.model.healthy, "GPU-2")
		n.Devices(gpu, map[string]bool{"GPU-0": true, "GPU-1": true})
	}
	cases := map[string]struct {
		before     func(*testEnv)
		wantReason string
	}{
		"6.11 held by another pod":               {held, "GPU-2 is held by container app0 of pod ns/holder"},
		"6.14 unhealthy":                         {unhealthy, "GPU-2 is unhealthy"},
		"6.14 not a device of the node any more": {unknown, "GPU-2 is not a device of this node"},
	}
	for name, tc := range cases {
		t.Run(name+", repaired", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, nil)
				tc.before(n)
				got := n.admit(n.bind("p", ofOne(2), gpus(2, 3)))
				if len(got) != 2 || slices.Contains(got, "GPU-2") {
					t.Errorf("the pod holds %v, want two others", got)
				}
				n.counted(n.metrics.decisions.WithLabelValues(answer.ResultConflict), 1, "conflict")
			})
		})
		for mode, setUp := range map[string]struct {
			change func(*Config)
			pod    []func(*v1.Pod)
		}{
			"strict":                    {func(c *Config) { c.Strict = true }, nil},
			"of a pod that trusts them": {nil, []func(*v1.Pod){refersToOutput}},
		} {
			t.Run(name+", "+mode, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n := newTestEnv(t, setUp.change)
					tc.before(n)
					err := n.model.admit(n.bind("p", ofOne(2), gpus(2, 3), setUp.pod...), nil)
					if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), tc.wantReason) {
						t.Errorf("error %v, want FailedPrecondition and %q", err, tc.wantReason)
					}
					n.counted(n.metrics.decisions.WithLabelValues(answer.ResultRefused), 1, "refused")
				})
			})
		}
	}
}

// TestAllocateHeldDevice: Allocate refuses devices that kubelet shows as held.
func TestAllocateHeldDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		holder := n.bind("holder", ofOne(2), gpus(0, 1))
		n.admit(holder)
		n.bind("p", ofOne(1), nil)
		n.model.known["ns/p"] = n.api.watched["uid-p"]
		err := n.Allocate(t.Context(), gpu, gpus(1))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "device GPU-1 is still held by pod ns/holder") {
			t.Errorf("6.16: error %v, want it to name device and holder", err)
		}
		n.counted(n.metrics.doubleBook, 1, "double use")

		n.model.end(holder) // kubelet knows it ended; the API does not yet
		if err := n.Allocate(t.Context(), gpu, gpus(1)); err != nil {
			t.Errorf("a device of a pod that ended is refused: %v", err)
		}
		n.start(deaf{})
		if err := n.Allocate(t.Context(), gpu, gpus(0)); err != nil {
			t.Errorf("refused although kubelet does not tell: %v", err)
		}
		n.counted(n.metrics.doubleBook, 0, "double use")
	})
}

// deaf is a kubelet without Get.
type deaf struct{}

func (deaf) Get(context.Context, string, string) (kubelet.Devices, error) {
	return nil, kubelet.ErrUnsupported
}

func (deaf) ActivePods(context.Context) (map[types.NamespacedName]bool, error) {
	return nil, kubelet.ErrUnsupported
}

func TestWithoutGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		n.start(deaf{})
		for i, want := range [][]string{gpus(0, 1), gpus(2, 3), gpus(5, 6)} {
			pod := n.bind(fmt.Sprintf("p%d", i), ofOne(2), want)
			if got := n.admit(pod); !slices.Equal(got, want) {
				t.Errorf("pod %d holds %v, want %v", i, got, want)
			}
		}
		n.counted(n.metrics.identity.WithLabelValues(podfinder.SourceCheckpoint), 3, "found by the checkpoint")
		n.bind("older", ofOne(1), gpus(4))
		n.bind("younger", ofOne(1), gpus(7), func(p *v1.Pod) { p.CreationTimestamp = metav1.NewTime(epoch.Add(time.Hour)) })
		n.admit(n.api.watched["uid-older"])
		if _, got := n.model.of("uid-older"); !got.Has("GPU-4") {
			t.Errorf("the older of two holds %v, want what was chosen for it", got.Sorted())
		}
		n.counted(n.metrics.ambiguous, 1, "ambiguous")
		n.counted(n.metrics.identity.WithLabelValues(podfinder.SourceGuess), 1, "guessed")
	})
}

func TestLostCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		running := func(name string, set []string) *v1.Pod {
			pod := n.bind(name, ofOne(len(set)), set)
			n.admit(pod)
			n.api.set(pod, func(p *v1.Pod) {
				p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app0", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
			})
			n.api.sync()
			return pod
		}
		a := running("a", gpus(0, 1))
		b := n.bind("b", ofOne(2), nil)
		foreign := n.admit(b)
		n.api.set(b, func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app0", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}}}
		})
		n.api.sync()
		time.Sleep(podfinder.SettleAge) // what was served a moment ago is believed to be under way
		n.model.mu.Lock()
		n.model.devices, n.model.allocated = map[types.UID]map[string][]string{}, question.Set{}
		n.model.write()
		n.model.mu.Unlock()

		c := n.bind("c", ofOne(2), nil)
		if got := n.admit(c); question.SetOf(gpus(0, 1), foreign).HasAny(got) {
			t.Errorf("6.8: a new pod holds %v, which containers run on that kubelet has forgotten", got)
		}
		// 6.17: b's worker restarts its container. a is without a record too, but runs.
		if got := n.admit(b); !slices.Equal(got, foreign) {
			t.Errorf("6.8: the restarted container holds %v, want %v again", got, foreign)
		}
		if got := n.admit(a); !slices.Equal(got, gpus(0, 1)) {
			t.Errorf("6.8: the next one holds %v, want %v again", got, gpus(0, 1))
		}
	})
}

func TestConcurrentAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// 6.17: while pods are admitted, workers of pods whose record kubelet lost ask too.
		for round := range 50 {
			n := newTestEnv(t, nil)
			var pods []*v1.Pod
			for i := range 4 {
				pod := n.bind(fmt.Sprintf("p%d", i), ofOne(1), gpus(2*i))
				if i%2 == 1 {
					n.api.set(pod, func(p *v1.Pod) { p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "app0"}} })
				}
				pods = append(pods, pod)
				n.model.known["ns/"+pod.Name] = pod
			}
			n.api.sync()
			var wg sync.WaitGroup
			answers := make([][]string, len(pods))
			for i, pod := range pods {
				wg.Go(func() {
					got, err := n.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(0, 1, 2, 3, 4, 5, 6, 7), Size: 1}, nil)
					if err == nil {
						err = n.Allocate(t.Context(), gpu, got)
					}
					if err != nil {
						t.Errorf("round %d: pod %s: %v", round, pod.Name, err)
					}
					n.Allocated(gpu, got)
					answers[i] = got
				})
			}
			wg.Wait()
			all := slices.Sorted(slices.Values(slices.Concat(answers...)))
			if !slices.Equal(all, gpus(0, 2, 4, 6)) {
				t.Fatalf("round %d: answers %v, want each chosen device once", round, answers)
			}
		}
	})
}

func TestPreStart(t *testing.T) {
	cases := map[string]struct {
		strict  bool
		pod     shape
		set     []string
		actual  map[string][]string // what kubelet gave
		kubelet Kubelet             // nil: the model
		ask     []string
		change  []func(*v1.Pod)
		wantErr string
	}{
		"the devices that were chosen": {
			strict: true, pod: ofOne(2), set: gpus(0, 1), actual: map[string][]string{"app0": gpus(0, 1)}, ask: gpus(1, 0),
		},
		"others": {
			strict: true, pod: ofOne(2), set: gpus(0, 1), actual: map[string][]string{"app0": gpus(2, 3)}, ask: gpus(2, 3),
			wantErr: "container app0 of pod ns/p holds [GPU-2 GPU-3], but [GPU-0 GPU-1] was chosen for it",
		},
		"others, in repair mode": {
			pod: ofOne(2), set: gpus(0, 1), actual: map[string][]string{"app0": gpus(2, 3)}, ask: gpus(2, 3),
		},
		"others, in repair mode, of a pod that trusts the annotation": {
			pod: ofOne(2), set: gpus(0, 1), actual: map[string][]string{"app0": gpus(2, 3)}, ask: gpus(2, 3),
			change: []func(*v1.Pod){refersToOutput}, wantErr: "was chosen for it",
		},
		"others, but kubelet does not tell": {
			strict: true, pod: ofOne(2), set: gpus(0, 1), actual: map[string][]string{"app0": gpus(2, 3)}, ask: gpus(2, 3), kubelet: deaf{},
		},
		"nobody chose": {
			strict: true, pod: ofOne(2), actual: map[string][]string{"app0": gpus(2, 3)}, ask: gpus(2, 3),
		},
		"nobody is known to hold them": {
			strict: true, pod: ofOne(2), set: gpus(0, 1), actual: map[string][]string{"app0": gpus(2, 3)}, ask: gpus(4, 5),
		},
		"any of the pod's for an init container": {
			strict: true, pod: shape{plain: []int{1}, apps: []int{2}}, set: gpus(0, 1),
			actual: map[string][]string{"init0": gpus(1), "app0": gpus(0, 1)}, ask: gpus(1),
		},
		"none of the pod's for an init container": {
			strict: true, pod: shape{plain: []int{1}, apps: []int{2}}, set: gpus(0, 1),
			actual: map[string][]string{"init0": gpus(4), "app0": gpus(0, 4)}, ask: gpus(4), wantErr: "container init0 of pod ns/p",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, func(c *Config) { c.Strict = tc.strict })
				pod := n.bind("p", tc.pod, tc.set, tc.change...)
				n.model.known["ns/p"], n.model.devices[pod.UID] = pod, tc.actual
				n.model.write()
				if tc.kubelet != nil {
					n.start(tc.kubelet)
				}
				err := n.PreStart(t.Context(), gpu, tc.ask)
				switch {
				case (err != nil) != (tc.wantErr != ""):
					t.Errorf("error %v, want %q", err, tc.wantErr)
				case err != nil && (status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), tc.wantErr)):
					t.Errorf("error %v, want FailedPrecondition and %q", err, tc.wantErr)
				}
			})
		})
	}
}

// slowKubelet answers nothing before its caller's time is over; slowList nor does the API server.
type slowKubelet struct{}

func (slowKubelet) Get(ctx context.Context, _, _ string) (kubelet.Devices, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (slowKubelet) ActivePods(ctx context.Context) (map[types.NamespacedName]bool, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

type slowList struct{ *api }

func (slowList) Live(ctx context.Context) ([]*v1.Pod, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestUnresponsivePeers: answers come within a second whatever does not answer.
func TestUnresponsivePeers(t *testing.T) {
	n := newTestEnv(t, nil)
	n.bind("p", ofOne(2), gpus(3, 4))
	cases := map[string]struct {
		pods    Pods
		kubelet Kubelet
		want    []string
	}{
		"kubelet":         {n.api, slowKubelet{}, gpus(3, 4)},
		"the API server":  {slowList{newAPI()}, n.model, gpus(0, 1)},
		"neither of them": {slowList{n.api}, slowKubelet{}, gpus(3, 4)},
		"a busy kubelet":  {n.api, busyKubelet{}, gpus(3, 4)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := New(Config{Node: testNode, CheckpointPath: n.model.path}, tc.pods, tc.kubelet, testGraphs(t), clock.RealClock{})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				got, err := s.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(0, 1, 2, 3, 4, 5, 6, 7), Size: 2}, nil)
				if err != nil || !slices.Equal(got, tc.want) {
					t.Errorf("answer %v, %v; want %v", got, err, tc.want)
				}
				if took := time.Since(start); took > time.Second {
					t.Errorf("took %v", took)
				}
			})
		})
	}
}

type busyKubelet struct{}

func (busyKubelet) Get(context.Context, string, string) (kubelet.Devices, error) {
	return nil, kubelet.ErrBusy
}

func (busyKubelet) ActivePods(context.Context) (map[types.NamespacedName]bool, error) {
	return nil, kubelet.ErrBusy
}

// TestRunKeepsServed: Run keeps the record of what was served.
func TestRunKeepsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		told := make(chan struct{}, 9)
		n.OnAllocated(func() { told <- struct{}{} })
		n.admit(n.bind("p", ofOne(2), gpus(1, 2)))
		<-told
		path := filepath.Join(n.state, "served-nvidia.com%2Fgpu.json")
		testkit.Soon(t, "the file has the last GPU", func() bool {
			data, err := os.ReadFile(path)
			return err == nil && strings.Contains(string(data), "GPU-2")
		})
		data, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(data), "uid-p") {
			t.Errorf("the file has %s, %v; want the pod", data, err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ends with %v", err)
		}
		if n.Busy() {
			t.Error("busy after all is done")
		}
	})
}

// TestNewErrors: New refuses settings that it cannot use.
func TestNewErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	if _, err := newMetrics(registry); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{
		"no node":                           {CheckpointPath: "x"},
		"no checkpoint":                     {Node: "n"},
		"a state directory that is a file":  {Node: "n", CheckpointPath: "x", StateDir: file},
		"metrics that are registered twice": {Node: "n", CheckpointPath: "x", Registerer: registry},
	} {
		if _, err := New(cfg, newAPI(), deaf{}, graphs{}, clock.RealClock{}); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
