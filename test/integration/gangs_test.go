// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	gangProfile = "with-gangs"

	// Levels and labels of the fabric of these tests.
	spineLabel, rackLabel = "example.com/spine", "topology.kubernetes.io/rack"
	scenarioLabel         = "example.com/scenario"
)

// fabricOfGangs has the links of the requirement's sample cluster.
const fabricOfGangs = `{
  "apiVersion": "topology.nvtopo.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "default"},
  "spec": {
    "levels": [
      {"name": "spine", "nodeLabel": "example.com/spine", "bandwidthGBps": "50", "latencyMicros": "500"},
      {"name": "rack", "nodeLabel": "topology.kubernetes.io/rack", "bandwidthGBps": "100", "latencyMicros": "100"}
    ],
    "root": {"bandwidthGBps": "50", "latencyMicros": "500"}
  }
}`

// freeRacks are the free GPUs of the nodes of the racks, by spine. All nodes have eight.
type freeRacks [][][]int

// scenario is one state of nodes of its own, and a gang that comes to it.
type scenario struct {
	name    string
	machine string // dgx-h100 when empty
	free    freeRacks

	pods, gpus int
	notes      notes
	before     func(t *testing.T, l *testEnv, number int) // prepares the state, beside free
	change     func(*v1.Pod)
	after      func(t *testing.T, l *testEnv, number int)

	want      []string // the racks of the members, such as "rack-0"; nil: no member is bound
	reason    string   // if no member is bound
	quality   string
	ring      float64
	crossings int // of the ranks
}

