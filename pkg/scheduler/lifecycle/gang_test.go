// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	schedcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/plugins/numa"
	"github.com/nvtopo/nvtopo/pkg/plugins/topology"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// gangEnv is a testEnv whose profile has a plugin for gangs.
type gangEnv struct {
	*testEnv
	profile *lifecycle.Profile
}

func newGangEnv(tb testing.TB, plugins ...string) *gangEnv {
	tb.Helper()
	g := &gangEnv{}
	g.testEnv = newTestEnvOf(tb, setting{write: "Binding", gangs: func(_ *nodestate.State, p *lifecycle.Profile) error {
		g.profile = p
		return nil
	}}, plugins...)
	return g
}

// member is a pod of a gang.
func (e *gangEnv) member(name string, gpus int) *v1.Pod {
	return e.pod(name, gpus, map[string]string{gangrequest.GangKey: "g", gangrequest.GangSizeKey: "2"})
}

// plan plans these GPUs for a pod on the node, none for one without GPUs.
func (e *gangEnv) plan(tb testing.TB, pod *v1.Pod, gpus ...int) {
	tb.Helper()
	d, err := e.profile.Demand(pod)
	if err != nil {
		tb.Fatal(err)
	}
	members := []nodestate.GangMember{{Pod: pod, Demand: d, Node: "n", GPUs: nvtopo.MaskOf(gpus...)}}
	if failed, reason := e.state(tb).GangReserver.ReserveGang(members, e.snapshot.NodeInfos(), nil, nil); failed >= 0 {
		tb.Fatalf("planning pod %s: %s", pod.Name, reason)
	}
}

