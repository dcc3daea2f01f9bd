// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// TestHintPrecision: hints miss no event that frees capacity, and wake no pod without one.
func TestHintPrecision(t *testing.T) {
	b := newTestEnv(t, "PreBind", topology.Name)
	waiting := b.pod("waiting", 8, nil)
	nominated := b.pod("nominated", 8, nil)
	nominated.Status.NominatedNodeName = "n"
	large := b.pod("large", 0, nil)
	large.Spec.NodeName = "n"
	smaller := large.DeepCopy()
	smaller.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1")
	refused := waiting.DeepCopy()
	refused.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "0/1 nodes"}}
	tests := map[string]struct {
		old, new any
		want     fwk.QueueingHint
	}{
		"a nominated pod, which was counted, went away": {nominated, nil, fwk.Queue},
		"a pod was scaled down in place":                {large, smaller, fwk.Queue},
		"a pod was scaled up in place":                  {smaller, large, fwk.QueueSkip},
		"the scheduler wrote why the pod waits":         {waiting, refused, fwk.QueueSkip},
	}
	events, err := b.instances[topology.Name].(fwk.EnqueueExtensions).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, e := range events {
				if e.Event.Resource != fwk.Pod {
					continue
				}
				got, err := e.QueueingHintFn(b.logger, waiting, tc.old, tc.new)
				if err != nil || got != tc.want {
					t.Errorf("hint %v (%v), want %v", got, err, tc.want)
				}
			}
		})
	}
}

// TestPatchReplacement: the patch removes the annotations of an earlier attempt.
func TestPatchReplacement(t *testing.T) {
	b := newTestEnv(t, "PreBind", topology.Name) // which chooses no CPUs
	b.place(t, b.pod("p", 2, map[string]string{allocation.CPUSetKey: "0-3", "example.com/own": "kept"}))
	pod, err := b.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cpus, ok := pod.Annotations[allocation.CPUSetKey]; ok {
		t.Errorf("%s is still %q", allocation.CPUSetKey, cpus)
	}
	if pod.Annotations["example.com/own"] != "kept" || pod.Annotations[allocation.Key] == "" {
		t.Errorf("annotations %v, want the pod's own and the choice", pod.Annotations)
	}
}

// TestCountedPodEarlierChoice: a pod of policy none whose first attempt failed after its PATCH, and that
// is then placed by count, was bound with the first attempt's allocation: GPUs that another pod may have
// got since.
func TestCountedPodEarlierChoice(t *testing.T) {
	for name, tc := range map[string]struct {
		plugins []string
		write   string // of the second attempt
	}{
		"both plugins":                         {[]string{topology.Name, numa.Name}, "PreBind"},
		"one plugin":                           {[]string{topology.Name}, "PreBind"},
		"the mode was changed after a restart": {[]string{topology.Name, numa.Name}, "Binding"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestEnv(t, "PreBind", tc.plugins...)
			b.place(t, b.pod("p", 2, map[string]string{podrequest.TopologyPolicyKey: "none", "example.com/own": "kept"}))
			pod, err := b.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
			if err != nil || pod.Annotations[allocation.Key] == "" {
				t.Fatalf("no choice was written: %v, %v", pod.Annotations, err)
			}
			b.fw.RunReservePluginsUnreserve(t.Context(), framework.NewCycleState(), pod, "n")
			if !b.state(t).Graphs.Remove("n", "t") {
				t.Fatal("the graph was not there")
			}
			b.client.ClearActions()
			if tc.write != "PreBind" {
				b.fw = b.another(t, tc.write, tc.plugins...)
			}
			b.place(t, pod)
			if pod, err = b.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{podrequest.TopologyPolicyKey: "none", "example.com/own": "kept"}
			if diff := cmp.Diff(want, pod.Annotations); diff != "" {
				t.Errorf("annotations (-want,+got):\n%s", diff)
			}
			if got := writes(b.client); len(got) != 1 {
				t.Errorf("writes %q, want one", got)
			}
			b.client.ClearActions()
			b.place(t, b.pod("q", 2, map[string]string{podrequest.TopologyPolicyKey: "none"}))
			if got := writes(b.client); len(got) != 0 {
				t.Errorf("writes %q of a pod that had nothing", got)
			}
		})
	}
}

