// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

const (
	gpu      = v1alpha1.DefaultResource
	testNode = "n1"
)

// stateOf returns a State with one node of a machine.
func stateOf(t *testing.T, name string) (*nodestate.State, *nvtopo.Graph) {
	t.Helper()
	m, err := machine.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.GraphFor(testNode)
	if err != nil {
		t.Fatal(err)
	}
	s := nodestate.New(nodestate.Config{Namespace: "nvtopo-system", Weights: nvtopo.DefaultWeights()}, clock.RealClock{})
	obj := v1alpha1.FromGraph(testNode, gpu, g)
	obj.UID, obj.ResourceVersion, obj.Spec.NodeUID = "topology", "1", "node"
	if _, err := s.Graphs.Apply(obj); err != nil {
		t.Fatal(err)
	}
	return s, g
}

// allocated parses "container=0,1 init:container=2": the containers' GPUs by position, in that order.
func allocated(g *nvtopo.Graph, what string) *allocation.Allocation {
	a := &allocation.Allocation{Version: 1, Node: testNode, PodUID: "pod", Assumed: time.Unix(1, 0).UTC(), Enforced: true}
	for part := range strings.FieldsSeq(what) {
		part, init := strings.CutPrefix(part, "init:")
		name, list, _ := strings.Cut(part, "=")
		c := allocation.Container{Name: name, Resource: gpu, Init: init, GPUs: ids(g, list)}
		set, _ := g.Positions(c.GPUs)
		c.NUMANodes = g.NUMAOf(set)
		a.Containers = append(a.Containers, c)
	}
	a.NUMANodes = numaNodes(a.Containers)
	return a
}

func ids(g *nvtopo.Graph, positions string) []string {
	var out []string
	for p := range strings.SplitSeq(positions, ",") {
		var i int
		if _, err := fmt.Sscan(p, &i); err != nil || i >= g.Len() {
			out = append(out, p)
			continue
		}
		out = append(out, g.GPUs[i].UUID)
	}
	return out
}

// recorded returns kubelet's record, in the same notation, with "@cpus" if a container is confined.
func recorded(g *nvtopo.Graph, what string) []v1alpha1.Allocation {
	var out []v1alpha1.Allocation
	for part := range strings.FieldsSeq(what) {
		part, cpus, _ := strings.Cut(part, "@")
		name, list, _ := strings.Cut(part, "=")
		out = append(out, v1alpha1.Allocation{
			PodUID: "pod", Namespace: "ns", Pod: "pod", Container: name, Resource: gpu, GPUs: slices.Sorted(slices.Values(ids(g, list))),
			CPUs: cpus, State: v1alpha1.StateReassigned,
		})
	}
	return out
}

// inWords is the inverse of allocated, with the cpuset at the end.
func inWords(g *nvtopo.Graph, a *allocation.Allocation) string {
	if a == nil {
		return "nothing"
	}
	var parts []string
	for _, c := range a.Containers {
		var ps []string
		for _, id := range c.GPUs {
			ps = append(ps, strconv.Itoa(slices.IndexFunc(g.GPUs, func(d nvtopo.GPU) bool { return d.UUID == id })))
		}
		w := c.Name + "=" + strings.Join(ps, ",")
		if c.Init {
			w = "init:" + w
		}
		parts = append(parts, w)
	}
	if a.CPUSet != "" {
		parts = append(parts, "cpus "+a.CPUSet)
	}
	return strings.Join(parts, " ")
}