// TestPlannedPodCycle: a planned pod passes the extension points.
func TestPlannedPodCycle(t *testing.T) {
	both := []string{topology.Name, numa.Name}
	tests := map[string]struct {
		plugins     []string
		gpus        []int // planned; none: the pod has a place
		annotations map[string]string
		// between is done after Filter.
		between func(s *nodestate.State)
		kept    bool

		wantReserve fwk.Code
		wantPhase   string // after Reserve
		wantAtEnd   string // after Unreserve
	}{
		"it gets the planned GPUs":                        {plugins: both, gpus: []int{2, 5}, wantPhase: "reserved"},
		"with TopologyAware alone":                        {plugins: both[:1], gpus: []int{2, 5}, wantPhase: "reserved"},
		"with NUMAAffinity alone":                         {plugins: both[1:], gpus: []int{2, 5}, wantPhase: "reserved"},
		"the gang is committed, and its attempt fails":    {plugins: both, gpus: []int{2, 5}, kept: true, wantPhase: "reserved", wantAtEnd: "planned"},
		"its plan ends meanwhile, and it chooses nothing": {plugins: both, gpus: []int{2, 5}, between: func(s *nodestate.State) { s.GangReserver.EndPlanned("p") }, wantReserve: fwk.Unschedulable},
		"without GPUs it has a place":                     {plugins: both, wantPhase: "planned", wantAtEnd: "planned"},
		"its place is gone meanwhile": {
			plugins: both, annotations: map[string]string{podrequest.NUMAAffinityKey: "required"},
			between: func(s *nodestate.State) { s.GangReserver.EndPlanned("p") }, wantReserve: fwk.Unschedulable,
		},
		"NUMA nodes are chosen at its place": {
			plugins: both, annotations: map[string]string{podrequest.NUMAAffinityKey: "required"}, wantPhase: "planned,reserved", wantAtEnd: "planned",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := newGangEnv(t, tc.plugins...)
			pod := g.member("p", len(tc.gpus))
			for k, v := range tc.annotations {
				metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
			}
			g.plan(t, pod, tc.gpus...)
			if tc.kept {
				g.state(t).GangReserver.KeepPlanned("p")
			}
			ctx, state := t.Context(), framework.NewCycleState()
			result, status, _ := g.fw.RunPreFilterPlugins(ctx, state, pod)
			if !status.IsSuccess() || !result.AllNodes() {
				t.Fatalf("PreFilter: %v, nodes %v; want all, which are the gang plugin's to list", status, result)
			}
			if status := g.fw.RunFilterPlugins(ctx, state, pod, g.info(t)); !status.IsSuccess() {
				t.Fatalf("Filter on the planned node: %v", status)
			}
			if tc.between != nil {
				tc.between(g.state(t))
			}
			status = g.fw.RunReservePluginsReserve(ctx, state, pod, "n")
			if status.Code() != tc.wantReserve {
				t.Fatalf("Reserve: %v, want %v", status, tc.wantReserve)
			}
			if len(tc.gpus) > 0 && status.IsSuccess() {
				a := g.state(t).Binder.Attempt("p", "n").Pending()
				if got := a.Mask(gpuResource, g.state(t).Nodes.Node("n").Accels[0].Graph); got != nvtopo.MaskOf(tc.gpus...) {
					t.Errorf("it gets %v, want %v", got.Positions(), tc.gpus)
				}
				if slices.Contains(tc.plugins, topology.Name) {
					tables := g.state(t).Nodes.Node("n").Accels[0].Tables
					want := &allocation.Decision{
						Version: allocation.DecisionVersion, Node: "n", Gang: true, Band: nodeindex.BandOf(tables, nvtopo.MaskOf(tc.gpus...)),
						BestRing: tables.Best(len(tc.gpus)), Candidates: []allocation.Candidate{{Node: "n", Ring: tables.Ring(nvtopo.MaskOf(tc.gpus...))}},
					}
					if diff := cmp.Diff(want, lifecycle.ReadCycle(state).Decision); diff != "" {
						t.Errorf("the record of the decision (-want +got):\n%s", diff)
					}
				}
			}
			if got := g.allPhases(t); got != tc.wantPhase {
				t.Errorf("after Reserve it is %q, want %q", got, tc.wantPhase)
			}
			g.fw.RunReservePluginsUnreserve(ctx, state, pod, "n")
			g.fw.RunReservePluginsUnreserve(ctx, state, pod, "n") // idempotent
			if got := g.allPhases(t); got != tc.wantAtEnd {
				t.Errorf("after Unreserve it is %q, want %q", got, tc.wantAtEnd)
			}
		})
	}
}

// allPhases returns the phases of all reservations, in order.
func (e *gangEnv) allPhases(t *testing.T) string {
	t.Helper()
	return strings.Join(slices.Sorted(slices.Values(e.phases(t))), ",")
}

// TestPlannedNode: only the planned node takes the pod.
func TestPlannedNode(t *testing.T) {
	g := newGangEnv(t, topology.Name, numa.Name)
	pod, other := g.member("p", 8), g.member("q", 8)
	g.plan(t, pod, 0, 1, 2, 3, 4, 5, 6, 7)
	filter := func(pod *v1.Pod, node string) *fwk.Status {
		t.Helper()
		state := framework.NewCycleState()
		if _, status, _ := g.fw.RunPreFilterPlugins(t.Context(), state, pod); !status.IsSuccess() {
			t.Fatal(status)
		}
		info := g.info(t)
		if node != "n" {
			m := g.node.DeepCopy()
			m.Name = node
			var err error
			if info, err = schedcache.NewSnapshot(nil, []*v1.Node{m}).NodeInfos().Get(node); err != nil {
				t.Fatal(err)
			}
		}
		return g.fw.RunFilterPlugins(t.Context(), state, pod, info)
	}
	if status := filter(pod, "n"); !status.IsSuccess() {
		t.Errorf("its own node: %v", status)
	}
	if status := filter(pod, "m"); status.Code() != fwk.UnschedulableAndUnresolvable || status.Message() != placement.PlannedElsewhere.String() {
		t.Errorf("another node: %v", status)
	}
	if status := filter(other, "n"); status.Code() != fwk.Unschedulable {
		t.Errorf("a pod of a gang without a plan, where the other's GPUs are: %v", status)
	}
}