// TestPatchAfterLateBinding: the node name of a pod can only be set by a Binding.
func TestPatchAfterLateBinding(t *testing.T) {
	b := newTestEnv(t, "PreBind", topology.Name)
	pod := b.pod("p", 2, nil)
	bound := pod.DeepCopy()
	bound.Spec.NodeName = "elsewhere"
	b.client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		patch, ok := a.(clienttesting.PatchAction)
		if !ok {
			t.Fatalf("got %T", a)
		}
		var body struct {
			Spec map[string]any `json:"spec"`
		}
		if err := json.Unmarshal(patch.GetPatch(), &body); err != nil {
			t.Fatal(err)
		}
		if name, ok := body.Spec["nodeName"]; ok && name != bound.Spec.NodeName {
			return true, nil, apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil)
		}
		return true, bound, nil
	})
	ctx, state := t.Context(), framework.NewCycleState()
	if _, status, _ := b.fw.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		t.Fatal(status)
	}
	if status := b.fw.RunReservePluginsReserve(ctx, state, pod, "n"); !status.IsSuccess() {
		t.Fatal(status)
	}
	if status := b.fw.RunPreBindPlugins(ctx, state, pod, "n"); status.Code() != fwk.Error {
		t.Errorf("PreBind: %v, want an error", status)
	}
	b.fw.RunReservePluginsUnreserve(ctx, state, pod, "n")
	if left := b.state(t).Allocations.Dump(); len(left) != 0 {
		t.Errorf("in flight after a refusal: %+v", left)
	}
}

// TestEndedPodInCycle: a pod that ended in its scheduling cycle, before its devices were chosen, is not
// bound. It was, which the API server allows. No event of a bound pod followed, and none of its end,
// which had come before. The reservation stayed for ever.
func TestEndedPodInCycle(t *testing.T) {
	for name, gpus := range map[string]int{"with GPUs": 2, "without": 0} {
		t.Run(name, func(t *testing.T) {
			b := newTestEnv(t, "Binding", topology.Name, numa.Name)
			pod, ctx, state := b.pod("p", gpus, nil), t.Context(), framework.NewCycleState()
			if _, status, _ := b.fw.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() && !status.IsSkip() {
				t.Fatal(status)
			}
			ended := pod.DeepCopy()
			ended.Status.Phase = v1.PodFailed
			if err := b.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), ended, ended.Namespace); err != nil {
				t.Fatal(err)
			}
			testkit.Soon(t, "the pod is known to be gone", func() bool { return b.state(t).Allocations.Gone(pod.UID) })
			if status := b.fw.RunReservePluginsReserve(ctx, state, pod, "n"); status.Code() != fwk.Unschedulable {
				t.Errorf("Reserve: %v, want Unschedulable", status)
			}
			if left := b.state(t).Allocations.Dump(); len(left) != 0 {
				t.Errorf("in flight: %+v", left)
			}
			// The informer's list may have been older than its events.
			if err := b.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), pod, pod.Namespace); err != nil {
				t.Fatal(err)
			}
			testkit.Soon(t, "the pod is not known to be gone any more", func() bool { return !b.state(t).Allocations.Gone(pod.UID) })
			if status := b.fw.RunReservePluginsReserve(ctx, state, pod, "n"); !status.IsSuccess() {
				t.Errorf("Reserve of a pod that is back: %v", status)
			}
		})
	}
}

// TestEndedPodBinding: the event of a pod's end may come after its devices were chosen, and before it is
// bound, because the informer handlers of the scheduler and of the plugin have no order.
func TestEndedPodBinding(t *testing.T) {
	for _, write := range []string{"PreBind", "Binding"} {
		t.Run(write, func(t *testing.T) {
			b := newTestEnv(t, write, topology.Name, numa.Name)
			pod, ctx, state := b.pod("p", 2, nil), t.Context(), framework.NewCycleState()
			if _, status, _ := b.fw.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
				t.Fatal(status)
			}
			if status := b.fw.RunReservePluginsReserve(ctx, state, pod, "n"); !status.IsSuccess() {
				t.Fatal(status)
			}
			ended := pod.DeepCopy()
			ended.Status.Phase = v1.PodFailed
			if err := b.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), ended, ended.Namespace); err != nil {
				t.Fatal(err)
			}
			testkit.Soon(t, "the pod is known to be gone", func() bool { return b.state(t).Allocations.Gone(pod.UID) })
			b.client.ClearActions()
			status := b.fw.RunPreBindPlugins(ctx, state, pod, "n")
			if status.IsSuccess() {
				status = b.fw.RunBindPlugins(ctx, state, pod, "n")
			}
			if status.Code() != fwk.Error {
				t.Errorf("the binding ends with %v, want an error", status)
			}
			if got := writes(b.client); len(got) > 0 {
				t.Errorf("writes %q of a pod that has ended", got)
			}
		})
	}
}

