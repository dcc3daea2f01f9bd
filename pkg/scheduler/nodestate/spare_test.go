// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// fabricOf makes the fabric that of nodes in racks behind spines, by path.
func (s *cachedState) fabricOf(paths map[string][]string, levels ...string) {
	s.tb.Helper()
	spec := fabric.Spec{}
	for _, level := range levels {
		spec.Levels = append(spec.Levels, fabric.Level{Name: level})
	}
	for node, path := range paths {
		spec.Nodes = append(spec.Nodes, fabric.NodePath{Node: node, Path: path})
	}
	tree, _, err := fabric.NewTree(&spec)
	s.must(err)
	s.PreSelector.fabric.Set(tree, nil)
}

// wire puts the nodes into racks at random, or into none. Some have no label, some are not in the tree
// yet.
func (s *cachedState) wire(r *rand.Rand) {
	s.tb.Helper()
	levels := []string{"spine", "rack"}[r.IntN(2):]
	if r.IntN(6) == 0 {
		levels = nil
	}
	paths := map[string][]string{}
	for _, node := range slices.Sorted(maps.Keys(s.nodes)) {
		path := []string{fmt.Sprint("s", r.IntN(2)), fmt.Sprint("r", r.IntN(3))}[2-len(levels):]
		switch r.IntN(12) {
		case 0:
			continue
		case 1:
			path = nil
		}
		paths[node] = path
	}
	s.fabricOf(paths, levels...)
}

