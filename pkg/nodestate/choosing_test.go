// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// yieldingClock lets others run whenever somebody asks for the time, as Reserve does between
// choosing and recording.
type yieldingClock struct{ *tickClock }

func (c yieldingClock) Now() time.Time {
	runtime.Gosched()
	return c.tickClock.Now()
}

// TestNoGPUIsChosenTwiceAtATime has pods chosen for side by side, while others give back what
// they had, in each way that drops a reservation at once or later. A pod owns its GPUs from
// Reserve until just before it gives them back.
func TestNoGPUIsChosenTwiceAtATime(t *testing.T) {
	t.Parallel()
	clk := &tickClock{now: time.Unix(1_700_000_000, 0)}
	s := New(testConfig(), yieldingClock{clk})
	s.pods = fixedStore{}
	r := &rig{State: s, clock: clk, node: addNode(t, s, "n", "dgx1-v100")}
	info, l := r.view(t)
	var owners sync.Map // GPU -> *atomic.Pointer[types.UID]
	owner := func(gpu string) *atomic.Pointer[types.UID] {
		o, _ := owners.LoadOrStore(gpu, &atomic.Pointer[types.UID]{})
		p, _ := o.(*atomic.Pointer[types.UID])
		return p
	}
	var sweeps sync.RWMutex // Sweep is for the start of a cycle
	var given atomic.Int32
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := range 300 {
				pod := gpuPod(fmt.Sprintf("p-%d-%d", w, i), 1+(w+i)%4)
				d := demandOf(t, pod)
				sweeps.RLock()
				r.Judge(d, info, l) // which remembers the usage
				a, reason := r.Reserve(d, pod, info, l)
				sweeps.RUnlock()
				if reason != placement.Fits {
					continue
				}
				given.Add(1)
				for _, gpu := range a.GPUs(testResource) {
					if !owner(gpu).CompareAndSwap(nil, &pod.UID) {
						t.Errorf("GPU %s was given to pod %s, and another has it", gpu, pod.UID)
					}
				}
				for _, gpu := range a.GPUs(testResource) {
					owner(gpu).CompareAndSwap(&pod.UID, nil)
				}
				if i%3 == 0 {
					r.podDeleted(pod.UID)
					sweeps.Lock()
					r.Sweep(l)
					sweeps.Unlock()
				} else {
					r.Unreserve(pod.UID, "n")
				}
			}
		})
	}
	workers.Wait()
	if given.Load() < 100 {
		t.Errorf("%d pods were given GPUs, want more for the test to mean something", given.Load())
	}
	_, l = r.view(t)
	r.Sweep(l)
	if left := r.Dump(); len(left) != 0 {
		t.Errorf("reservations are left: %+v", left)
	}
}
