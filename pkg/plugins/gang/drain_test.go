// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// TestKeptNodes: nodes are kept for a gang that waits. It fills two racks with a gang, so that
// another one waits for longer than the argument says.
func TestKeptNodes(t *testing.T) {
	t.Parallel()
	r := newTestEnvWith(t, `{"drainAfter": "1s"}`, 2, 2)
	full := r.gang("full", 4, 8, nil)
	r.known(full[0])
	first := r.cycle(full[0]) // the places of all are held
	waits := r.gang("waits", 2, 8, map[string]string{gangrequest.RequiredKey: "rack"})
	r.known(waits[0])
	var said string
	testkit.Soon(t, "nodes are closed for the gang", func() bool {
		if c := r.cycle(waits[0]); strings.Contains(c.status.Message(), "drains") {
			said = c.status.Message()
		}
		return r.state.Closed().Any()
	})
	closed := slices.Sorted(maps.Keys(r.state.Closed().All()))
	if diff := cmp.Diff([]string{"node-0-0", "node-0-1"}, closed); diff != "" {
		t.Errorf("closed nodes (-want,+got)\n%s", diff)
	}
	if want := "gang default/waits: rack: 0 of 2; drains rack-0 since "; !strings.HasPrefix(said, want) {
		t.Errorf("the gang says %q, want %q", said, want)
	}
	r.fw.RejectWaitingPod(full[0].UID)
	r.fw.WaitOnPermit(t.Context(), full[0])
	r.fw.RunReservePluginsUnreserve(t.Context(), first.state, full[0], first.node)
	if diff := cmp.Diff([]string(nil), r.held()); diff != "" {
		t.Fatalf("held (-want,+got)\n%s", diff)
	}
	open, all := []string{"node-1-0", "node-1-1"}, []string{"node-0-0", "node-0-1", "node-1-0", "node-1-1"}
	r.wantNodes("a younger pod", gpuPod("younger", 8).Created(time.Now().Add(time.Hour)).Obj(), open, "kept for gang default/waits")
	r.wantNodes("an older pod", gpuPod("older", 8).Created(time.Now().Add(-time.Hour)).Obj(), all, "")
	r.wantNodes("a younger pod of higher priority", gpuPod("important", 8).Created(time.Now().Add(time.Hour)).Priority(1).Obj(), all, "")
	younger := r.gang("younger", 2, 8, map[string]string{gangrequest.RequiredKey: "rack"})
	r.known(younger[0])
	var c *cycle
	testkit.Soon(t, "a younger gang has a node", func() bool {
		c = r.cycle(younger[0])
		return c.node != ""
	})
	if !slices.Contains(open, c.node) {
		t.Errorf("a younger gang is planned on %q (%v), want one of %v", c.node, c.status, open)
	}
	for i, pod := range waits {
		testkit.Soon(t, "the gang has its places", func() bool { return r.cycle(pod).status.IsWait() })
		bound := pod.DeepCopy()
		bound.Spec.NodeName = closed[i]
		if _, err := r.client.CoreV1().Pods(pod.Namespace).Update(t.Context(), bound, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Soon(t, "the nodes are open", func() bool { return !r.state.Closed().Any() })
}

// TestKeptOwnNodes: nodes of the gang's own members are not kept. A member that is bound stays, and
// where it is the others never have room.
func TestKeptOwnNodes(t *testing.T) {
	t.Parallel()
	r := newTestEnvWith(t, `{"drainAfter": "1s"}`, 2, 2)
	for _, node := range []string{"node-0-1", "node-1-0", "node-1-1"} {
		r.place(r.create(gpuPod("on-"+node, 8).Node(node).Obj()))
	}
	r.place(r.create(member("waits", 2, 0, 8).Node("node-0-0").Obj()))
	waits := r.create(member("waits", 2, 1, 8).Obj())
	r.known(waits)
	testkit.Soon(t, "nodes are closed for the gang", func() bool {
		r.cycle(waits)
		return r.state.Closed().Any()
	})
	if diff := cmp.Diff([]string{"node-0-1"}, slices.Sorted(maps.Keys(r.state.Closed().All()))); diff != "" {
		t.Errorf("closed nodes (-want,+got)\n%s", diff)
	}
}

// TestRefusedKeptNodes: kept nodes may be refused. They stay the same while others are there, for
// whom a plugin may refuse them, and are opened once they have room and are refused nevertheless.
func TestRefusedKeptNodes(t *testing.T) {
	t.Parallel()
	r := newTestEnvWith(t, `{"drainAfter": "1s"}`, 2, 2)
	hold := func(name string, pods int, change func(*v1.Pod)) (end func()) {
		t.Helper()
		gang := r.gangOf(name, pods, 8, 1, change)
		r.known(gang[0])
		first := r.cycle(gang[0])
		if !first.status.IsWait() {
			t.Fatalf("gang %s has no places: %v", name, first.status)
		}
		return func() {
			r.fw.RejectWaitingPod(gang[0].UID)
			r.fw.WaitOnPermit(t.Context(), gang[0])
			r.fw.RunReservePluginsUnreserve(t.Context(), first.state, gang[0], first.node)
		}
	}
	end := hold("full", 4, func(*v1.Pod) {})
	waits := r.gangOf("waits", 2, 8, 0, func(pod *v1.Pod) {
		pod.Labels = map[string]string{refusesLabel: "node-0-"}
		pod.Annotations[gangrequest.RequiredKey] = "rack"
	})
	r.known(waits[0])
	testkit.Soon(t, "nodes are closed for the gang", func() bool {
		r.cycle(waits[0])
		return r.state.Closed().Any()
	})
	want := []string{"node-0-0", "node-0-1"}
	kept := func(what string) {
		t.Helper()
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(r.state.Closed().All()))); diff != "" {
			t.Errorf("%s: closed nodes (-want,+got)\n%s", what, diff)
		}
	}
	kept("others are there")
	end()
	var refused *cycle
	testkit.Soon(t, "the gang has a plan", func() bool {
		refused = r.cycle(waits[0])
		return refused.node != ""
	})
	if !strings.HasPrefix(refused.node, "node-0-") || refused.status.IsSuccess() {
		t.Fatalf("node %q (%v), want one of rack-0, and that it is refused", refused.node, refused.status)
	}
	r.fw.RunPostFilterPlugins(t.Context(), refused.state, waits[0], framework.NewNodeToStatus(map[string]*fwk.Status{refused.node: refused.status}, nil))
	end = hold("others", 3, func(*v1.Pod) {})
	testkit.Soon(t, "the gang has no room", func() bool { return strings.Contains(r.cycle(waits[0]).status.Message(), "of 2") })
	kept("one of the nodes is refused, and others are there")
	end()
	hold("beside", 2, func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{rackLabel: "rack-1"} })
	testkit.Soon(t, "the nodes are open, which have room and are refused", func() bool {
		r.cycle(waits[0])
		return !r.state.Closed().Any()
	})
}

// wantNodes checks the nodes that PreFilter lists and Filter lets through, and why the others do
// not.
func (e *testEnv) wantNodes(what string, pod *v1.Pod, want []string, why string) {
	e.t.Helper()
	ctx, state := e.t.Context(), framework.NewCycleState()
	list, status, _ := e.fw.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		e.t.Fatalf("%s: PreFilter: %v", what, status)
	}
	nodes, err := e.snapshot.NodeInfos().List()
	if err != nil {
		e.t.Fatal(err)
	}
	var got []string
	for _, info := range nodes {
		switch status := e.fw.RunFilterPlugins(ctx, state, pod, info); {
		case status.IsSuccess():
			got = append(got, info.Node().Name)
		case !strings.Contains(status.Message(), why) || why == "":
			e.t.Errorf("%s is refused by %s: %v, want %q", what, info.Node().Name, status, why)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		e.t.Errorf("%s: nodes (-want,+got)\n%s", what, diff)
	}
	if list.AllNodes() {
		e.t.Fatalf("%s: PreFilter does not narrow", what)
	}
	for node := range list.NodeNames {
		if !slices.Contains(want, node) {
			e.t.Errorf("%s: PreFilter lists %s, want only %v", what, node, want)
		}
	}
}
