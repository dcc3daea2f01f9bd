// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/answer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// reads gives a pod's last container a variable from an annotation.
func reads(key string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		c := &pod.Spec.Containers[len(pod.Spec.Containers)-1]
		c.Env = append(c.Env, v1.EnvVar{Name: "CUDA_VISIBLE_DEVICES", ValueFrom: &v1.EnvVarSource{
			FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + key + "']"},
		}})
	}
}

// runs reports a pod's containers as running.
func (e *testEnv) runs(pod *v1.Pod) {
	e.api.set(pod, func(p *v1.Pod) {
		for i := range p.Spec.Containers {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{
				Name: p.Spec.Containers[i].Name, State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
			})
		}
	})
	e.api.sync()
}

// forget has kubelet lose its record.
func (e *testEnv) forget() {
	e.model.mu.Lock()
	defer e.model.mu.Unlock()
	e.model.devices, e.model.allocated = map[types.UID]map[string][]string{}, question.Set{}
	e.model.write()
}

func refused(t *testing.T, err error, code codes.Code, words ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("error %v, want code %v", err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not mention %q", err, w)
		}
	}
}

// Kubelet took devices unasked, and strictness was a matter of asking: the pod was
// admitted and its annotation then corrected.
func TestUnaskedDevices(t *testing.T) {
	init4 := shape{plain: []int{4}, apps: []int{2}}
	cases := map[string]struct {
		strict bool
		pod    shape
		set    []string
		change []func(*v1.Pod)
		first  []string // what kubelet takes for an init container before
		take   []string
		deaf   bool
		second bool // another pod may be the one that asks
		want   []string
	}{
		"in strict mode": {
			strict: true, pod: ofOne(2), set: gpus(0, 1), take: gpus(2, 3), want: []string{"container app0 of pod ns/p", "[GPU-2 GPU-3]", "[GPU-0 GPU-1]"},
		},
		"in strict mode, of the only pod without any, on a kubelet without Get": {
			strict: true, pod: ofOne(2), set: gpus(0, 1), take: gpus(2, 3), deaf: true, want: []string{"[GPU-2 GPU-3]"},
		},
		"of a pod that reads its ids": {
			pod: ofOne(2), set: gpus(0, 1), change: []func(*v1.Pod){reads("nvtopo.dev/gpu-ids")}, take: gpus(0, 2), want: []string{"[GPU-0 GPU-2]"},
		},
		"beside those its init container passes on": {
			strict: true, pod: init4, set: gpus(0, 1, 2, 3), first: gpus(0, 1, 2, 3), take: gpus(3, 4), want: []string{"container app0"},
		},
		"passed on by its init container, of a pod that reads which container has which": {
			pod: init4, set: gpus(0, 1, 2, 3), change: []func(*v1.Pod){reads("nvtopo.dev/gpu-ids.app0")}, first: gpus(0, 1, 2, 3), take: gpus(1, 3),
			want: []string{"[GPU-0 GPU-1]"},
		},
		"not those its init container passes on": {
			strict: true, pod: init4, set: gpus(0, 1, 2, 3), first: gpus(0, 1, 2, 3), take: gpus(1, 3),
		},
		"not those its init container passes on, of a pod that reads all of its pod's": {
			pod: init4, set: gpus(0, 1, 2, 3), change: []func(*v1.Pod){reads("nvtopo.dev/gpu-indices")}, first: gpus(0, 1, 2, 3), take: gpus(1, 3),
		},
		"not any of the pod's for an init container": {
			pod: shape{plain: []int{1}, apps: []int{2}}, set: gpus(0, 1), change: []func(*v1.Pod){reads("nvtopo.dev/gpu-ids.app0")}, take: gpus(1),
		},
		"not in repair mode":                  {pod: ofOne(2), set: gpus(0, 1), take: gpus(2, 3)},
		"not the chosen ones":                 {strict: true, pod: ofOne(2), set: gpus(0, 1), take: gpus(0, 1)},
		"not of a pod nobody chose for":       {strict: true, pod: ofOne(2), take: gpus(0, 1)},
		"not if it is a guess whose they are": {strict: true, pod: ofOne(2), set: gpus(0, 1), take: gpus(2, 3), deaf: true, second: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, func(c *Config) { c.Strict = tc.strict })
				pod := n.bind("p", tc.pod, tc.set, tc.change...)
				if tc.second {
					n.bind("q", tc.pod, gpus(6, 7))
				}
				n.model.known["ns/p"] = pod
				if tc.deaf {
					n.start(deaf{})
				}
				if tc.first != nil {
					if err := n.Allocate(t.Context(), gpu, tc.first); err != nil {
						t.Fatal(err)
					}
					n.Allocated(gpu, tc.first)
					n.model.devices[pod.UID] = map[string][]string{"init0": tc.first}
					n.model.write()
				}
				err := n.Allocate(t.Context(), gpu, tc.take)
				if tc.want == nil {
					if err != nil {
						t.Errorf("refused: %v", err)
					}
					n.counted(n.metrics.decisions.WithLabelValues(answer.ResultRefused), 0, "refused")
					return
				}
				refused(t, err, codes.FailedPrecondition, tc.want...)
				n.counted(n.metrics.decisions.WithLabelValues(answer.ResultRefused), 1, "refused")
			})
		})
	}
}

