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

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	gangplugin "github.com/nvtopo/nvtopo/pkg/plugins/gang"
)

// TestKeptNodes: nodes are kept for a gang that waits. The test fills two racks with a gang, so that
// another one waits for longer than the argument.
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
		return r.state.PreSelector.Closed().Any()
	})
	closed := slices.Sorted(maps.Keys(r.state.PreSelector.Closed().Kept()))
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
	testkit.Soon(t, "the nodes are open", func() bool { return !r.state.PreSelector.Closed().Any() })
}

// TestKeptOwnNodes: nodes of the gang's own members are not kept. A bound member stays, so the others
// never have room on its node.
func TestKeptOwnNodes(t *testing.T) {
	t.Parallel()
	r := newTestEnvWith(t, `{"drainAfter": "1s"}`, 2, 2)
	for _, node := range []string{"node-0-1", "node-1-0", "node-1-1"} {
		r.place(r.create(gpuPod("on-"+node, 8).Namespace("others").Node(node).Obj()))
	}
	r.place(r.create(member("waits", 2, 0, 8).Node("node-0-0").Obj()))
	waits := r.create(member("waits", 2, 1, 8).Obj())
	r.known(waits)
	testkit.Soon(t, "nodes are closed for the gang", func() bool {
		r.cycle(waits)
		return r.state.PreSelector.Closed().Any()
	})
	if diff := cmp.Diff([]string{"node-0-1"}, slices.Sorted(maps.Keys(r.state.PreSelector.Closed().Kept()))); diff != "" {
		t.Errorf("closed nodes (-want,+got)\n%s", diff)
	}
}

// TestRefusedKeptNodes: kept nodes may be refused. They stay the same while other pods are on them, which
// may be why a plugin refuses them, and are opened once they have room and are refused nevertheless.
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
		return r.state.PreSelector.Closed().Any()
	})
	want := []string{"node-0-0", "node-0-1"}
	kept := func(what string) {
		t.Helper()
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(r.state.PreSelector.Closed().Kept()))); diff != "" {
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
		return !r.state.PreSelector.Closed().Any()
	})
}

// TestKeptFromOthers: only the devices that the gang's members need are kept, from pods that request them,
// and only the gang's own namespace sees its name.
func TestKeptFromOthers(t *testing.T) {
	const keptFrom = "nvidia.com/gpu of the node is kept for "
	r := newTestEnvWith(t, `{"drainAfter": "1s"}`, 4)
	for node, gpus := range map[string]int{"node-0-0": 1, "node-0-1": 4, "node-0-2": 8, "node-0-3": 8} {
		r.place(r.create(gpuPod("on-"+node, gpus).Namespace("others").Node(node).Obj()))
	}
	waits := r.gang("waits", 2, 6, nil)
	r.known(waits[0])
	var said string
	testkit.Soon(t, "places are kept for the gang", func() bool {
		said = r.cycle(waits[0]).status.Message()
		return r.state.PreSelector.Closed().Any()
	})
	if want := "places on 2 nodes (nvidia.com/gpu) are kept from younger pods until "; !strings.Contains(said, want) {
		t.Errorf("the gang says %q, want %q", said, want)
	}
	younger := func(namespace string, gpus int) *v1.Pod {
		return gpuPod("younger", gpus).Namespace(namespace).CPU("70").Created(time.Now().Add(time.Hour)).Obj()
	}
	tests := map[string]struct {
		pod  *v1.Pod
		want map[string]string
	}{
		"a pod without GPUs":                {younger("others", 0), map[string]string{}},
		"one GPU, which is free beside it":  {younger("others", 1), map[string]string{"node-0-1": keptFrom + "a gang of another namespace, which has waited for long, until "}},
		"of the gang's own namespace":       {younger("default", 1), map[string]string{"node-0-1": keptFrom + "gang default/waits, which has waited for long, until "}},
		"two GPUs, of which one is kept":    {younger("others", 2), map[string]string{"node-0-0": keptFrom, "node-0-1": keptFrom}},
		"one of a higher priority may have": {schedtest.PodFrom(younger("others", 2)).Priority(1).Obj(), map[string]string{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := r.keptOut(t, tc.pod)
			for node, why := range tc.want {
				if !strings.HasPrefix(got[node], why) {
					t.Errorf("%s says %q, want %q", node, got[node], why)
				}
				delete(got, node)
			}
			if len(got) > 0 {
				t.Errorf("it is kept out as well: %v", got)
			}
		})
	}
	other := r.gangIn("others", "younger", 2, 2, time.Now().Add(time.Hour))
	r.known(other[0])
	testkit.Soon(t, "a younger gang says for whom places are kept", func() bool {
		said = r.cycle(other[0]).status.Message()
		return strings.Contains(said, "places on 2 nodes are kept for a gang of another namespace, which has waited for long, until ")
	})
	plain := r.gangIn("others", "plain", 2, 0, time.Now().Add(time.Hour))
	r.known(plain[0])
	testkit.Soon(t, "a younger gang without GPUs has its places", func() bool { return r.cycle(plain[0]).status.IsWait() })
}

