// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// lingers is a finalizer that keeps a deleted pod, until the test removes it.
const lingers = "example.com/lingers"

// TestGangPreemption is the part of gangs' table of acceptance in which pods are evicted for gangs. Each
// scenario has nodes of its own.
func TestGangPreemption(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	full := []int{0, 0, 0, 0}
	tests := []struct {
		name string
		free freeRacks
		run  func(*testing.T, *takenNodes)
	}{
		{"16 one rack is emptied", freeRacks{{full, full}}, oneRackIsEmptied},
		{"16 a pod that matters more in each rack", freeRacks{{full, full}}, nobodyIsEvicted},
		{"two gangs at once, and room for both", freeRacks{{full, full}}, twoGangsFit},
		{"two gangs at once, and room for one", freeRacks{{full}}, oneGangFits},
		{"members above the minimum go, the last first", freeRacks{{{8, 8, 8, 8}}}, surplusGoes},
		{"a gang goes whole", freeRacks{{{8, 8}, {0, 0}}}, gangGoesWhole},
		{"what is held yields to a gang that matters more", freeRacks{{full}}, heldYieldsToGang},
		{"what is held is kept from pods, but for one that matters more", freeRacks{{full}}, heldYieldsToPod},
	}
	for i := range tests {
		l.makeRacks(t, i, &scenario{free: tests[i].free})
	}
	l.priorities(t, map[string]int32{"of-5": 5, "of-10": 10, "of-20": 20})
	l.startScheduler(t, profile{name: gangProfile, write: "PreBind", plugins: []string{gangPlugin, topologyPlugin, numaPlugin}})
	for i := range tests {
		t.Run(tests[i].name, func(t *testing.T) {
			tests[i].run(t, &takenNodes{testEnv: l, number: i, free: tests[i].free, takers: map[string]*v1.Pod{}})
		})
	}
}

// takenNodes is a scenario in which pods take the nodes that a gang needs.
type takenNodes struct {
	*testEnv
	number int
	free   freeRacks
	takers map[string]*v1.Pod // by node
}

func (s *takenNodes) name(what string) string { return fmt.Sprintf("s%d-%s", s.number, what) }

func (s *takenNodes) node(rack, i int) string {
	return fmt.Sprintf("s%d-node-%d-%d", s.number, rack, i)
}

// take puts a pod on every node without free GPUs. change may be nil.
func (s *takenNodes) take(t *testing.T, change func(node string, pod *v1.Pod)) {
	t.Helper()
	_, free := racksOf(s.number, s.free)
	for node, n := range free {
		if n > 0 {
			continue
		}
		pod := gpuPod("taker-"+node, gangProfile, 8).NodeSelector(host(node)).Obj()
		if change != nil {
			change(node, pod)
		}
		s.create(t, pod)
	}
	for node, n := range free {
		if n == 0 {
			s.takers[node] = s.bound(t, "taker-"+node)
		}
	}
}

// gang creates the members of a gang of a priority.
func (s *takenNodes) gang(t *testing.T, what, class string, pods int, more notes) []*v1.Pod {
	t.Helper()
	members := gangPods(s.number, s.name(what), pods, 8, more)
	for _, pod := range members {
		pod.Spec.PriorityClassName = class
		s.create(t, pod)
	}
	return members
}

// racks returns the racks of the members once they are bound.
func (s *takenNodes) racks(t *testing.T, pods []*v1.Pod) (out []string) {
	t.Helper()
	for _, pod := range pods {
		_, place, _ := strings.Cut(s.bound(t, pod.Name).Spec.NodeName, "-node-")
		rack, _, _ := strings.Cut(place, "-")
		out = append(out, "rack-"+rack)
	}
	return out
}

