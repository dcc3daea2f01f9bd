// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// forgetOnce has kubelet clean up, just after some pod ended, while the next container
// is served: its devices are recorded, and offered again.
func (e *testEnv) forgetOnce() {
	var once sync.Once
	e.model.plugin = func() {
		once.Do(func() {
			e.model.mu.Lock()
			defer e.model.mu.Unlock()
			e.model.recount()
		})
	}
}

// A container that had to take what was chosen for the next one of its pod shared it
// with that, where kubelet offered it again: the pod held a device twice.
func TestSiblingDevice(t *testing.T) {
	cases := map[string]struct {
		pod   shape
		set   []string // in the order of newPod: containers, then sidecars from the end
		first string   // the container that is served first
		deaf  bool
	}{
		"a sidecar's to a container":                           {pod: shape{sidecars: []int{1}, apps: []int{2}}, set: gpus(5, 6, 0), first: "side0"},
		"a sidecar's to a container, on a kubelet without Get": {pod: shape{sidecars: []int{1}, apps: []int{2}}, set: gpus(5, 6, 0), first: "side0", deaf: true},
		"a container's to another":                             {pod: shape{apps: []int{1, 2}}, set: gpus(0, 5, 6), first: "app0"},
		"a sidecar's to an init container":                     {pod: shape{sidecars: []int{1}, plain: []int{2}, apps: []int{2}}, set: gpus(5, 6, 0), first: "side0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, nil)
				if tc.deaf {
					n.start(deaf{})
				}
				n.admit(n.bind("holder", ofOne(5), gpus(0, 1, 2, 3, 4)))
				n.bind("waiting", ofOne(4), gpus(1, 2, 3, 7)) // of another size, so that nobody guesses
				pod := n.bind("p", tc.pod, tc.set)
				n.forgetOnce()
				if got := n.admit(pod); !slices.Equal(got, gpus(5, 6, 7)) {
					byContainer, _ := n.model.of(pod.UID)
					t.Errorf("the pod holds %v, want each of GPU-5, GPU-6 and GPU-7 once", byContainer)
				}
				if byContainer, _ := n.model.of(pod.UID); !question.SetOf(gpus(5, 6)).HasAll(byContainer[tc.first]) {
					t.Errorf("%s holds %v: it did not take what was chosen for the next", tc.first, byContainer[tc.first])
				}
			})
		})
	}
}

// Kubelet takes devices unasked, too, where none are left to choose from.
func TestSiblingDeviceTaken(t *testing.T) {
	served := map[string][]string{"init0": gpus(0, 3), "side0": gpus(0)}
	cases := map[string]struct {
		deaf, strict bool
		unreadable   bool                // kubelet's record, by now
		holds        map[string][]string // by that record
		take         []string
		want         []string // words of the refusal; nil: none
	}{
		"a sidecar's":                             {holds: served, take: gpus(0, 1), want: []string{"GPU-0", "container app0 of pod ns/p", "container side0"}},
		"a sidecar's, in strict mode":             {holds: served, take: gpus(0, 1), strict: true, want: []string{"GPU-0"}},
		"a sidecar's, on a kubelet without Get":   {holds: served, take: gpus(0, 1), deaf: true, want: []string{"GPU-0", "container app0 of pod ns/p", "container side0"}},
		"a sidecar's, that only kubelet tells of": {holds: served, take: gpus(0, 1), unreadable: true, want: []string{"GPU-0"}},
		"not one that only our own book tells of": {holds: served, take: gpus(0, 1), unreadable: true, deaf: true},
		"not what an init container passes on":    {holds: served, take: gpus(1, 3)},
		"not if no container of the pod has them": {holds: served, take: gpus(4, 5)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, func(c *Config) { c.Strict = tc.strict })
				pod := n.bind("p", shape{sidecars: []int{1}, plain: []int{2}, apps: []int{2}}, nil)
				if tc.deaf {
					n.start(deaf{})
				}
				n.model.known["ns/p"], n.model.devices[pod.UID] = pod, tc.holds
				n.model.write()
				n.clean(t.Context()) // takes over what is recorded
				if tc.unreadable {
					if err := os.Remove(n.model.path); err != nil {
						t.Fatal(err)
					}
				}
				err := n.Allocate(t.Context(), gpu, tc.take)
				if tc.want == nil {
					if err != nil {
						t.Errorf("refused: %v", err)
					}
					n.counted(n.metrics.doubleBook, 0, "double use")
					return
				}
				refused(t, err, codes.FailedPrecondition, tc.want...)
				n.counted(n.metrics.doubleBook, 1, "double use")
			})
		})
	}
}

// Kubelet died before it recorded what our own book has, gave the sidecar another device
// after that, and its record cannot be read.
func TestOwnBookDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestEnv(t, nil)
		pod := n.bind("p", shape{sidecars: []int{1}, apps: []int{2}}, nil)
		n.model.known["ns/p"], n.model.devices[pod.UID] = pod, map[string][]string{"side0": gpus(0)}
		n.model.write()
		n.clean(t.Context()) // takes over what is recorded
		n.model.devices[pod.UID]["side0"] = gpus(5)
		if err := os.Remove(n.model.path); err != nil {
			t.Fatal(err)
		}
		got, err := n.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: gpus(0, 1), Size: 2}, nil)
		if err != nil || !slices.Equal(got, gpus(0, 1)) {
			t.Fatalf("answer %v, %v; want what kubelet offers", got, err)
		}
		if err := n.Allocate(t.Context(), gpu, got); err != nil {
			t.Errorf("refused: %v", err)
		}
	})
}
