// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
)

// fullCluster is a small cluster of nodes with four CPUs, full of pods and gangs, to which a gang of
// priority 10 comes. The State decides the free capacity of nodes.
type fullCluster struct {
	planner *Planner
	q       Question
	f       Field
	infos   map[string]*framework.NodeInfo
	free    map[string]int // CPUs, by node
	pods    int
}

func newFullCluster(t *testing.T, racks ...int) *fullCluster {
	t.Helper()
	spec := &fabric.Spec{Levels: []fabric.Level{{Name: "rack"}}}
	b := &fullCluster{infos: map[string]*framework.NodeInfo{}, free: map[string]int{}}
	for rack, n := range racks {
		for i := range n {
			name := fmt.Sprintf("node-%d-%d", rack, i)
			spec.Nodes = append(spec.Nodes, fabric.NodePath{Node: name, Path: []string{fmt.Sprintf("rack-%d", rack)}})
			info := framework.NewNodeInfo()
			info.SetNode(schedtest.Node(name).CPU("4").Memory("4Gi").Obj())
			b.infos[name], b.free[name] = info, 4
			b.q.Nodes = append(b.q.Nodes, info)
		}
	}
	tree, _, err := fabric.NewTree(spec)
	if err != nil {
		t.Fatal(err)
	}
	b.planner = NewPlanner(nodestate.New(nodestate.Config{}, clocktesting.NewFakeClock(time.Unix(0, 0))).Nodes)
	b.q.View = &fabricview.View{Tree: tree}
	b.q.Demand = func(pod *v1.Pod) (*placement.Demand, error) {
		r, err := podrequest.Parse(pod, &podrequest.Options{})
		return &placement.Demand{Request: r}, err
	}
	b.f.Budgets, b.f.Goes = eviction.NewBudgets(nil), func(pod *v1.Pod) bool { return pod.DeletionTimestamp != nil }
	return b
}

// pod adds a pod with this number of CPUs; on a node unless that is empty.
func (c *fullCluster) pod(node string, cpus int, priority int32) *v1.Pod {
	c.pods++
	name := fmt.Sprintf("pod-%02d", c.pods)
	pod := schedtest.Pod(name).Namespace("ns").CPU(strconv.Itoa(cpus)).Priority(priority).Node(node).Obj()
	if node != "" {
		c.infos[node].AddPod(pod)
		c.free[node] -= cpus
	}
	return pod
}

// arriving adds the gang that comes.
func (c *fullCluster) arriving(members, cpus int, wishes gangrequest.Wishes) {
	g := &gangrequest.Gang{Key: gangrequest.Key{Namespace: "ns", Name: "arriving"}, Minimum: members, Priority: 10, Wishes: wishes}
	for i := range members {
		g.Members.Live = append(g.Members.Live, c.pod("", cpus, 10))
		g.Members.Ranks = append(g.Members.Ranks, i)
	}
	c.q.Turn = &Turn{Gang: g, Pods: g.Members.Live}
}

// gang adds an existing gang. KeyOf must return its pods as members.
func (c *fullCluster) gang(priority int32, needed, surplus []string, cpus int) {
	o := Other{Key: gangrequest.Key{Namespace: "ns", Name: fmt.Sprintf("gang-%02d", len(c.f.Others))}, Priority: priority}
	put := func(nodes []string) (out []Located) {
		for _, node := range nodes {
			pod := c.pod(node, cpus, priority)
			pod.Annotations = map[string]string{gangrequest.GangKey: o.Key.Name, gangrequest.GangSizeKey: strconv.Itoa(len(needed))}
			out = append(out, Located{pod, node})
		}
		return out
	}
	o.Needed, o.Surplus = put(needed), put(surplus)
	c.f.Others = append(c.f.Others, o)
}

func names(pods []*v1.Pod) (out []string) {
	for _, pod := range pods {
		out = append(out, pod.Name)
	}
	slices.Sort(out)
	return out
}

