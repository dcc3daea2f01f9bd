// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
)

// waits makes a pod of the first profile and delivers it to the informer.
func (e *testEnv) waits(tb testing.TB, name string, gpus int, priority int32) *v1.Pod {
	tb.Helper()
	pod := schedtest.Pod(name).Scheduler(e.fw.ProfileName()).Priority(priority).CPU("2").Memory("1Gi").GPUs(gpus).Obj()
	if err := e.client.Tracker().Add(pod); err != nil {
		tb.Fatal(err)
	}
	e.seen(tb, name, func(*v1.Pod) bool { return true })
	return pod
}

// seen waits until the informer has a pod for which so is true.
func (e *testEnv) seen(tb testing.TB, name string, so func(*v1.Pod) bool) {
	tb.Helper()
	testkit.Soon(tb, "the informer sees what became of pod "+name, func() bool {
		pod, err := e.factory.Core().V1().Pods().Lister().Pods("default").Get(name)
		return err == nil && so(pod)
	})
}

// refuse takes a pod through a cycle in which it fits no node.
func (e *testEnv) refuse(tb testing.TB, pod *v1.Pod) {
	tb.Helper()
	ctx, state := tb.Context(), framework.NewCycleState()
	if _, status, _ := e.fw.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		tb.Fatalf("PreFilter of pod %s: %v", pod.Name, status)
	}
	status := e.fw.RunFilterPlugins(ctx, state, pod, e.info(tb))
	if status.IsSuccess() {
		tb.Fatalf("pod %s fits", pod.Name)
	}
	_, _ = e.fw.RunPostFilterPlugins(ctx, state, pod, framework.NewNodeToStatus(map[string]*fwk.Status{e.node.Name: status}, nil))
}

// standing is a clock whose time never changes. Its timers run.
type standing struct {
	clock.RealClock
	now time.Time
}

func (c standing) Now() time.Time                  { return c.now }
func (c standing) Since(t time.Time) time.Duration { return c.now.Sub(t) }

// TestReleaseBacklog: a release does not wake the backlog.
func TestReleaseBacklog(t *testing.T) {
	// No pod has waited so long that it is tried for that alone.
	b := newTestEnvOf(t, setting{write: "Binding", clock: standing{now: time.Now()}}, topology.Name)
	b.client.Tracker().Add(b.node)
	var running []*v1.Pod
	for i := range 8 {
		pod := b.pod(fmt.Sprintf("running-%d", i), 1, nil)
		b.place(t, pod)
		running = append(running, b.bindAs(t, pod))
	}
	for i := range 60 {
		b.refuse(t, b.waits(t, fmt.Sprintf("waiting-%03d", i), 1+i%2, 0))
	}
	b.refuse(t, b.waits(t, "right", 1, 7))
	b.settled(t)
	b.activated.take()

	if err := b.client.CoreV1().Pods("default").Delete(t.Context(), running[3].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var woken []string
	testkit.Eventually(t, 2*time.Minute, "the pod that matters most is woken", func(context.Context) (bool, string) {
		woken = append(woken, b.activated.take()...)
		return slices.Contains(woken, "right"), fmt.Sprint("woken are ", woken)
	})
	if slices.ContainsFunc(woken, func(name string) bool { return name != "right" }) { // twice does no harm
		t.Errorf("one GPU came free and of 61 waiting pods %v were woken, want the one whom it helps", woken)
	}
}

// bindAs binds a placed pod at the API server, with the annotations of its choice.
func (e *testEnv) bindAs(tb testing.TB, pod *v1.Pod) *v1.Pod {
	tb.Helper()
	state := e.state(tb)
	notes, err := state.Nodes.Annotations(state.Binder.Attempt(pod.UID, e.node.Name).Pending(), false)
	if err != nil {
		tb.Fatal(err)
	}
	bound := pod.DeepCopy()
	bound.Annotations, bound.Spec.NodeName = notes, e.node.Name
	if err := e.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), bound, "default"); err != nil {
		tb.Fatal(err)
	}
	e.seen(tb, pod.Name, func(pod *v1.Pod) bool { return pod.Spec.NodeName != "" })
	return bound
}

// settled waits until no pod has been woken for a while.
func (e *testEnv) settled(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 3*time.Minute)
	defer cancel()
	for quiet := 0; quiet < 30; quiet++ {
		if len(e.activated.take()) > 0 {
			quiet = 0
		}
		select {
		case <-ctx.Done():
			tb.Fatal("pods are woken again and again")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TestUnrelatedWait: a pod that only waits for other plugins is tried.
func TestUnrelatedWait(t *testing.T) {
	b := newTestEnv(t, "Binding", topology.Name)
	b.client.Tracker().Add(b.node)
	b.place(t, b.pod("running", 5, nil))
	waits, other := b.waits(t, "waits", 8, 0), b.pod("other", 2, nil)
	b.refuse(t, waits)
	gate := func(pod *v1.Pod) fwk.Code {
		p, ok := b.instances[topology.Name].(fwk.PreEnqueuePlugin)
		if !ok {
			t.Fatal("the plugin has no PreEnqueue")
		}
		return p.PreEnqueue(t.Context(), pod).Code()
	}
	if got := gate(waits); got != fwk.UnschedulableAndUnresolvable {
		t.Errorf("a pod that no node would take passes PreEnqueue with %v", got)
	}
	if got := gate(other); got != fwk.Success {
		t.Errorf("a pod that was never refused: PreEnqueue says %v", got)
	}
	changed := waits.DeepCopy()
	changed.Annotations = map[string]string{podrequest.TopologyPolicyKey: "none"}
	if got := gate(changed); got != fwk.Success {
		t.Errorf("a pod that asks for something else now: PreEnqueue says %v", got)
	}
	member := waits.DeepCopy()
	member.Annotations = map[string]string{gangrequest.GangKey: "g"}
	if p, ok := b.instances[topology.Name].(*topology.Plugin); ok {
		p.Profile.Gangs = true
	}
	if got := gate(member); got != fwk.Success {
		t.Errorf("a pod that another plugin places with its gang now: PreEnqueue says %v", got)
	}
}