func scenarios() []scenario {
	return []scenario{
		{
			name: "1 an empty cluster", free: freeRacks{{{8, 8, 8, 8}, {8, 8, 8, 8}}}, pods: 4, gpus: 8,
			want: []string{"rack-0", "rack-0", "rack-0", "rack-0"}, quality: "optimal (same rack)", ring: 1.46484375,
		},
		{
			name: "2 the rack with the least room that is enough", free: freeRacks{{{8, 8, 8, 8}, {8, 8, 0, 0}}}, pods: 2, gpus: 8,
			want: []string{"rack-1", "rack-1"}, quality: "optimal (same rack)",
		},
		{
			name: "3 no rack has room for all", free: freeRacks{{{8, 8, 8, 0}, {8, 8, 8, 0}}}, pods: 4, gpus: 8,
			want: []string{"rack-0", "rack-0", "rack-0", "rack-1"}, quality: "acceptable (adjacent racks)",
		},
		{
			name: "3 no rack has room for all, and one must have", free: freeRacks{{{8, 8, 8, 0}, {8, 8, 8, 0}}}, pods: 4, gpus: 8,
			notes: notes{gangrequest.RequiredKey: "rack"}, reason: "rack: 3 of 4",
		},
		{
			name: "4 spread", free: freeRacks{{{8, 8, 8, 8}, {8, 8, 8, 8}}}, pods: 4, gpus: 8,
			notes: notes{gangrequest.StrategyKey: "compute-heavy"},
			want:  []string{"rack-0", "rack-0", "rack-1", "rack-1"},
		},
		{
			name: "5 fewest nodes that are left whole", free: freeRacks{{{4, 4, 4, 4}, {8, 8, 0, 0}}}, pods: 4, gpus: 4,
			want: []string{"rack-1", "rack-1", "rack-1", "rack-1"},
		},
		{
			name: "6 two switches and not three", free: freeRacks{{{8, 8, 8, 8}, {8}, {8}}, {{8, 8, 8}, {8, 8, 8}}}, pods: 6, gpus: 8,
			want: []string{"rack-3", "rack-3", "rack-3", "rack-4", "rack-4", "rack-4"},
		},
		{
			name: "7 the tightest", free: freeRacks{{{8, 8, 8, 8}, {8, 8, 8}, {8, 8}}, {{8, 8, 8, 8}, {8}, {8}}}, pods: 5, gpus: 8,
			want: []string{"rack-3", "rack-3", "rack-3", "rack-3", "rack-4"},
		},
		{
			name: "8 the rack whose pairs are linked", free: freeRacks{{{8, 8}, {8, 8}}}, machine: "dgx1-v100", pods: 2, gpus: 2,
			before: takeUnlikePairs, want: []string{"rack-1", "rack-1"},
		},
		{
			name: "9 segments", free: freeRacks{{{8, 8, 8}, {8, 8, 8}, {8, 8}}, {{8, 8, 8, 8}, {8, 8}, {8, 8}}}, pods: 8, gpus: 8,
			notes: notes{gangrequest.SegmentSizeKey: "4", gangrequest.PreferredSegmentKey: "rack"},
			want:  []string{"rack-3", "rack-3", "rack-3", "rack-3", "rack-4", "rack-4", "rack-5", "rack-5"},
		},
		{
			name: "9 segments that must be whole", free: freeRacks{{{8, 8, 8}, {8, 8, 8}, {8, 8}}, {{8, 8, 8, 8}, {8, 8}, {8, 8}}}, pods: 8, gpus: 8,
			notes: notes{gangrequest.SegmentSizeKey: "4", gangrequest.RequiredSegmentKey: "rack"}, reason: " of 8",
		},
		{
			name: "10 ranks", free: freeRacks{{{8, 8, 8, 8, 8, 8, 8, 8}, {8, 8, 8, 8}}}, pods: 11, gpus: 8,
			want:    []string{"rack-0", "rack-0", "rack-0", "rack-0", "rack-0", "rack-0", "rack-0", "rack-1", "rack-1", "rack-1", "rack-1"},
			quality: "acceptable (adjacent racks)", crossings: 2,
		},
		{
			// Pod 10 is the third, after 1.
			name: "10 ranks in the order of names", free: freeRacks{{{8, 8, 8, 8, 8, 8, 8, 8}, {8, 8, 8, 8}}}, pods: 11, gpus: 8,
			notes:   notes{gangrequest.RankOrderKey: "name"},
			want:    []string{"rack-0", "rack-0", "rack-0", "rack-0", "rack-0", "rack-0", "rack-1", "rack-1", "rack-1", "rack-1", "rack-0"},
			quality: "acceptable (adjacent racks)", crossings: 2, after: wantTenthThird,
		},
		{
			name: "15 a host port that is taken", free: freeRacks{{{8, 8, 8, 8}, {8, 8, 8, 8}}}, pods: 4, gpus: 8,
			before: takePort, change: withPort, after: wantPortKept,
			want: []string{"rack-1", "rack-1", "rack-1", "rack-1"}, quality: "optimal (same rack)", ring: 1.46484375,
		},
	}
}

// takeUnlikePairs leaves two GPUs of each node free: those of the first rack are not joined by NVLink,
// those of the second by two.
func takeUnlikePairs(t *testing.T, l *testEnv, number int) {
	t.Helper()
	for rack, taken := range [][]int{{1, 2, 3, 4, 6, 7}, {1, 2, 4, 5, 6, 7}} {
		for i := range 2 {
			node := nodeOfRack(number, rack, i)
			name := "taker-" + node
			l.create(t, gpuPod(name, "nobody", len(taken)).Obj())
			l.bind(t, l.get(t, name), node, taken)
		}
	}
}

func portOwner(number int) string { return fmt.Sprintf("port-owner-%d", number) }

func takePort(t *testing.T, l *testEnv, number int) {
	t.Helper()
	l.create(t, gpuPod(portOwner(number), gangProfile, 0).With(withPort).NodeSelector(host(nodeOfRack(number, 0, 2))).Obj())
	l.bound(t, portOwner(number))
}

func wantPortKept(t *testing.T, l *testEnv, number int) {
	t.Helper()
	if pod := l.get(t, portOwner(number)); pod.DeletionTimestamp != nil {
		t.Errorf("pod %s is evicted", pod.Name)
	}
}