// TestPreemptTerminating: preemption uses the devices of terminating pods.
func TestPreemptTerminating(t *testing.T) {
	t.Parallel()
	b := newFullCluster(t, 2, 2)
	for i, node := range []string{"node-0-0", "node-0-1", "node-1-0", "node-1-1"} {
		pod := b.pod(node, 4, 0)
		if i >= 2 {
			pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
	}
	b.arriving(2, 4, gangrequest.Wishes{})
	e, err := b.planner.Preempt(&b.q, &b.f)
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Victims) > 0 {
		t.Errorf("victims: %v", names(e.Victims))
	}
	if diff := cmp.Diff([]string{"pod-03", "pod-04"}, names(e.Awaited)); diff != "" {
		t.Errorf("who is waited for (-want,+got)\n%s", diff)
	}
}

// TestPreemptOverdue: a pod that should have ended long ago is not evicted once more.
func TestPreemptOverdue(t *testing.T) {
	t.Parallel()
	b := newFullCluster(t, 2)
	overdue := b.pod("node-0-0", 4, 0)
	overdue.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	b.pod("node-0-1", 4, 10)
	b.f.Goes = func(*v1.Pod) bool { return false }
	b.arriving(1, 4, gangrequest.Wishes{})
	if e, err := b.planner.Preempt(&b.q, &b.f); e != nil || err != nil {
		t.Errorf("victims %v, error %v; want nobody who could go", names(e.Victims), err)
	}
}

// TestPreemptBruteForce: preemption spares units that can stay. The victims are compared with all subsets
// of the units of small clusters: with them gone there is a plan as good as with all gone, no smaller set
// has one, and none of lower priority.
func TestPreemptBruteForce(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(16, 7))
	preempted, whole, most := 0, 0, 0
	for round := range 400 {
		b := randomBattlefield(t, rnd)
		if _, err := b.planner.Plan(&b.q); err == nil {
			continue // it has room
		}
		e, err := b.planner.Preempt(&b.q, &b.f)
		s := &search{p: b.planner, q: &b.q, cleared: map[string]*Cleared{}}
		s.collect(&b.f)
		if len(s.units.list) > 10 {
			continue
		}
		sets := s.enough()
		if e == nil {
			var room *fabric.UnplaceableError
			if len(sets) > 0 || err != nil && !errors.As(err, &room) {
				t.Fatalf("round %d: nobody goes (%v), but %d sets would do", round, err, len(sets))
			}
			continue
		}
		preempted++
		chosen := s.setOf(e.Victims)
		most = max(most, len(e.Victims))
		if !slices.Contains(sets, chosen) {
			t.Fatalf("round %d: without %v there is no plan as good as without all, or a gang goes in parts", round, names(e.Victims))
		}
		for _, other := range sets {
			if other != chosen && other&^chosen == 0 {
				t.Fatalf("round %d: %v go, but %v would do", round, names(e.Victims), s.names(other))
			}
			if s.priority(other) < s.priority(chosen) {
				t.Fatalf("round %d: %v go, but %v would do, which matter less", round, names(e.Victims), s.names(other))
			}
		}
		for i := range s.units.list {
			if chosen>>i&1 != 0 && s.units.list[i].Kind == eviction.Whole {
				whole++
			}
		}
	}
	t.Logf("%d times the victims are as few as can be, at most %d pods, %d gangs went whole", preempted, most, whole)
	if preempted < 100 || whole < 5 {
		t.Errorf("%d preemptions and %d gangs: too few to say anything", preempted, whole)
	}
}

func randomBattlefield(t *testing.T, rnd *rand.Rand) *fullCluster {
	t.Helper()
	b := newFullCluster(t, 1+rnd.IntN(2), 1+rnd.IntN(2), 1+rnd.IntN(2))
	nodes := make([]string, 0, len(b.q.Nodes))
	for _, info := range b.q.Nodes {
		nodes = append(nodes, info.Node().Name)
	}
	priorities := []int32{0, 0, 5, 20}
	for range 1 + rnd.IntN(2) {
		cpus := 1 + rnd.IntN(2)
		var members []string
		for range 1 + rnd.IntN(3) {
			if node := nodes[rnd.IntN(len(nodes))]; b.free[node] >= cpus*(1+count(members, node)) {
				members = append(members, node)
			}
		}
		if priority := priorities[rnd.IntN(3)]; len(members) > 0 {
			needed := 1 + rnd.IntN(len(members))
			b.gang(priority, members[:needed], members[needed:], cpus)
		}
	}
	for _, node := range nodes {
		for b.free[node] > 0 && rnd.IntN(8) > 0 {
			b.pod(node, 1+rnd.IntN(b.free[node]), priorities[rnd.IntN(len(priorities))])
		}
	}
	wishes := gangrequest.Wishes{}
	if rnd.IntN(2) == 0 {
		wishes.Required = "rack"
	}
	b.arriving(1+rnd.IntN(3), 2+2*rnd.IntN(2), wishes)
	return b
}

