// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	// unequalVariable names how many nodes of each kind TestUnequalMachines has; 250 of four kinds are
	// the cluster of the field report.
	unequalVariable = "NVTOPO_UNEQUAL_NODES"
	// unequalInShort is what make test-all has the time for.
	unequalInShort = 8
	// unequalLoad is the share of GPUs that single pods take, and unequalGangs the gangs after them.
	unequalLoad  = 0.69
	unequalGangs = 12
	// fastLink is what a pair has at least on a machine whose links are worth something, in kB/s.
	fastLink = 100_000_000
)

// unequalKinds are the machines, as many of each.
var unequalKinds = []string{"hgx-h200", "dgx-a100", "l40s-8", "dgx1-v100"}

// unequal is a cluster of several kinds of machine and what is free there.
type unequal struct {
	*testEnv
	kind map[string]string      // of a node
	fast map[string]bool        // its links are fast
	free map[string]nvtopo.Mask // by node
}

// TestUnequalMachines: single GPUs leave fast links alone while there are slow ones, and a gang is on
// one kind.
func TestUnequalMachines(t *testing.T) {
	x := &unequal{testEnv: newTestEnv(t, devcluster.Config{}), kind: map[string]string{}, fast: map[string]bool{}, free: map[string]nvtopo.Mask{}}
	x.install(t)
	x.makeUnequalNodes(t, numberOf(t, unequalVariable, unequalInShort))
	x.startScheduler(t, profile{
		name: gangProfile, write: "Binding", plugins: []string{gangPlugin, topologyPlugin, numaPlugin}, binders: []string{topologyPlugin, "DefaultBinder"},
	})
	x.testSinglePods(t)
	x.testGangKinds(t)
}