func TestActual(t *testing.T) {
	// dgx1-v100: GPUs 0-3 on NUMA node 0, 4-7 on 1; two links join 0-3, 0-4, 1-2, 1-5 …
	s, g := stateOf(t, "dgx1-v100")
	n := s.Nodes.Node(testNode)
	for name, tc := range map[string]struct {
		chosen, recorded string
		elsewhere        bool // chosen for another node
		cpuset           string
		want             string
		wantNUMA         []int
		wantErr          string
	}{
		"the same":                          {chosen: "m=0,3", recorded: "m=3,0", want: "nothing"},
		"other GPUs":                        {chosen: "m=0,3", recorded: "m=4,7", want: "m=4,7", wantNUMA: []int{1}},
		"in ring order":                     {chosen: "m=0,1,2,3", recorded: "m=0,3,4,7", want: "m=0,3,7,4", wantNUMA: []int{0, 1}},
		"a container without a record":      {chosen: "a=0 b=1", recorded: "a=1", want: "nothing"},
		"two containers swapped":            {chosen: "a=0 b=1", recorded: "a=1 b=0", want: "a=1 b=0", wantNUMA: []int{0}},
		"an init container with its pod's":  {chosen: "init:i=0 m=0,3", recorded: "i=3 m=0,3", want: "nothing"},
		"an init container with another's":  {chosen: "init:i=0 m=0,3", recorded: "i=5 m=0,3", want: "init:i=5 m=0,3", wantNUMA: []int{0, 1}},
		"an init container stays as it was": {chosen: "init:i=0,1 m=0", recorded: "i=0,1 m=1", want: "init:i=0,1 m=1", wantNUMA: []int{0}},
		"an init container whose pod got others": {
			chosen: "init:i=0,2 m=0,1,2,3", recorded: "i=2,3 m=2,3,4,7", want: "init:i=2,3 m=2,3,7,4", wantNUMA: []int{0, 1},
		},
		"an init container that was left behind": {chosen: "init:i=0,2 m=2,3", recorded: "i=2,3 m=2,3", want: "init:i=2,3 m=2,3", wantNUMA: []int{0}},
		"a container nobody chose for":           {chosen: "m=0", recorded: "m=0 other=1", want: "nothing"},
		"fewer than chosen":                      {chosen: "m=0,3", recorded: "m=0", want: "m=0", wantNUMA: []int{0}},
		"a GPU the node does not have":           {chosen: "m=0", recorded: "m=GPU-x", wantErr: "no GPU GPU-x"},
		"cpuset beside the GPUs stays":           {chosen: "m=0", cpuset: "0-1", recorded: "m=1", want: "m=1 cpus 0-1", wantNUMA: []int{0}},
		"cpuset far from the GPUs goes":          {chosen: "m=0", cpuset: "0-1", recorded: "m=4", want: "m=4", wantNUMA: []int{1}},
		"confined to other CPUs":                 {chosen: "m=0", cpuset: "0-1", recorded: "m=0@2-3", want: "m=0 cpus 2-3", wantNUMA: []int{0}},
		"confined to the same CPUs":              {chosen: "m=0", cpuset: "0-1", recorded: "m=0@0,1", want: "nothing"},
		"confined, each container":               {chosen: "a=0 b=1", recorded: "a=0@2-3 b=1@4", want: "a=0 b=1 cpus 2-4", wantNUMA: []int{0}},
		"confined, one container of two":         {chosen: "a=0 b=1", cpuset: "0-1", recorded: "a=0@2-3 b=1", want: "nothing"},
		"confined, but for init containers":      {chosen: "init:i=0 m=0", recorded: "i=0 m=0@2-3", want: "init:i=0 m=0 cpus 2-3", wantNUMA: []int{0}},
		"CPUs that nobody can read":              {chosen: "m=0", recorded: "m=0@x", wantErr: "cpus of container m"},
		"chosen for another node":                {chosen: "m=GPU-x,GPU-y", elsewhere: true, cpuset: "0-1", recorded: "m=0,3", want: "m=0,3", wantNUMA: []int{0}},
		"chosen for a node with equal names":     {chosen: "m=0,3", elsewhere: true, cpuset: "0-1", recorded: "m=0,3", want: "m=0,3", wantNUMA: []int{0}},
		"for another node, not recorded yet":     {chosen: "a=GPU-x b=GPU-y", elsewhere: true, recorded: "a=0", want: "nothing"},
		"other GPUs and confined beside them":    {chosen: "m=0", cpuset: "0-1", recorded: "m=4@20-23", want: "m=4 cpus 20-23", wantNUMA: []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			old := allocated(g, tc.chosen)
			old.CPUSet = tc.cpuset
			if tc.elsewhere {
				old.Node, old.Enforced = "another", false
			}
			before := inWords(g, old)
			got, err := actual(old, n, recorded(g, tc.recorded))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if w := inWords(g, got); w != tc.want {
				t.Errorf("corrected to %s, want %s", w, tc.want)
			}
			if after := inWords(g, old); after != before {
				t.Errorf("the old allocation became %s from %s", after, before)
			}
			if got == nil {
				return
			}
			if diff := cmp.Diff(tc.wantNUMA, got.NUMANodes); diff != "" {
				t.Errorf("NUMA nodes (-want,+got):\n%s", diff)
			}
			if !got.Assumed.Equal(old.Assumed) || got.PodUID != old.PodUID || !got.Enforced || got.Node != testNode {
				t.Errorf("it is another choice: %+v", got)
			}
		})
	}
}