func count(names []string, name string) (n int) {
	for _, x := range names {
		if x == name {
			n++
		}
	}
	return n
}

// enough returns the sets of units that leave a plan as good as without all units, and no gang in parts.
func (s *search) enough() (sets []int) {
	all := 1<<len(s.units.list) - 1
	s.best = nil
	if _, ok := s.plan(s.flags(all)); !ok {
		return nil
	}
	for set := range all + 1 {
		whole := true
		for i := range s.units.list {
			needs := s.units.list[i].Needs
			whole = whole && (needs == eviction.NoUnit || set>>needs&1 == 0 || set>>i&1 != 0)
		}
		if !whole {
			continue
		}
		if _, ok := s.plan(s.flags(set)); ok {
			sets = append(sets, set)
		}
	}
	return sets
}

func (s *search) flags(set int) []bool {
	gone := make([]bool, len(s.units.list))
	for i := range gone {
		gone[i] = set>>i&1 != 0
	}
	return gone
}

func (s *search) setOf(pods []*v1.Pod) (set int) {
	for i := range s.units.what {
		if slices.ContainsFunc(s.units.what[i].members, func(l Located) bool { return slices.Contains(pods, l.Pod) }) {
			set |= 1 << i
		}
	}
	return set
}

func (s *search) names(set int) (out []string) {
	for i := range s.units.what {
		if set>>i&1 != 0 {
			for _, l := range s.units.what[i].members {
				out = append(out, l.Pod.Name)
			}
		}
	}
	return out
}

// priority returns the highest priority of a set.
func (s *search) priority(set int) int32 {
	highest := int32(-1)
	for i := range s.units.list {
		if set>>i&1 != 0 {
			highest = max(highest, s.units.list[i].Priority)
		}
	}
	return highest
}

// TestPreemptHigherMembers: no pod is evicted with its gang for a preemptor whose priority is not above
// its own. One or two gangs of a priority below the preemptor's are in the way.
func TestPreemptHigherMembers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		needed, surplus []int32 // the priorities of a gang's members, each on a node of its own
		wants           int     // nodes that the preemptor of priority 10 needs
		want            []string
	}{
		"all matter less, and the gang goes whole":           {needed: []int32{0, 9}, wants: 1, want: []string{"pod-01", "pod-02"}},
		"one that it needs matters more, and the gang stays": {needed: []int32{0, 20}, wants: 1},
		"one that it needs matters as much":                  {needed: []int32{0, 10}, wants: 1},
		"the last one above the minimum matters more, and no lower rank goes before it": {
			needed: []int32{0}, surplus: []int32{0, 20}, wants: 1,
		},
		"one above the minimum matters more, and the one behind it goes": {
			needed: []int32{0}, surplus: []int32{20, 0}, wants: 1, want: []string{"pod-03"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := slices.Concat(tc.needed, tc.surplus)
			b := newFullCluster(t, len(all))
			o := Other{Key: gangrequest.Key{Namespace: "ns", Name: "gang"}, Priority: slices.Min(all)}
			for i, priority := range all {
				pod := b.pod(fmt.Sprintf("node-0-%d", i), 4, priority)
				pod.Annotations = map[string]string{gangrequest.GangKey: o.Key.Name, gangrequest.GangSizeKey: strconv.Itoa(len(tc.needed))}
				at := Located{pod, pod.Spec.NodeName}
				if i < len(tc.needed) {
					o.Needed = append(o.Needed, at)
				} else {
					o.Surplus = append(o.Surplus, at)
				}
			}
			b.f.Others = []Other{o}
			b.arriving(tc.wants, 4, gangrequest.Wishes{})
			e, err := b.planner.Preempt(&b.q, &b.f)
			var got []string
			if e != nil {
				got = names(e.Victims)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("victims (-want,+got), %v\n%s", err, diff)
			}
		})
	}
}