// TestDeletedPodLateWrite: nothing is written for a pod that was deleted after its devices were chosen,
// though its write waits for longer than the end of other pods is remembered. The API server would bind a
// pod that has ended.
func TestDeletedPodLateWrite(t *testing.T) {
	for _, write := range []string{"PreBind", "Binding"} {
		t.Run(write, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Now())
			b := newTestEnvOf(t, setting{write: write, clock: clk}, topology.Name, numa.Name)
			pod, ctx, state := b.pod("p", 2, nil), t.Context(), framework.NewCycleState()
			if _, status, _ := b.fw.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
				t.Fatal(status)
			}
			if status := b.fw.RunReservePluginsReserve(ctx, state, pod, "n"); !status.IsSuccess() {
				t.Fatal(status)
			}
			if err := b.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			testkit.Soon(t, "the pod is known to be gone", func() bool { return b.state(t).Allocations.Gone(pod.UID) })
			if clk.Step(reservations.ReleaseWithin + time.Second); b.state(t).Allocations.Gone(pod.UID) {
				t.Fatal("that the pod is gone is known for longer than its devices may take to follow")
			}
			b.client.ClearActions()
			status := b.fw.RunPreBindPlugins(ctx, state, pod, "n")
			if status.IsSuccess() {
				status = b.fw.RunBindPlugins(ctx, state, pod, "n")
			}
			if status.Code() != fwk.Error {
				t.Errorf("the binding ends with %v, want an error", status)
			}
			if got := writes(b.client); len(got) > 0 {
				t.Errorf("writes %q of a pod that is gone", got)
			}
		})
	}
}

// silent is an API server that accepts writes of pods and never answers.
type silent struct{ kubernetes.Interface }

// IsWatchListSemanticsUnSupported returns true like the fake client, for informers.
func (silent) IsWatchListSemanticsUnSupported() bool { return true }

func (s silent) CoreV1() corev1client.CoreV1Interface { return silentCore{s.Interface.CoreV1()} }

type silentCore struct{ corev1client.CoreV1Interface }

func (s silentCore) Pods(namespace string) corev1client.PodInterface {
	return silentPods{s.CoreV1Interface.Pods(namespace)}
}

type silentPods struct{ corev1client.PodInterface }

func (silentPods) Bind(ctx context.Context, _ *v1.Binding, _ metav1.CreateOptions) error {
	<-ctx.Done()
	return ctx.Err()
}

func (silentPods) Patch(ctx context.Context, _ string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*v1.Pod, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestUnansweredWrite: a write without an answer ends. A reservation was binding for as long as the
// request was in flight, and no client of kube-scheduler's ends one by itself.
func TestUnansweredWrite(t *testing.T) {
	for _, write := range []string{"PreBind", "Binding"} {
		t.Run(write, func(t *testing.T) {
			b := newTestEnvOf(t, setting{
				write: write, requestTimeout: "50ms",
				through: func(c kubernetes.Interface) kubernetes.Interface { return silent{c} },
			}, topology.Name, numa.Name)
			pod, ctx, state := b.pod("p", 2, nil), t.Context(), framework.NewCycleState()
			if _, status, _ := b.fw.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
				t.Fatal(status)
			}
			if status := b.fw.RunReservePluginsReserve(ctx, state, pod, "n"); !status.IsSuccess() {
				t.Fatal(status)
			}
			status := b.fw.RunPreBindPlugins(ctx, state, pod, "n")
			if status.IsSuccess() {
				status = b.fw.RunBindPlugins(ctx, state, pod, "n")
			}
			if err := status.AsError(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the write ended with %v, want %v", err, context.DeadlineExceeded)
			}
			b.fw.RunReservePluginsUnreserve(ctx, state, pod, "n")
			if got := b.state(t).Allocations.Dump(); len(got) != 1 || got[0].Phase != "doubtful" {
				t.Errorf("in flight %+v, want one that is doubtful", got)
			}
		})
	}
}