func (x *unequal) makeUnequalNodes(t *testing.T, each int) {
	t.Helper()
	var specs []devcluster.NodeSpec
	for i := range each * len(unequalKinds) {
		specs = append(specs, devcluster.NodeSpec{Name: fmt.Sprintf("node-%04d", i), Machine: unequalKinds[i%len(unequalKinds)]})
	}
	fast := map[string]bool{}
	for i, s := range specs {
		g, err := s.Graph()
		if err != nil {
			t.Fatal(err)
		}
		if i < len(unequalKinds) {
			fast[s.Machine] = nvtopo.NewTables(g, nvtopo.DefaultWeights()).Best(2) >= fastLink
		}
		x.graphs[s.Name], x.kind[s.Name], x.fast[s.Name], x.free[s.Name] = g, s.Machine, fast[s.Machine], nvtopo.FullMask(g.Len())
	}
	var g errgroup.Group
	g.SetLimit(8)
	for _, spec := range specs {
		g.Go(func() error { _, err := x.AddNode(t.Context(), spec); return err })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	x.publish(t, devcluster.ExporterOptions{}, specs...)
}

// take waits until a pod is bound, takes its GPUs, and returns its node.
func (x *unequal) take(t *testing.T, name string) (node string) {
	t.Helper()
	pod := x.bound(t, name)
	node = pod.Spec.NodeName
	set := choiceOf(t, pod, x.graphs[node]).set
	if set&^x.free[node] != 0 {
		t.Fatalf("pod %s has %v of %s, where %v are free", name, set, node, x.free[node])
	}
	x.free[node] &^= set
	return node
}

// testSinglePods makes pods one after the other, two of five with one GPU. None of these may break a
// free group of two or more with fast links while a slower machine has a free GPU. All machines have
// as many GPUs, so no larger pod needs one.
func (x *unequal) testSinglePods(t *testing.T) {
	t.Helper()
	r := rand.New(rand.NewPCG(31, 1))
	sizes := []int{1, 1, 1, 1, 2, 2, 4, 4, 8, 8}
	used, all, pods, singles, onFast, broken := 0, 8*len(x.free), 0, 0, 0, 0
	for float64(used) < unequalLoad*float64(all) {
		gpus := sizes[r.IntN(len(sizes))]
		name := fmt.Sprintf("single-%d", pods)
		slow := 0
		for node, free := range x.free {
			if !x.fast[node] {
				slow += free.Len()
			}
		}
		before := make(map[string]int, len(x.free))
		for node, free := range x.free {
			before[node] = free.Len()
		}
		x.create(t, gpuPod(name, gangProfile, gpus).Obj())
		node := x.take(t, name)
		pods++
		used += gpus
		if gpus > 1 {
			continue
		}
		singles++
		if !x.fast[node] {
			continue
		}
		onFast++
		breaks := false
		for _, k := range []int{2, 4, 8} {
			breaks = breaks || (before[node]-1)/k < before[node]/k
		}
		if breaks && slow > 0 {
			broken++
			t.Errorf("pod %s of one GPU is on %s (%s), which had %d free, while slower machines had %d free", name, node, x.kind[node], before[node], slow)
		}
	}
	t.Logf("%d pods with %d of %d GPUs; of %d with one GPU %d are on machines with fast links, and %d broke a free group of these while slower GPUs were free",
		pods, used, all, singles, onFast, broken)
}

// testGangKinds makes gangs of eight pods of eight GPUs, or fewer pods where there is less room, one
// after the other, each on a cluster that has room for it on one kind.
func (x *unequal) testGangKinds(t *testing.T) {
	t.Helper()
	mixed, placed := 0, 0
	on := map[string]int{}
	for i := range unequalGangs {
		room := map[string]int{}
		for node, free := range x.free {
			if free.Len() == 8 {
				room[x.kind[node]]++
			}
		}
		members := 0
		for _, n := range room {
			members = max(members, min(8, n))
		}
		if members < 2 {
			break
		}
		name := fmt.Sprintf("unequal-%d", i)
		pods := gangPods(0, name, members, 8, notes{gangrequest.GangSizeKey: strconv.Itoa(members)})
		for _, pod := range pods {
			pod.Spec.NodeSelector = nil
		}
		x.createAll(t, pods)
		kinds := map[string]int{}
		for _, pod := range pods {
			kinds[x.kind[x.take(t, pod.Name)]]++
		}
		placed++
		for kind := range kinds {
			on[kind]++
		}
		if len(kinds) > 1 {
			mixed++
			t.Errorf("gang %s is on %v; free machines by kind: %v", name, kinds, room)
		}
	}
	t.Logf("%d gangs, by kind %v; %d on several kinds", placed, on, mixed)
	if placed == 0 {
		t.Error("no gang had room")
	}
}

// TestMessageSize: of a machine with the faster links and one with the shorter ones a pod takes the
// first, unless its messages are small.
func TestMessageSize(t *testing.T) {
	e := newTestEnv(t, devcluster.Config{})
	e.install(t)
	e.publish(t, devcluster.ExporterOptions{}, e.addNode(t, "faster", "hgx-a100-8"), e.addNode(t, "shorter", "h200-nvl-8"))
	e.startScheduler(t, profile{name: gangProfile, write: "Binding", plugins: []string{topologyPlugin, numaPlugin}, binders: []string{topologyPlugin, "DefaultBinder"}})
	cases := map[string]struct {
		annotations notes
		want        string
	}{
		"default": {want: "faster"},
		"large":   {annotations: notes{podrequest.MessageSizeKey: "1G"}, want: "faster"},
		"small":   {annotations: notes{podrequest.MessageSizeKey: "64k"}, want: "shorter"},
	}
	for name, tc := range cases { // each has as many GPUs as one of eight has left after two others
		e.create(t, gpuPod(name, gangProfile, 2).Annotations(tc.annotations).Obj())
		if got := e.bound(t, name).Spec.NodeName; got != tc.want {
			t.Errorf("messages of %v: on %s, want %s", tc.annotations, got, tc.want)
		}
	}
}

// TestAnyModelAfter: a replacement waits for GPUs of the model that the gang runs on, and takes those
// of another after a time.
func TestAnyModelAfter(t *testing.T) {
	e := newTestEnv(t, devcluster.Config{})
	e.install(t)
	e.publish(t, devcluster.ExporterOptions{}, e.addNode(t, "h200-0", "hgx-h200"), e.addNode(t, "h200-1", "hgx-h200"), e.addNode(t, "l40s", "l40s-8"))
	e.startScheduler(t, profile{
		name: gangProfile, write: "Binding", plugins: []string{gangPlugin, topologyPlugin, numaPlugin}, binders: []string{topologyPlugin, "DefaultBinder"},
		args: map[string]string{gangPlugin: "anyModelAfter: 60s"},
	})
	inGang := func(name string) *v1.Pod {
		return gpuPod(name, gangProfile, 8).Annotation(gangrequest.GangKey, "g").Annotation(gangrequest.GangSizeKey, "2").Obj()
	}
	e.create(t, inGang("g-0"), inGang("g-1"))
	e.bound(t, "g-0")
	freed := e.bound(t, "g-1").Spec.NodeName
	if freed == "l40s" {
		t.Fatal("the gang is not on the H200")
	}
	e.remove(t, "g-1")
	e.create(t, gpuPod("other", gangProfile, 8).NodeSelector(map[string]string{v1.LabelHostname: freed}).Obj())
	e.bound(t, "other")
	e.create(t, inGang("g-2"))
	if why := e.refused(t, "g-2"); !strings.Contains(why, "allow-mixed-models would fit; takes any model from ") {
		t.Errorf("the replacement waits: %s", why)
	}
	if got := e.bound(t, "g-2").Spec.NodeName; got != "l40s" {
		t.Errorf("the replacement is on %s", got)
	}
}

// TestPlacementText: a gang's placement names what was chosen, and the best on the other model.
func TestPlacementText(t *testing.T) {
	e := newTestEnv(t, devcluster.Config{})
	e.install(t)
	e.publish(t, devcluster.ExporterOptions{},
		e.addNode(t, "h200-0", "hgx-h200"), e.addNode(t, "h200-1", "hgx-h200"), e.addNode(t, "l40s-0", "l40s-8"), e.addNode(t, "l40s-1", "l40s-8"))
	e.startScheduler(t, profile{
		name: gangProfile, write: "Binding", plugins: []string{gangPlugin, topologyPlugin, numaPlugin}, binders: []string{topologyPlugin, "DefaultBinder"},
	})
	for _, name := range []string{"g-0", "g-1"} {
		e.create(t, gpuPod(name, gangProfile, 8).Annotation(gangrequest.GangKey, "g").Annotation(gangrequest.GangSizeKey, "2").Obj())
	}
	e.bound(t, "g-0")
	e.bound(t, "g-1")
	const want = "16 × NVIDIA-H200 in cluster, 24.9 ms; cluster (NVIDIA-L40S) 167 ms"
	testkit.Eventually(t, waitLimit, "the placement is "+want, func(context.Context) (bool, string) {
		text := e.get(t, "g-0").Annotations[gangrequest.PlacementKey]
		p, err := gangrequest.ParsePlacement(text)
		return err == nil && p.Summary() == want, text
	})
}