// TestGangMemberPlacement: members of gangs are not placed by themselves.
func TestGangMemberPlacement(t *testing.T) {
	for name, tc := range map[string]struct {
		gangs bool // the profile has a plugin for them
		want  fwk.Code
	}{
		"with a plugin for gangs": {true, fwk.Unschedulable},
		"without":                 {false, fwk.Success},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gangEnv{testEnv: newTestEnv(t, "Binding", topology.Name, numa.Name)}
			if tc.gangs {
				g = newGangEnv(t, topology.Name, numa.Name)
			}
			pod := g.member("p", 8) // other pods that take whole nodes are signed
			result, status, _ := g.fw.RunPreFilterPlugins(t.Context(), framework.NewCycleState(), pod)
			if !status.IsSuccess() || result.AllNodes() != tc.gangs {
				t.Errorf("PreFilter: %v, nodes %v", status, result)
			}
			_, status = g.instances[topology.Name].(fwk.SignPlugin).SignPod(t.Context(), pod)
			if status.Code() != tc.want {
				t.Errorf("SignPod: %v, want %v", status, tc.want)
			}
		})
	}
}

// TestBatchingSignature: batching treats pods as equal only if their rankings of nodes are equal.
func TestBatchingSignature(t *testing.T) {
	s := newTestEnv(t, "Binding", topology.Name)
	sign := func(annotations map[string]string) []fwk.SignFragment {
		pod := schedtest.Pod("p").GPUs(8).Annotations(annotations).Obj()
		if _, status, _ := s.fw.RunPreFilterPlugins(t.Context(), framework.NewCycleState(), pod); !status.IsSuccess() {
			t.Fatal(status)
		}
		fragments, status := s.instances[topology.Name].(fwk.SignPlugin).SignPod(t.Context(), pod)
		if !status.IsSuccess() {
			t.Fatal(status)
		}
		return fragments
	}
	plain := sign(nil)
	for name, tc := range map[string]struct {
		annotations map[string]string
		want        bool // it is signed as a plain one
	}{
		"a plain pod":                        {nil, true},
		"what nobody asks":                   {map[string]string{"example.com/note": "a"}, true},
		"links that it must have":            {map[string]string{podrequest.MinLinkKey: "NVLINK"}, false},
		"a message by which nodes are rated": {map[string]string{podrequest.MessageSizeKey: "64k"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reflect.DeepEqual(sign(tc.annotations), plain); got != tc.want {
				t.Errorf("signed as a plain pod: %t, want %t", got, tc.want)
			}
		})
	}
}

// TestPluginOrder: the gang plugin gets the state whichever plugin is made first.
func TestPluginOrder(t *testing.T) {
	wrong := errors.New("wrong")
	var got *nodestate.State
	take := func(s *nodestate.State, p *lifecycle.Profile) error {
		if p.Gangs {
			got = s
		}
		return nil
	}
	b := newTestEnvOf(t, setting{write: "Binding", gangs: take}, topology.Name)
	if got == nil || got != b.state(t) {
		t.Error("made first, it has not got the State")
	}
	got = nil
	b = newTestEnv(t, "Binding", topology.Name)
	if err := b.shared.ServeGangs("profile-1", take); err != nil || got == nil {
		t.Errorf("made last, it has not got the State: %v", err)
	}
	if err := b.shared.ServeGangs("profile-1", take); err == nil {
		t.Error("a second plugin places the gangs of a profile")
	}
	if err := b.shared.ServeGangs("profile-2", func(*nodestate.State, *lifecycle.Profile) error { return wrong }); err != nil {
		t.Errorf("a profile that is not there yet: %v", err)
	}
	if err := lifecycle.NewShared(clock.RealClock{}).ServeGangs("p", take); err != nil {
		t.Errorf("a process without any: %v", err)
	}
}