// A container that had inherited devices of its pod's init container was kept from
// starting for ever.
func TestInheritedDevices(t *testing.T) {
	init4 := shape{plain: []int{4}, apps: []int{2}}
	for name, tc := range map[string]struct {
		change []func(*v1.Pod)
		fails  bool
	}{
		"in strict mode":          {},
		"not if it reads its ids": {[]func(*v1.Pod){reads("nvtopo.dev/gpu-ids.app0")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, func(c *Config) { c.Strict = true })
				pod := n.bind("p", init4, gpus(0, 1, 2, 3), tc.change...)
				n.model.known["ns/p"], n.model.devices[pod.UID] = pod, map[string][]string{"init0": gpus(0, 1, 2, 3), "app0": gpus(1, 2)}
				n.model.write()
				if err := n.PreStart(t.Context(), gpu, gpus(1, 2)); (err != nil) != tc.fails {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// A pod that reads an annotation it does not have, or one for elsewhere, was served
// like a foreign one.
func TestUnwrittenAnnotations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const key = "scheduling.k8s.io/gpu-ids"
		elsewhere := func(pod *v1.Pod) {
			pod.Annotations = newPodOn("node-b", newPod("x", pod.UID, epoch, ofOne(2), gpus(0, 1)))
		}
		n := newTestEnv(t, nil)
		refused(t, n.model.admit(n.bind("plain", ofOne(2), nil, reads(key)), nil), codes.FailedPrecondition, "ns/plain", key)
		n.model.end(n.api.watched["uid-plain"])
		refused(t, n.model.admit(n.bind("stale", ofOne(2), nil, reads(key), elsewhere), nil), codes.FailedPrecondition, "ns/stale", key)
		n.model.end(n.api.watched["uid-stale"])
		n.counted(n.metrics.decisions.WithLabelValues(answer.ResultRefused), 2, "refused")

		unasked := n.bind("unasked", ofOne(2), nil, reads(key))
		n.model.known["ns/unasked"] = unasked
		refused(t, n.Allocate(t.Context(), gpu, gpus(0, 1)), codes.FailedPrecondition, "ns/unasked", key)
		n.model.end(unasked)

		if got := n.admit(n.bind("chosen", ofOne(2), gpus(4, 5), reads(key))); !slices.Equal(got, gpus(4, 5)) {
			t.Errorf("a pod that was chosen for holds %v", got)
		}
		n.start(deaf{}) // now it is a guess who asks
		n.bind("other", ofOne(2), nil)
		n.admit(n.bind("again", ofOne(2), nil, reads(key)))
	})
}

// With promises outstanding, what another pod held was taken before what another
// waited for, and the pod was refused although others were free.
func TestPromisedDevices(t *testing.T) {
	cases := map[string]struct {
		ended  bool // kubelet knows that the holder has ended, and nobody else does
		set    []string
		size   int
		want   []string
		result string
	}{
		"a foreign pod gets promised ones":           {size: 3, want: gpus(4, 5, 6, 7), result: answer.ResultForeign},
		"a pod in conflict too":                      {size: 3, set: gpus(0, 6, 7), want: gpus(4, 5, 6, 7), result: answer.ResultConflict},
		"not if the holder has ended":                {size: 4, ended: true, want: gpus(0, 1, 2, 3, 6, 7), result: answer.ResultForeign},
		"chosen ones of a holder that has ended are": {size: 2, ended: true, set: gpus(0, 6), want: gpus(0, 6), result: answer.ResultSteered},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, nil)
				holder := n.bind("holder", ofOne(4), gpus(0, 1, 2, 3))
				n.admit(holder)
				n.bind("waiting", ofOne(2), gpus(4, 5))
				if tc.ended {
					n.model.end(holder)
				}
				pod := n.bind("p", ofOne(tc.size), tc.set)
				n.model.known["ns/p"] = pod
				before := testutil.ToFloat64(n.metrics.decisions.WithLabelValues(tc.result))
				got, err := n.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(0, 1, 2, 3, 4, 5, 6, 7), Size: tc.size}, nil)
				if err != nil || !question.SetOf(tc.want).HasAll(got) {
					t.Errorf("answer %v (%v), want out of %v", got, err, tc.want)
				}
				n.counted(n.metrics.decisions.WithLabelValues(tc.result), before+1, tc.result)
				if err := n.Allocate(t.Context(), gpu, got); err != nil {
					t.Errorf("and then refused: %v", err)
				}
			})
		})
	}
	t.Run("and if nothing else is left the pod is refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n := newTestEnv(t, nil)
			n.admit(n.bind("holder", ofOne(4), gpus(0, 1, 2, 3)))
			n.model.known["ns/p"] = n.bind("p", ofOne(5), nil)
			_, err := n.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(0, 1, 2, 3, 4, 5, 6, 7), Size: 5}, nil)
			refused(t, err, codes.FailedPrecondition, "only 4 of the 8")
		})
	})
}