func wantTenthThird(t *testing.T, l *testEnv, number int) {
	t.Helper()
	if got := l.get(t, fmt.Sprintf("gang%d-10", number)).Annotations[gangrequest.RankKey]; got != "2" {
		t.Errorf("pod 10 has rank %q, want 2: it is the third", got)
	}
}

// TestGangs is the table of acceptance of gangs: states of nodes, gangs, and their places.
func TestGangs(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	all := scenarios()
	for i := range all {
		l.makeRacks(t, i, &all[i])
	}
	l.startScheduler(t, profile{name: gangProfile, write: "PreBind", plugins: []string{gangPlugin, topologyPlugin, numaPlugin}})
	for i := range all {
		t.Run(all[i].name, func(t *testing.T) { l.testScenario(t, i, &all[i]) })
	}
}

func (e *testEnv) makeFabric(t *testing.T) {
	t.Helper()
	dyn, err := dynamic.NewForConfig(e.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(fabricOfGangs)); err != nil {
		t.Fatal(err)
	}
	if _, err := dyn.Resource(v1alpha1.ClusterTopologyGVR).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func nodeOfRack(scenario, rack, i int) string {
	return fmt.Sprintf("s%d-node-%d-%d", scenario, rack, i)
}

// racksOf names the nodes of a scenario: rack by rack, numbered over all spines.
func racksOf(scenario int, free freeRacks) (nodes []devcluster.NodeSpec, gpus map[string]int) {
	gpus = map[string]int{}
	rack := 0
	for spine := range free {
		for _, rest := range free[spine] {
			for i, n := range rest {
				name := nodeOfRack(scenario, rack, i)
				gpus[name] = n
				nodes = append(nodes, devcluster.NodeSpec{Name: name, Labels: map[string]string{
					scenarioLabel: strconv.Itoa(scenario),
					spineLabel:    fmt.Sprintf("s%d-spine-%d", scenario, spine),
					rackLabel:     fmt.Sprintf("rack-%d", rack),
				}})
			}
			rack++
		}
	}
	return nodes, gpus
}

func (e *testEnv) makeRacks(t *testing.T, number int, s *scenario) {
	t.Helper()
	nodes, _ := racksOf(number, s.free)
	for i := range nodes {
		nodes[i].Machine = s.machine
		if s.machine == "" {
			nodes[i].Machine = "dgx-h100"
		}
		g, err := nodes[i].Graph()
		if err != nil {
			t.Fatal(err)
		}
		e.graphs[nodes[i].Name] = g
	}
	var g errgroup.Group
	g.SetLimit(8)
	for _, spec := range nodes {
		g.Go(func() error { _, err := e.AddNode(t.Context(), spec); return err })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	e.publish(t, devcluster.ExporterOptions{}, nodes...)
}

// fill takes the GPUs that are not free, by pods on each node.
func (e *testEnv) fill(t *testing.T, number int, s *scenario) {
	t.Helper()
	_, free := racksOf(number, s.free)
	var names []string
	for _, node := range slices.Sorted(maps.Keys(free)) {
		if taken := e.graphs[node].Len() - free[node]; taken > 0 {
			names = append(names, "taker-"+node)
			e.create(t, gpuPod("taker-"+node, gangProfile, taken).NodeSelector(host(node)).Obj())
		}
	}
	for _, name := range names {
		e.bound(t, name)
	}
}

// gangPods returns the members of a gang of a scenario, restricted to its nodes.
func gangPods(number int, name string, pods, gpus int, more notes) []*v1.Pod {
	out := make([]*v1.Pod, pods)
	for i := range out {
		out[i] = gpuPod(fmt.Sprintf("%s-%d", name, i), gangProfile, gpus).NodeSelector(ofScenario(number)).
			Annotation(gangrequest.GangKey, name).Annotation(gangrequest.GangSizeKey, strconv.Itoa(pods)).Annotations(more).Obj()
	}
	return out
}

// ofScenario returns a selector of the nodes of a scenario.
func ofScenario(number int) map[string]string {
	return map[string]string{scenarioLabel: strconv.Itoa(number)}
}

func (e *testEnv) testScenario(t *testing.T, number int, s *scenario) {
	t.Helper()
	e.fill(t, number, s)
	if s.before != nil {
		s.before(t, e, number)
	}
	name := fmt.Sprintf("gang%d", number)
	pods := gangPods(number, name, s.pods, s.gpus, s.notes)
	for _, pod := range pods {
		if s.ring != 0 { // the requirement's figure for 100 MB
			pod.Annotations[gangrequest.MessageSizeKey] = "100M"
		}
		if s.change != nil {
			s.change(pod)
		}
		e.create(t, pod)
	}
	if s.want == nil {
		t.Logf("expected: nothing bound, %q", s.reason)
		e.wantGangRefused(t, pods, s.reason)
		return
	}
	e.wantRacks(t, pods, s.want)
	if s.quality != "" {
		p := e.placementOf(t, pods[0].Name)
		t.Logf("expected %q, ring %v ms, %d crossings (0: whatever it is); got %q, ring %v ms, %d crossings",
			s.quality, s.ring, s.crossings, p.Quality, p.Estimate.Ring, p.Crossings)
		if p.Quality != s.quality {
			t.Errorf("quality %q, want %q", p.Quality, s.quality)
		}
		if s.ring != 0 && float64(p.Estimate.Ring) != s.ring {
			t.Errorf("ring %v ms, want %v", p.Estimate.Ring, s.ring)
		}
		if s.crossings != 0 && p.Crossings != s.crossings {
			t.Errorf("%d crossings, want %d", p.Crossings, s.crossings)
		}
	}
	if s.after != nil {
		s.after(t, e, number)
	}
}

// wantRacks waits until all pods are bound, and compares their racks.
func (e *testEnv) wantRacks(t *testing.T, pods []*v1.Pod, want []string) {
	t.Helper()
	var got []string
	for _, pod := range pods {
		_, place, _ := strings.Cut(e.bound(t, pod.Name).Spec.NodeName, "-node-")
		rack, _, _ := strings.Cut(place, "-")
		got = append(got, "rack-"+rack)
	}
	t.Logf("expected %v; got %v", want, got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("racks of the members (-want,+got)\n%s", diff)
	}
}

// wantGangRefused waits until every member has the reason, and checks that none is bound.
func (e *testEnv) wantGangRefused(t *testing.T, pods []*v1.Pod, reason string) {
	t.Helper()
	for _, pod := range pods {
		testkit.Eventually(t, waitLimit, "pod "+pod.Name+" says "+reason, func(context.Context) (bool, string) {
			got := e.get(t, pod.Name)
			if got.Spec.NodeName != "" {
				t.Fatalf("pod %s is bound to %s", pod.Name, got.Spec.NodeName)
			}
			for _, c := range got.Status.Conditions {
				if c.Type == v1.PodScheduled && c.Reason == v1.PodReasonUnschedulable && strings.Contains(c.Message, reason) {
					return true, ""
				}
			}
			return false, fmt.Sprintf("%+v", got.Status.Conditions)
		})
	}
}

// placementOf waits until the first member of a gang without a PodGroup has the gang's placement.
func (e *testEnv) placementOf(t *testing.T, name string) *gangrequest.Placement {
	t.Helper()
	var p *gangrequest.Placement
	testkit.Eventually(t, waitLimit, "pod "+name+" has the gang's placement", func(context.Context) (bool, string) {
		var err error
		p, err = gangrequest.ParsePlacement(e.get(t, name).Annotations[gangrequest.PlacementKey])
		return err == nil, fmt.Sprint(err)
	})
	return p
}
