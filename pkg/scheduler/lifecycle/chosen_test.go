// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
)

// taken returns the events so far.
func taken(from chan string) []string {
	var all []string
	for {
		select {
		case e := <-from:
			all = append(all, e)
		default:
			return all
		}
	}
}

// bound writes the pod's allocation and binds the pod. If the allocation is not on the Binding, another
// plugin sends that.
func (e *testEnv) bound(t *testing.T, state fwk.CycleState, pod *v1.Pod) {
	t.Helper()
	for _, run := range []func(context.Context, fwk.CycleState, *v1.Pod, string) *fwk.Status{
		e.fw.RunPreBindPreFlights, e.fw.RunPreBindPlugins, e.fw.RunBindPlugins,
	} {
		if status := run(t.Context(), state, pod, "n"); !status.IsSuccess() && !status.IsSkip() {
			t.Fatal(status)
		}
	}
	e.fw.RunPostBindPlugins(t.Context(), state, pod, "n")
}

// TestPodEvents: a pod gets an event with its devices.
func TestPodEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		gpus        int
		annotations map[string]string
		want        []string
	}{
		"two GPUs": {
			gpus: 2, want: []string{"Normal GPUsChosen GPUs 0,3 of node n, NUMA node 0; their ring is of NV2, 50 GB/s of the 50 that as many have at best when all of the node are free"},
		},
		"five GPUs of both sockets": {
			gpus: 5, want: []string{"Normal GPUsChosen GPUs 0,1,2,4,5 of node n, NUMA nodes 0,1; their ring is of NV1, 25 GB/s of the 25 that as many have at best when all of the node are free"},
		},
		"one GPU":                       {gpus: 1, want: []string{"Normal GPUsChosen GPU 0 of node n, NUMA node 0"}},
		"a pod without GPUs":            {},
		"CPUs near to nothing are none": {annotations: map[string]string{podrequest.NUMAAffinityKey: "required"}},
	} {
		for _, write := range []string{"PreBind", "Binding"} {
			t.Run(name+", written in "+write, func(t *testing.T) {
				events := make(chan string, 10)
				b := newTestEnvOf(t, setting{write: write, events: events}, topology.Name, numa.Name)
				pod, state := b.pod("p", tc.gpus, tc.annotations), framework.NewCycleState()
				b.reserve(t, state, pod)
				b.bound(t, state, pod)
				if diff := cmp.Diff(tc.want, taken(events)); diff != "" {
					t.Errorf("(-want,+got)\n%s", diff)
				}
			})
		}
	}
}

// TestChoiceEventBounds: events of choices are bounded. A wave of pods must not push out the scheduler's
// other events.
func TestChoiceEventBounds(t *testing.T) {
	events, clk := make(chan string, 1000), &testkit.Ahead{}
	b := newTestEnvOf(t, setting{write: "PreBind", events: events, clock: clk}, topology.Name)
	pod, state := b.pod("p", 2, nil), framework.NewCycleState()
	b.reserve(t, state, pod)
	b.bound(t, state, pod)
	wave := func() int {
		for range 500 {
			b.fw.RunPostBindPlugins(t.Context(), state, pod, "n")
		}
		return len(taken(events))
	}
	// During the wave, a few milliseconds, at most one or two more are accepted.
	if n := wave(); n < 99 || n > 110 {
		t.Errorf("of 500 pods at once %d are told, want a hundred", n)
	}
	clk.Add(2 * time.Second)
	if n := wave(); n < 20 || n > 30 {
		t.Errorf("two seconds later %d are told, want twenty", n)
	}
}