// After kubelet lost its record it took, unasked, what containers ran with.
func TestUnrecordedDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		a := n.bind("a", ofOne(4), gpus(0, 1, 2, 3))
		n.admit(a)
		n.runs(a)
		time.Sleep(podfinder.SettleAge)
		n.forget()
		foreign := n.bind("foreign", ofOne(8), nil)
		n.model.known["ns/foreign"] = foreign
		refused(t, n.Allocate(t.Context(), gpu, gpus(0, 1, 2, 3, 4, 5, 6, 7)), codes.FailedPrecondition, "ns/a", "lost the record")
		n.model.end(foreign)
		if got := n.admit(a); !slices.Equal(got, gpus(0, 1, 2, 3)) {
			t.Errorf("the container that has them holds %v when it restarts", got)
		}
	})
}

// An annotation was counted again for every version of its pod and every list.
func TestIgnoredAnnotationCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		text := func(s string) func(*v1.Pod) {
			return func(p *v1.Pod) { p.Annotations = map[string]string{"nvtopo.dev/allocation": s} }
		}
		pod := n.bind("p", ofOne(1), nil, text("{"))
		look := func(want float64) {
			t.Helper()
			n.api.sync()
			for range 2 {
				n.viewer.views(n.api.Pods())
				n.viewer.views(nil) // as an empty list from the API server
			}
			n.counted(n.metrics.ignored.WithLabelValues(podfinder.IgnoredMalformed), want, "malformed")
		}
		look(1)
		n.api.set(pod, func(p *v1.Pod) { p.Status.Phase = v1.PodRunning })
		look(1)
		n.api.set(pod, text("["))
		look(2)
		n.api.set(pod, text("{"))
		look(2)
		n.bind("q", ofOne(1), nil, text("{"))
		look(3)
		n.viewer.forget(nil)
		if len(n.viewer.told) > 0 {
			t.Errorf("kept of pods that are gone: %v", n.viewer.told)
		}
	})
}

// noList is an API server that is away.
type noList struct{ *api }

func (noList) Live(context.Context) ([]*v1.Pod, error) { return nil, errors.New("connection refused") }

// In strict mode, with neither watch nor API server, every pod was served as foreign.
func TestStrictUnknownPod(t *testing.T) {
	for mode, strict := range map[string]bool{"strict": true, "repair": false} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, func(c *Config) { c.Strict = strict })
				n.pods = noList{n.api}
				_, err := n.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(0, 1, 2), Size: 2}, nil)
				again := n.Allocate(t.Context(), gpu, gpus(0, 1))
				if !strict {
					if err != nil || again != nil {
						t.Errorf("refused: %v, %v", err, again)
					}
					return
				}
				refused(t, err, codes.Unavailable, "does not list the pods")
				refused(t, again, codes.Unavailable, "does not list the pods")
			})
		})
	}
}

// Replicas of a shared device were all taken for in use as soon as one of them was.
func TestReplicasInUse(t *testing.T) {
	for mode, strict := range map[string]bool{"repair": false, "strict": true} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, func(c *Config) { c.Strict = strict })
				n.model.healthy = question.SetOf([]string{"GPU-0::0", "GPU-0::1", "GPU-0::2", "GPU-0::3"})
				n.admit(n.bind("a", ofOne(1), nil))
				n.admit(n.bind("b", shape{sidecars: []int{1}, apps: []int{1}}, nil))
				if got := n.admit(n.bind("c", ofOne(1), nil)); len(got) != 1 {
					t.Errorf("the third pod holds %v, want the replica that is left", got)
				}
			})
		})
	}
}
