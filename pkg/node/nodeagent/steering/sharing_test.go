// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// sharing is what the device plugin lists before and after the sharing of GPUs is
// switched, while a pod keeps the id that it was given before.
type sharing struct {
	before, after []string
	had           string   // what the pod was given before
	same, others  []string // of after: the ids that overlap had, and the rest
}

var sharings = map[string]sharing{
	"sharing is switched on": {
		before: gpus(0, 1), after: []string{"GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1"}, had: "GPU-0",
		same: []string{"GPU-0::0", "GPU-0::1"}, others: []string{"GPU-1::0", "GPU-1::1"},
	},
	"sharing is switched off": {
		before: []string{"GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1"}, after: gpus(0, 1), had: "GPU-0::1",
		same: gpus(0), others: gpus(1),
	},
	"nothing is shared":   {before: gpus(0, 1), after: gpus(0, 1), had: "GPU-0", same: gpus(0), others: gpus(1)},
	"all the time shared": {before: shared, after: shared, had: "GPU-0::1", same: shared[1:2], others: []string{"GPU-0::0", "GPU-1::0"}},
}

var shared = []string{"GPU-0::0", "GPU-0::1", "GPU-1::0"}

// provides has the device plugin list these ids.
func (e *testEnv) provides(ids []string) {
	healthy := map[string]bool{}
	for _, id := range ids {
		healthy[id] = true
	}
	e.model.mu.Lock()
	e.model.healthy = question.SetOf(ids)
	e.model.mu.Unlock()
	e.Devices(gpu, healthy)
}

// hold has kubelet give a container of a pod one device.
func (e *testEnv) hold(uid types.UID, container, id string) {
	e.model.mu.Lock()
	defer e.model.mu.Unlock()
	e.model.devices[uid] = map[string][]string{container: {id}}
	e.model.recount()
	e.model.write()
}

// asksBeside has a pod ask, beside a holder that runs; if lost, kubelet has no record of
// the holder.
func (tc sharing) asksBeside(t *testing.T, lost bool) *testEnv {
	t.Helper()
	n := newTestEnv(t, nil)
	n.provides(tc.before)
	holder := n.bind("holder", ofOne(1), nil)
	n.model.known["ns/holder"] = holder
	if err := n.Allocate(t.Context(), gpu, []string{tc.had}); err != nil {
		t.Fatal(err)
	}
	n.Allocated(gpu, []string{tc.had})
	n.hold(holder.UID, "app0", tc.had)
	n.runs(holder)
	time.Sleep(podfinder.SettleAge)
	if lost {
		n.forget()
	}
	n.provides(tc.after)
	n.model.known["ns/p"] = n.bind("p", ofOne(1), nil)
	return n
}

// When sharing was switched, kubelet offered what a pod had, under other ids, and the
// agent gave it to another pod.
func TestRenamedDeviceInUse(t *testing.T) {
	for name, tc := range sharings {
		for lost, word := range map[bool]string{false: "", true: ", and kubelet loses its record"} {
			try := func(what string, do func(t *testing.T, n *testEnv)) {
				t.Run(name+word+": "+what, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { do(t, tc.asksBeside(t, lost)) })
				})
			}
			try("another is given", func(t *testing.T, n *testEnv) {
				t.Helper()
				got, err := n.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: tc.after, Size: 1}, nil)
				if err != nil || !question.SetOf(tc.others).HasAll(got) {
					t.Errorf("answer %v (%v), want one of %v", got, err, tc.others)
				}
			})
			try("there is no other", func(t *testing.T, n *testEnv) {
				t.Helper()
				_, err := n.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: tc.same, Size: 1}, nil)
				refused(t, err, codes.FailedPrecondition, "only 0 of the")
			})
			try("kubelet takes it unasked", func(t *testing.T, n *testEnv) {
				t.Helper()
				refused(t, n.Allocate(t.Context(), gpu, tc.same[:1]), codes.FailedPrecondition, "pod ns/holder")
				n.counted(n.metrics.doubleBook, 1, "double use")
			})
			try("kubelet takes another unasked", func(t *testing.T, n *testEnv) {
				t.Helper()
				if err := n.Allocate(t.Context(), gpu, tc.others[:1]); err != nil {
					t.Errorf("refused: %v", err)
				}
			})
		}
	}
}

// TestRenamedSiblingDevice: a device of another container of the pod is not given again under
// another ID.
func TestRenamedSiblingDevice(t *testing.T) {
	for name, tc := range sharings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, nil)
				n.provides(tc.after)
				pod := n.bind("p", shape{sidecars: []int{1}, apps: []int{1}}, nil)
				n.model.known["ns/p"] = pod
				n.hold(pod.UID, "side0", tc.had)
				got, err := n.Preferred(t.Context(), interposer.Question{Resource: gpu, Available: tc.after, Size: 1}, nil)
				if err != nil || !question.SetOf(tc.others).HasAll(got) {
					t.Errorf("answer %v (%v), want one of %v", got, err, tc.others)
				}
				refused(t, n.Allocate(t.Context(), gpu, tc.same[:1]), codes.FailedPrecondition, tc.same[0], "container side0", tc.had)
				n.counted(n.metrics.doubleBook, 1, "double use")
			})
		})
	}
}

// Kubelet shows a device only after the plugin has given it. What was given while the
// check waited was taken for what kubelet has forgotten.
func TestConcurrentAllocation(t *testing.T) {
	for name, tc := range sharings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newTestEnv(t, nil)
				n.provides(tc.before)
				holder := n.bind("holder", ofOne(1), nil)
				n.model.known["ns/holder"] = holder
				if err := n.Allocate(t.Context(), gpu, []string{tc.had}); err != nil {
					t.Fatal(err)
				}
				n.provides(tc.after)
				n.model.known["ns/p"] = n.bind("p", ofOne(1), nil)
				var wg sync.WaitGroup
				wg.Go(func() {
					time.Sleep(overlapWait / 2) // so long the plugin takes
					n.Allocated(gpu, []string{tc.had})
					n.hold(holder.UID, "app0", tc.had)
				})
				refused(t, n.Allocate(t.Context(), gpu, tc.same[:1]), codes.FailedPrecondition, "pod ns/holder")
				wg.Wait()
			})
		})
	}
}