// TestActualRandom corrects random choices to random records: the
// result has the recorded sets in the order of a best ring, correcting it again
// changes nothing, and it survives its own codec.
func TestActualRandom(t *testing.T) {
	for _, machineName := range []string{"dgx1-v100", "a100-pcie-4-bridged", "l40s-8", "dgx2"} {
		s, g := stateOf(t, machineName)
		n, o := s.Nodes.Node(testNode), oracle.New(g)
		corrected := 0
		for seed := range uint64(300) {
			rng := rand.New(rand.NewPCG(seed, 1))
			deal := func() []int { return rng.Perm(g.Len()) }
			sizes := []int{1 + rng.IntN(2), 1 + rng.IntN(2)}
			words := func(order []int) string {
				var b strings.Builder
				for c, k := range sizes {
					fmt.Fprintf(&b, " c%d=%s", c, strings.Trim(strings.ReplaceAll(fmt.Sprint(order[:k]), " ", ","), "[]"))
					order = order[k:]
				}
				return b.String()
			}
			old, records := allocated(g, words(deal())), recorded(g, words(deal()))
			got, err := actual(old, n, records)
			if err != nil {
				t.Fatal(err)
			}
			if got == nil {
				got = old
			} else {
				corrected++
			}
			for i, c := range got.Containers {
				if !slices.Equal(slices.Sorted(slices.Values(c.GPUs)), records[i].GPUs) {
					t.Fatalf("%s, seed %d: container %s has %v, recorded %v", machineName, seed, c.Name, c.GPUs, records[i].GPUs)
				}
				set, _ := g.Positions(c.GPUs)
				order := make([]int, len(c.GPUs))
				for j, id := range c.GPUs {
					order[j] = slices.IndexFunc(g.GPUs, func(d nvtopo.GPU) bool { return d.UUID == id })
				}
				if _, best := o.Ring(set); got != old && len(order) > 1 && oracle.Bottleneck(g, order).Bandwidth != best {
					t.Fatalf("%s, seed %d: ring %v is not the best of its GPUs", machineName, seed, order)
				}
			}
			if again, err := actual(got, n, records); err != nil || again != nil {
				t.Fatalf("%s, seed %d: corrected twice: %s, %v", machineName, seed, inWords(g, again), err)
			}
			text, err := got.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if back, err := allocation.Parse(text); err != nil || !back.Equal(got) {
				t.Fatalf("%s, seed %d: %s is read as %+v, %v", machineName, seed, text, back, err)
			}
		}
		if corrected < 200 {
			t.Errorf("%s: only %d choices were corrected", machineName, corrected)
		}
	}
}

func TestUnmet(t *testing.T) {
	s, g := stateOf(t, "dgx1-v100")
	n := s.Nodes.Node(testNode)
	for name, tc := range map[string]struct {
		annotations map[string]string
		gpus        string
		want        string
	}{
		"no demand":               {nil, "m=0,7", ""},
		"links that are there":    {map[string]string{podrequest.MinLinkKey: "NV2"}, "m=0,3", ""},
		"links that are not":      {map[string]string{podrequest.MinLinkKey: "NV2"}, "m=0,7", "link class"},
		"bandwidth that is not":   {map[string]string{podrequest.MinBandwidthKey: "50"}, "m=0,7", "ring bandwidth"},
		"one NUMA node":           {map[string]string{podrequest.TopologyPolicyKey: "single-numa-node"}, "m=0,3", ""},
		"two NUMA nodes":          {map[string]string{podrequest.TopologyPolicyKey: "single-numa-node"}, "m=0,4", "NUMA policy"},
		"more than restricted":    {map[string]string{podrequest.TopologyPolicyKey: "restricted"}, "m=0,4", "NUMA policy"},
		"another model":           {map[string]string{podrequest.GPUModelKey: "H100"}, "m=0,3", "gpu-model or min-gpu-memory"},
		"demands nobody can read": {map[string]string{podrequest.MinLinkKey: "fast"}, "m=0,7", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testobj.Pod("p").Annotations(tc.annotations).Containers(testobj.Container("m", 2)).Obj()
			if got := unmet(pod, allocated(g, tc.gpus), n); got != tc.want {
				t.Errorf("unmet %q, want %q", got, tc.want)
			}
		})
	}
}
