// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
)

// phases returns the phases of all reservations.
func (e *testEnv) phases(t *testing.T) (out []string) {
	t.Helper()
	for _, c := range e.state(t).Allocations.Dump() {
		out = append(out, c.Phase)
	}
	return out
}

// TestFailureBeforeBinding: an attempt that fails between the PATCH and the Binding frees its GPUs. If
// another plugin's PreBind failed, they were kept for 65 s although none of its writes could come late
// any more.
func TestFailureBeforeBinding(t *testing.T) {
	for name, tc := range map[string]struct {
		first error // answer to the PATCH, which is sent again then
		bind  bool  // the failure comes after Bind was called
		want  []string
	}{
		"after the PATCH":             {nil, false, nil},
		"after a PATCH sent twice":    {apierrors.NewInternalError(errors.New("etcd")), false, []string{"doubtful"}},
		"when the Binding may be out": {nil, true, []string{"doubtful"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestEnv(t, "PreBind", topology.Name, numa.Name)
			first := tc.first
			b.client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				err := first
				first = nil
				return err != nil, nil, err
			})
			pod := b.pod("p", 2, nil)
			b.place(t, pod)
			ctx, state := t.Context(), framework.NewCycleState()
			if tc.bind {
				if status := b.fw.RunBindPlugins(ctx, state, pod, "n"); !status.IsSkip() {
					t.Fatal(status)
				}
			}
			b.fw.RunReservePluginsUnreserve(ctx, state, pod, "n")
			if got := b.phases(t); !slices.Equal(got, tc.want) {
				t.Errorf("claims %q, want %q", got, tc.want)
			}
		})
	}
}

// TestRetryChoice: in mode PreBind the Binding is DefaultBinder's, and its answer is not known here.
func TestRetryChoice(t *testing.T) {
	b := newTestEnv(t, "PreBind", topology.Name, numa.Name)
	pod := b.pod("p", 2, nil)
	choice := func() string {
		t.Helper()
		got, err := b.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return got.Annotations[allocation.GPUIDsKey]
	}
	var first string
	for attempt := range 3 {
		b.place(t, pod)
		if attempt == 0 {
			first = choice()
		} else if got := choice(); got != first {
			t.Errorf("attempt %d chose %s, want %s again", attempt, got, first)
		}
		ctx, state := t.Context(), framework.NewCycleState()
		if status := b.fw.RunBindPlugins(ctx, state, pod, "n"); !status.IsSkip() {
			t.Fatal(status)
		}
		b.fw.RunReservePluginsUnreserve(ctx, state, pod, "n")
		if got := b.phases(t); !slices.Equal(got, []string{"doubtful"}) {
			t.Errorf("attempt %d leaves claims %q, want one that is doubtful", attempt, got)
		}
	}
}

// TestCountedPodDroppedChoice: the allocation of an attempt without a reservation may be on the pod,
// though the informer does not show it yet.
func TestCountedPodDroppedChoice(t *testing.T) {
	b := newTestEnv(t, "PreBind", topology.Name, numa.Name)
	pod := b.pod("p", 2, map[string]string{podrequest.TopologyPolicyKey: "none"})
	b.place(t, pod)
	b.fw.RunReservePluginsUnreserve(t.Context(), framework.NewCycleState(), pod, "n")
	if got := b.phases(t); len(got) != 0 {
		t.Fatalf("claims %q, want none", got)
	}
	if !b.state(t).Graphs.Remove("n", "t") {
		t.Fatal("the graph was not there")
	}
	b.place(t, pod) // as the informer had it before
	got, err := b.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || got.Annotations[allocation.Key] != "" {
		t.Errorf("the pod carries %v (%v), want no choice", got.Annotations, err)
	}
}