// gone returns the nodes whose takers were evicted.
func (s *takenNodes) gone(t *testing.T) (nodes []string) {
	t.Helper()
	for node, taker := range s.takers {
		pod, err := s.client.CoreV1().Pods(taker.Namespace).Get(t.Context(), taker.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && pod.DeletionTimestamp != nil {
			nodes = append(nodes, node)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(nodes)
	return nodes
}

func (s *takenNodes) wantGone(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	if diff := cmp.Diff(want, s.gone(t)); diff != "" {
		t.Errorf("nodes whose pods were evicted (-want,+got)\n%s", diff)
	}
}

func (s *takenNodes) rack(n int) (nodes []string) {
	for i := range 4 {
		nodes = append(nodes, s.node(n, i))
	}
	return nodes
}

func oneRackIsEmptied(t *testing.T, s *takenNodes) {
	t.Helper()
	s.take(t, nil)
	pods := s.gang(t, "gang", "of-10", 4, nil)
	racks := s.racks(t, pods)
	if slices.ContainsFunc(racks, func(r string) bool { return r != racks[0] }) {
		t.Fatalf("racks of the members: %v, want one", racks)
	}
	emptied := s.rack(int(racks[0][len("rack-")] - '0'))
	s.wantGone(t, emptied...)
	var notes []string
	testkit.Eventually(t, waitLimit, "each victim has an event that names the gang", func(ctx context.Context) (bool, string) {
		notes = nil
		for _, node := range emptied {
			got, err := s.events(ctx, s.takers[node], "Preempted")
			if err != nil {
				return false, err.Error()
			}
			notes = append(notes, got...)
		}
		return len(notes) == len(emptied), fmt.Sprint(notes)
	})
	for _, note := range notes {
		if !strings.Contains(note, "gang default/"+s.name("gang")) {
			t.Errorf("event of a victim: %s", note)
		}
	}
}

func nobodyIsEvicted(t *testing.T, s *takenNodes) {
	t.Helper()
	s.take(t, func(node string, pod *v1.Pod) {
		if node == s.node(0, 2) || node == s.node(1, 1) {
			pod.Spec.PriorityClassName = "of-20"
		}
	})
	s.wantGangRefused(t, s.gang(t, "gang", "of-10", 4, notes{gangrequest.RequiredKey: "rack"}), "rack: 0 of 4")
	s.wantGone(t)
}

func twoGangsFit(t *testing.T, s *takenNodes) {
	t.Helper()
	s.take(t, nil)
	a, b := s.gang(t, "a", "of-10", 4, nil), s.gang(t, "b", "of-10", 4, nil)
	if first, second := s.racks(t, a), s.racks(t, b); first[0] == second[0] {
		t.Errorf("racks %v and %v", first, second)
	}
	s.wantGone(t, slices.Concat(s.rack(0), s.rack(1))...)
}

func oneGangFits(t *testing.T, s *takenNodes) {
	t.Helper()
	s.take(t, nil)
	gangs := [][]*v1.Pod{s.gang(t, "a", "of-10", 4, nil), s.gang(t, "b", "of-10", 4, nil)}
	var winner, loser []*v1.Pod
	testkit.Eventually(t, waitLimit, "one gang is bound", func(context.Context) (bool, string) {
		for i := range gangs {
			if s.get(t, gangs[i][0].Name).Spec.NodeName != "" {
				winner, loser = gangs[i], gangs[1-i]
			}
		}
		return winner != nil, ""
	})
	s.racks(t, winner)
	s.wantGangRefused(t, loser, " of 4")
	s.wantGone(t, s.rack(0)...)
}

// surplusGoes checks that one member above the minimum of a gang of four is evicted, and the others stay.
func surplusGoes(t *testing.T, s *takenNodes) {
	t.Helper()
	low := gangPods(s.number, s.name("low"), 4, 8, notes{gangrequest.GangSizeKey: "2"})
	for _, pod := range low {
		s.create(t, pod)
	}
	s.racks(t, low)
	s.racks(t, s.gang(t, "high", "of-10", 1, nil))
	var left []string
	for _, pod := range low {
		got, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), pod.Name, metav1.GetOptions{})
		switch {
		case err == nil && got.DeletionTimestamp == nil:
			left = append(left, pod.Name)
		case err != nil && !apierrors.IsNotFound(err):
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{low[0].Name, low[1].Name, low[2].Name}, left); diff != "" {
		t.Errorf("members that are left (-want,+got)\n%s", diff)
	}
}

// gangGoesWhole checks that a gang is evicted as a whole although only one of its nodes is needed.
func gangGoesWhole(t *testing.T, s *takenNodes) {
	t.Helper()
	low := s.gang(t, "low", "of-5", 2, nil)
	s.racks(t, low)
	s.take(t, func(_ string, pod *v1.Pod) { pod.Spec.PriorityClassName = "of-20" })
	s.racks(t, s.gang(t, "high", "of-10", 1, nil))
	for _, pod := range low {
		testkit.Eventually(t, waitLimit, "pod "+pod.Name+" is evicted", func(ctx context.Context) (bool, string) {
			_, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, pod.Name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		})
	}
	s.wantGone(t)
}

// linger keeps the takers after their deletion.
func linger(_ string, pod *v1.Pod) { pod.Finalizers = []string{lingers} }

// release removes the takers' finalizers.
func (s *takenNodes) release(t *testing.T, nodes ...string) {
	t.Helper()
	for _, node := range nodes {
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := s.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(t.Context(), s.takers[node].Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// evicted waits until a number of takers are deleted.
func (s *takenNodes) evicted(t *testing.T, n int) {
	t.Helper()
	testkit.Eventually(t, waitLimit, fmt.Sprintf("%d pods are evicted", n), func(context.Context) (bool, string) {
		gone := s.gone(t)
		return len(gone) == n, fmt.Sprint(gone)
	})
}

func heldYieldsToGang(t *testing.T, s *takenNodes) {
	t.Helper()
	s.take(t, linger)
	low := s.gang(t, "low", "of-10", 4, nil)
	s.evicted(t, 4)
	s.wantGangRefused(t, low, "evicted for this gang")
	high := s.gang(t, "high", "of-20", 4, nil)
	s.wantGangRefused(t, high, "takes the places that were held for gang default/"+s.name("low"))
	s.release(t, s.rack(0)...)
	s.racks(t, high)
	s.wantGangRefused(t, low, " of 4")
}

func heldYieldsToPod(t *testing.T, s *takenNodes) {
	t.Helper()
	s.take(t, linger)
	low := s.gang(t, "low", "of-10", 4, nil)
	s.evicted(t, 4)
	s.wantGangRefused(t, low, "evicted for this gang")
	s.release(t, s.node(0, 0))
	less := gpuPod(s.name("less"), gangProfile, 8).NodeSelector(ofScenario(s.number)).PriorityClass("of-5").Obj()
	more := gpuPod(s.name("more"), gangProfile, 8).NodeSelector(ofScenario(s.number)).PriorityClass("of-20").Obj()
	s.create(t, less)
	s.refused(t, less.Name)
	s.create(t, more)
	if got := s.bound(t, more.Name).Spec.NodeName; got != s.node(0, 0) {
		t.Errorf("the pod that matters more is on %s, want the node that was held", got)
	}
	if got := s.get(t, less.Name).Spec.NodeName; got != "" {
		t.Errorf("the pod that matters less is on %s", got)
	}
	s.release(t, s.node(0, 1), s.node(0, 2), s.node(0, 3))
}