// around counts nodes one by one: in the leaf of a node those that are whole once gangs end and those
// that are whole, and those that are whole in its spine.
func (s *cachedState) around(resource, node string) (out [3]int) {
	tree := s.PreSelector.fabric.Current().Tree
	together := func(depth int, other string) bool {
		a, knownA := tree.Node(node)
		b, knownB := tree.Node(other)
		return node == other || knownA && knownB && tree.DomainOf(depth, a) == tree.DomainOf(depth, b)
	}
	for _, info := range s.list() {
		x := s.Nodes.cells.ensure(info.Node().Name)
		n := x.entry.Node()
		if n == nil || n.NodeUID != info.Node().UID {
			continue
		}
		u := s.Nodes.usage(x, n, info, s.snapshot.NodeInfos())
		for ai, a := range n.Accels {
			full := nvtopo.FullMask(a.Graph.Len())
			if a.Resource != resource || a.Healthy != full || a.Degraded != 0 {
				continue
			}
			whole := u.FreeAt(ai) == full && u.Counted[ai] == 0 && !u.Foreign[ai]
			if together(tree.Depth(), x.name) {
				out[0] += count(!s.hasSingles(x.name, resource))
				out[1] += count(whole)
			}
			if together(tree.Depth()-1, x.name) {
				out[2] += count(whole)
			}
		}
	}
	return out
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// hasSingles reports whether a pod on the node that is in no gang requests the resource.
func (s *cachedState) hasSingles(node, resource string) bool {
	info, err := s.snapshot.NodeInfos().Get(node)
	s.must(err)
	return slices.ContainsFunc(info.GetPods(), func(p fwk.PodInfo) bool {
		pod := p.GetPod()
		asks := func(c v1.Container) bool {
			n := c.Resources.Limits[v1.ResourceName(resource)]
			return n.Value() > 0
		}
		return pod.Annotations[gangrequest.GangKey] == "" && slices.ContainsFunc(pod.Spec.Containers, asks)
	})
}

// leastSpare leaves of equal nodes those with the least around them.
func (s *cachedState) leastSpare(request *podrequest.Request, names sets.Set[string]) sets.Set[string] {
	if s.PreSelector.fabric.Current().Tree.Depth() == 0 {
		return names
	}
	out, least := sets.Set[string]{}, [3]int{1 << 30}
	for name := range names {
		here := s.around(request.Resources[0].Name, name)
		switch slices.Compare(here[:], least[:]) {
		case -1:
			out, least = sets.New(name), here
		case 0:
			out.Insert(name)
		}
	}
	if len(out) < len(names) {
		s.spared++
	}
	return out
}

// TestLeafFilling: single pods fill a leaf that is begun. There are two racks of four empty nodes behind
// each of two spines. Whole nodes are used from one rack until it is full, then from the spine that is
// begun.
func TestLeafFilling(t *testing.T) {
	s := newCachedState(t)
	paths := map[string][]string{}
	for i := range 16 {
		name := fmt.Sprintf("n%02d", i)
		s.add(name, "a100-pcie-4-bridged")
		paths[name] = []string{fmt.Sprint("spine", i/8), fmt.Sprint("rack", i/4)}
	}
	s.fabricOf(paths, "spine", "rack")
	var racks []string
	for i := range 16 {
		pod := schedtest.Pod(fmt.Sprint("p", i)).GPUs(4).Obj()
		listed := sets.List(s.candidates(pod, narrowing()))
		if len(listed) == 0 {
			t.Fatalf("pod %d has no list", i)
		}
		taken := listed[0]
		s.assume(pod, taken)
		s.confirm(pod.Name)
		racks = append(racks, fmt.Sprint(paths[taken]))
	}
	if n := len(slices.Compact(slices.Clone(racks))); n != 4 {
		t.Errorf("racks were begun %d times, want each once: %v", n, racks)
	}
	if racks[0][:7] != racks[7][:7] {
		t.Errorf("the second rack is behind another spine than the first: %v", racks)
	}
}

// TestListLeafWidth: a list is no wider than the leaf. Nodes of other leaves differ only in the spare
// capacity of their leaves, and other plugins must not choose among them, unless they may choose among
// worse ones, too.
func TestListLeafWidth(t *testing.T) {
	s := newCachedState(t)
	paths := map[string][]string{}
	for i := range 6 {
		name := fmt.Sprint("n", i)
		s.add(name, "dgx-h100")
		paths[name] = []string{"large"}
		if i >= 4 {
			paths[name] = []string{"small"}
		}
	}
	s.fabricOf(paths, "rack")
	how := narrowing()
	if got := sets.List(s.candidates(schedtest.Pod("one").GPUs(1).Obj(), how)); !slices.Equal(got, []string{"n4", "n5"}) {
		t.Errorf("listed %v, want the nodes of the smaller rack", got)
	}
	// Rated node by node, since the CPUs are to be beside the GPU.
	pod := schedtest.Pod("aligned").GPUs(1).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").CPU("4").Memory("1Gi").Obj()
	if got := sets.List(s.candidates(pod, how)); !slices.Equal(got, []string{"n4", "n5"}) {
		t.Errorf("node by node are listed %v, want the nodes of the smaller rack", got)
	}
	how.Tolerance, how.Limit = 1, 3
	if got := s.candidates(schedtest.Pod("one").GPUs(1).Obj(), how); len(got) != 3 || !got.HasAll("n4", "n5") {
		t.Errorf("with a tolerance are listed %v, want three with those of the smaller rack", sets.List(got))
	}
	for _, name := range []string{"n4", "n5"} {
		cordoned := s.nodes[name].DeepCopy()
		cordoned.Spec.Unschedulable = true
		s.cache.UpdateNode(s.logger, s.nodes[name], cordoned)
		s.Changes.touchNode(name)
	}
	if got := sets.List(s.candidates(schedtest.Pod("one").GPUs(1).Obj(), narrowing())); !slices.Equal(got,
		[]string{"n0", "n1", "n2", "n3"}) {
		t.Errorf("listed %v with the smaller rack cordoned, want the nodes of the larger one", got)
	}
}

// TestGangAvoidance: single pods stay away from gangs. In one rack a gang's member uses GPUs, and in
// another a single pod does. Both have as many whole nodes, but the first has one more once the gang
// ends.
func TestGangAvoidance(t *testing.T) {
	s := newCachedState(t)
	paths := map[string][]string{}
	for i := range 8 {
		name := fmt.Sprint("n", i)
		s.add(name, "a100-pcie-4-bridged")
		paths[name] = []string{fmt.Sprint("spine", i/4), fmt.Sprint("rack", i/4)}
	}
	s.fabricOf(paths, "spine", "rack")
	member := schedtest.Pod("member").GPUs(4).Annotation(gangrequest.GangKey, "train").Annotation(gangrequest.GangSizeKey, "2").Obj()
	s.must(s.cache.AddPod(s.logger, on(t, s.State, member, "n0", 0, 1, 2, 3)))
	s.must(s.cache.AddPod(s.logger, on(t, s.State, schedtest.Pod("single").GPUs(4).Obj(), "n4", 0, 1, 2, 3)))
	s.must(s.cache.AddPod(s.logger, on(t, s.State, schedtest.Pod("without").Obj(), "n1")))
	if got := sets.List(s.candidates(schedtest.Pod("next").GPUs(4).Obj(), narrowing())); !slices.Equal(got, []string{"n5", "n6", "n7"}) {
		t.Errorf("listed %v, want the nodes of the rack with the single pod", got)
	}
	if got, want := unpacked(s.PreSelector.Spares(testResource, s.list())["n1"]), [3]int{4, 3, 3}; got != want {
		t.Errorf("the rack with the gang has %v to spare, want %v", got, want)
	}
}

// unpacked are the numbers of a Spare: nodes of the leaf that are whole once gangs end, those that
// are whole, and whole ones of the spine.
func unpacked(s nodeindex.Spare) [3]int {
	return [3]int{int(s >> 26), int(s >> 13 & 0x1fff), int(s & 0x1fff)}
}

// TestSpareCount: the spare count is known for every node, listed or not; it is 0 if the fabric is not
// known.
func TestSpareCount(t *testing.T) {
	s := newCachedState(t)
	for i := range 4 {
		s.add(fmt.Sprint("n", i), "dgx-h100")
	}
	s.candidates(schedtest.Pod("any").GPUs(1).Obj(), narrowing())
	if got := s.PreSelector.Spares(testResource, s.list()); got != nil {
		t.Errorf("spares are %v where there is no fabric, want none", got)
	}
	s.fabricOf(map[string][]string{"n0": {"a", "x"}, "n1": {"a", "x"}, "n2": {"a", "y"}}, "spine", "rack")
	s.must(s.cache.AddPod(s.logger, on(t, s.State, schedtest.Pod("held").GPUs(1).Obj(), "n1", 3)))
	s.candidates(schedtest.Pod("any").GPUs(1).Obj(), narrowing())
	spares := s.PreSelector.Spares(testResource, s.list())
	for node, want := range map[string][3]int{"n0": {1, 1, 2}, "n1": {1, 1, 2}, "n2": {1, 1, 2}, "n3": {1, 1, 1}} {
		if got := unpacked(spares[node]); got != want {
			t.Errorf("spare of %s is %v, want %v", node, got, want)
		}
	}
	if got := s.PreSelector.Spares("example.com/other", s.list()); got != nil {
		t.Errorf("spares of a resource that nobody has are %v", got)
	}
}