// TestUselessDrain: no nodes are kept for a gang without devices, nor where pods of its own namespace are
// in the way. A tenant without a GPU could close the cluster this way, for as long as it liked.
func TestUselessDrain(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		gpus, takes int
		namespace   string
		want        string // part of the gang's reason; empty: places are kept
	}{
		"a gang without devices":              {namespace: "others", want: "no places are kept for it, since it asks for no devices"},
		"and its own namespace is in the way": {namespace: "default", want: "no places are kept for it, since it asks for no devices"},
		"its own namespace is in the way":     {gpus: 8, takes: 8, namespace: "default", want: "no places are kept for it: only pods of its own namespace are in the way, such as on-node-0-"},
		"another one is":                      {gpus: 8, takes: 8, namespace: "others"},
		"another one has the CPU":             {gpus: 8, namespace: "others"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTestEnvWith(t, `{"drainAfter": "1s"}`, 4)
			for _, node := range r.nodes { // none has room for a member
				r.place(r.create(gpuPod("on-"+node.Name, tc.takes).CPU("60").Namespace(tc.namespace).Node(node.Name).Obj()))
			}
			gang := r.gangOf("gang", 2, tc.gpus, 0, func(pod *v1.Pod) {
				pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour)) // it has waited for long
				*pod = *schedtest.PodFrom(pod).CPU("40").Obj()
			})
			r.known(gang[0])
			said := r.cycle(gang[0]).status.Message()
			if tc.want != "" && !strings.Contains(said, tc.want) || tc.want == "" && !strings.Contains(said, "; drains ") {
				t.Errorf("the gang says %q, want %q", said, tc.want)
			}
			if got := r.state.PreSelector.Closed().Any(); got != (tc.want == "") {
				t.Errorf("something is kept: %t", got)
			}
			cpuPod := schedtest.Pod("younger").Scheduler(profileName).CPU("20").Created(time.Now().Add(time.Hour)).Obj()
			got, want := len(r.keptOut(t, cpuPod)), 0
			if tc.want == "" {
				want = 2 // the CPU lacks
			}
			if got != want {
				t.Errorf("a younger pod with 20 CPUs is kept off %d nodes, want %d", got, want)
			}
		})
	}
}

// gangIn makes members in a namespace.
func (e *testEnv) gangIn(namespace, name string, pods, gpus int, made time.Time) []*v1.Pod {
	e.t.Helper()
	return e.gangOf(name, pods, gpus, 0, inNamespace(namespace), func(pod *v1.Pod) { pod.CreationTimestamp = metav1.NewTime(made) })
}

// keptOut returns the statuses of the nodes off which GangPlacement keeps a pod.
func (e *testEnv) keptOut(t *testing.T, pod *v1.Pod) map[string]string {
	t.Helper()
	state := framework.NewCycleState()
	if _, status, _ := e.fw.RunPreFilterPlugins(t.Context(), state, pod); !status.IsSuccess() {
		t.Fatalf("PreFilter: %v", status)
	}
	nodes, err := e.snapshot.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, info := range nodes {
		if status := e.fw.RunFilterPlugins(t.Context(), state, pod, info); !status.IsSuccess() && status.Plugin() == gangplugin.Name {
			got[info.Node().Name] = status.Message()
		}
	}
	return got
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
