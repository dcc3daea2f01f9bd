// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"

	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// TestAdviceHelps: the advice that is given helps: in random towns, once the pods that are named
// have gone, placement takes the pod, with the set that was said; and where it is said to be exact,
// no fewer do.
func TestAdviceHelps(t *testing.T) {
	random := rand.New(rand.NewPCG(18, 29))
	said := 0
	for round := range 150 {
		w, p := randomTown(t, random)
		e, err := Pod(w.World, "team", p.Name)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range e.Candidates {
			if len(c.Blockers) == 0 {
				continue
			}
			said++
			var gone []string
			for _, b := range c.Blockers {
				gone = append(gone, b.Pod)
			}
			if reason, set := w.place(t, p, c.Node, gone); reason != "" || set != c.Gets.String() {
				t.Fatalf("round %d: node %s without %q: %q and %s, said was %s", round, c.Node, gone, reason, set, c.Gets)
			}
			if !c.Exact {
				continue
			}
			w.fewerSets(c.Node, len(gone)-1, func(fewer []string) {
				if reason, _ := w.place(t, p, c.Node, fewer); reason == "" {
					t.Errorf("round %d: node %s takes the pod without %q, said was %q", round, c.Node, fewer, gone)
				}
			})
		}
		for _, r := range e.Relaxations {
			if r.Nodes == 0 || r.Node == "" {
				t.Errorf("round %d: the relaxation %+v helps on no node", round, r)
			}
		}
	}
	if said < 100 {
		t.Errorf("only %d times pods were named that are in the way", said)
	}
}

// randomTown has three machines with random pods, and one that asks for something.
func randomTown(t *testing.T, random *rand.Rand) (*testEnv, *v1.Pod) {
	t.Helper()
	w := newTestEnv()
	kinds := []string{cube, hopper, "a100-pcie-4-bridged"}
	for i := range 3 {
		name := fmt.Sprint("n", i)
		w.node(t, name, kinds[random.IntN(len(kinds))], nil)
		if random.IntN(3) == 0 {
			w.topology(name).Status.Kubelet = &topologyv1alpha1.Kubelet{TopologyManagerPolicy: "restricted", Scope: "pod"}
		}
		free := random.Perm(w.graphs[name].Len())
		for n := 0; len(free) > random.IntN(3); n++ {
			k := 1 + random.IntN(min(len(free), 4))
			w.holds(t, fmt.Sprintf("%s-%d", name, n), name, free[:k]...)
			free = free[k:]
		}
	}
	wishes := []map[string]string{
		nil, {podrequest.MinLinkKey: "NVLINK"}, {podrequest.TopologyPolicyKey: "single-numa-node"}, {podrequest.TopologyPolicyKey: "restricted"}, {podrequest.NUMAAffinityKey: "required"},
	}
	return w, w.waits(pod("asks", 1+random.IntN(8)).CPU(strconv.Itoa(1 + random.IntN(20))).Memory("8Gi").Annotations(wishes[random.IntN(len(wishes))]).Obj())
}

// place asks placement itself, on a cluster that never had the pods that are gone: the reason, or
// the set.
func (e *testEnv) place(t *testing.T, p *v1.Pod, name string, gone []string) (reason, set string) {
	t.Helper()
	var here usage.LivePods
	for i := range e.Pods {
		if q := &e.Pods[i]; q.Spec.NodeName == name && !slices.Contains(gone, q.Namespace+"/"+q.Name) {
			here = append(here, usage.NewLivePod(q))
		}
	}
	options := e.Profiles[0].Options
	r, err := podrequest.Parse(p, &options)
	if err != nil {
		t.Fatal(err)
	}
	allocatable := usage.AmountsOf(e.object(name).Status.Allocatable)
	room := placement.NewRoom(&allocatable, allocatable.Pods())
	for i := range here {
		room.TakeAll(here[i].Amounts(), 1)
	}
	if room.Holds(r) == 0 {
		return "no room", ""
	}
	n := newScene(e.World).byName[name]
	u := usage.Compute(&usage.Input{Node: n.graph, Now: e.Now, Pods: here, Reader: usage.AnnotationReader{}})
	a, why := placement.Choose(u, r, false)
	if why != placement.Fits {
		return why.String(), ""
	}
	return "", n.describe(a, gpu).String()
}

// fewerSets calls fn with every set of so many pods of a node.
func (e *testEnv) fewerSets(node string, size int, fn func([]string)) {
	var names []string
	for i := range e.Pods {
		if e.Pods[i].Spec.NodeName == node {
			names = append(names, e.Pods[i].Namespace+"/"+e.Pods[i].Name)
		}
	}
	for m := range nvtopo.Mask(1) << len(names) {
		if m.Len() == size {
			var set []string
			for i := range m.All() {
				set = append(set, names[i])
			}
			fn(set)
		}
	}
}
