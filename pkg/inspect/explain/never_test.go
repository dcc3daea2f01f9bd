// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// keysOf are the annotations behind a cause, by the test's own account.
var keysOf = map[Cause][]string{
	"FewLinked": {podrequest.MinLinkKey}, "LowBandwidth": {podrequest.MinBandwidthKey}, "FewInNUMA": {podrequest.TopologyPolicyKey},
	"FewSuitableGPUs": {podrequest.GPUModelKey, podrequest.MinGPUMemoryKey}, "NoNUMACPU": {podrequest.NUMAAffinityKey},
}

// randomWishes are up to three annotations.
func randomWishes(random *rand.Rand) map[string]string {
	out := map[string]string{}
	all := [][]string{
		{podrequest.MinLinkKey, "NVLINK", "PIX", "NV18"},
		{podrequest.MinBandwidthKey, "20", "45", "100", "400", "500"},
		{podrequest.TopologyPolicyKey, "single-numa-node", "restricted"},
		{podrequest.GPUModelKey, "H100", "A100", "V100", "GB300"},
		{podrequest.MinGPUMemoryKey, "30Gi", "60Gi", "200Gi"},
	}
	for range random.IntN(4) {
		w := all[random.IntN(len(all))]
		out[w[0]] = w[1+random.IntN(len(w)-1)]
	}
	return out
}

// TestNeverFits: in random towns a pod is said never to fit exactly where no node takes it that is empty,
// but for what is mended on a node; without what is said to lack it fits, and with the value that is said.
func TestNeverFits(t *testing.T) {
	random := rand.New(rand.NewPCG(37, 1))
	never, advised := 0, 0
	for round := range 300 {
		w, p := randomTown(t, random)
		at := w.pod("asks")
		maps.Copy(at.Annotations, randomWishes(random))
		if random.IntN(8) == 0 {
			setGPUs(at, 9+random.IntN(4))
		}
		e, err := Pod(w.World, "team", p.Name)
		if err != nil {
			t.Fatal(err)
		}
		fits := w.fitsEmpty(t, at)
		switch {
		case fits && e.Cause == NeverFits:
			t.Fatalf("round %d: %v fits an empty node, and is said never to fit: %s", round, at.Annotations, e.Reason)
		case !fits && e.Cause != NeverFits && ofCluster(e.Cause):
			t.Fatalf("round %d: %v fits no empty node, and the cause is said to be %s: %s", round, at.Annotations, e.Cause, e.Reason)
		case e.Cause != NeverFits:
			continue
		}
		never++
		w.checkLacks(t, round, e, at, func(p *v1.Pod) bool { return w.fitsEmpty(t, p) })
		advised += checkNext(t, round, e, at, func(p *v1.Pod) bool { return w.fitsEmpty(t, p) })
	}
	if never < 50 || advised < 20 {
		t.Errorf("only %d times a pod never fits, and %d times a value is said", never, advised)
	}
}

// TestGangNeverFits is the same of gangs on whole machines, beside a brute force over all sets of GPUs.
func TestGangNeverFits(t *testing.T) {
	random := rand.New(rand.NewPCG(37, 2))
	never, advised, together, smaller := 0, 0, 0, 0
	for round := range 120 {
		w := newTestEnv()
		kinds := []string{cube, hopper, "a100-pcie-4-bridged", quad}
		for i := range 2 + random.IntN(2) {
			name := fmt.Sprint("n", i)
			w.node(t, name, kinds[random.IntN(len(kinds))], nil)
			if random.IntN(2) == 0 {
				w.holds(t, "busy-"+name, name, 0)
			}
		}
		wishes, size := randomWishes(random), []int{2, 4, 8}[random.IntN(3)]
		delete(wishes, podrequest.TopologyPolicyKey)
		var members []*v1.Pod
		for i := range 2 + random.IntN(3) {
			name := fmt.Sprint("m", i)
			if i == 0 {
				name = "asks"
			}
			members = append(members, pod(name, size).Annotations(maps.Clone(wishes)).Obj())
		}
		w.group("train", int32(len(members)), members)
		fits := func(p *v1.Pod) bool { return w.gangFits(t, p, len(members)) }
		e, err := Pod(w.World, "team", "asks")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := e.Cause == NeverFits, !fits(members[0]); got != want {
			t.Fatalf("round %d: %d members of %d GPUs with %v on %d nodes: said never to fit %t, brute force %t: %s: %s", round, len(members), size, wishes, len(w.Nodes), got, want, e.Cause, e.Reason)
		}
		w.checkIncomplete(t, round)
		if e.Cause != NeverFits {
			continue
		}
		never++
		if n, ok := membersAfter(e.Next); ok {
			smaller++
			changed := members[0].DeepCopy()
			follow(changed, e.Next)
			if n >= len(members) || w.gangFits(t, members[0], n) || !strings.HasPrefix(e.Next, "ask ") && (!w.gangFits(t, changed, n) || w.gangFits(t, changed, n+1)) {
				t.Fatalf("round %d: %d members of %d GPUs with %v: next step %q does not help", round, len(members), size, wishes, e.Next)
			}
			continue
		}
		if !slices.Contains(e.Lacks, Cause("FewOneModel")) {
			w.checkLacks(t, round, e, members[0], fits)
		}
		if several := strings.Count(e.Next, " to "); several > 1 {
			together++
		}
		checkFewer(t, round, e, func(n int) bool { return w.gangFits(t, members[0], n) })
		advised += checkNext(t, round, e, members[0], fits)
	}
	if never < 25 || advised < 5 || together < 3 || smaller < 3 {
		t.Errorf("only %d times a gang never fits, %d times a value is said, %d times two, and %d times with fewer members", never, advised, together, smaller)
	}
}

// checkIncomplete: a gang that lacks a member hears of it, and the rest as if that one were there.
func (e *testEnv) checkIncomplete(t *testing.T, round int) {
	t.Helper()
	e.PodGroups[0].Spec.MinMember++
	pods := e.Pods
	defer func() { e.PodGroups[0].Spec.MinMember--; e.Pods = pods }()
	got, err := Pod(e.World, "team", "asks")
	if err != nil {
		t.Fatal(err)
	}
	extra := e.pod("asks").DeepCopy()
	extra.Name, extra.UID = "zz", "uid-zz"
	e.Pods = append(slices.Clone(pods), *extra)
	whole, err := Pod(e.World, "team", "asks")
	if err != nil {
		t.Fatal(err)
	}
	next := strings.ReplaceAll(whole.Next, " zz ", " ")
	next = regexp.MustCompile(`\brun (\d+) members?, `).ReplaceAllString(next, "lower the number that starts together to $1, ")
	never := strings.HasSuffix(got.Reason, whole.Reason) && strings.HasSuffix(got.Next, "; and "+next)
	if whole.Cause != NeverFits {
		whole.Lacks = nil
	}
	if got.Cause != GangIncomplete || !slices.Equal(got.Lacks, whole.Lacks) || never != (whole.Cause == NeverFits) {
		t.Fatalf("round %d: %s, lacks %v: %s; next step %q\nof the whole gang %s, lacks %v: %s; next step %q",
			round, got.Cause, got.Lacks, got.Reason, got.Next, whole.Cause, whole.Lacks, whole.Reason, whole.Next)
	}
}

// checkLacks: without what is said to lack there is room, and with any single part of it there is none.
func (e *testEnv) checkLacks(t *testing.T, round int, x *Explanation, p *v1.Pod, fits func(*v1.Pod) bool) {
	t.Helper()
	var keys []string
	for _, cause := range x.Lacks {
		for _, key := range keysOf[cause] {
			if _, ok := p.Annotations[key]; ok && strings.Contains(x.Reason, key) {
				keys = append(keys, key)
			}
		}
	}
	if len(keys) == 0 {
		return // amounts and numbers
	}
	without := func(keys []string) *v1.Pod {
		out := p.DeepCopy()
		for _, key := range keys {
			delete(out.Annotations, key)
		}
		return out
	}
	if !fits(without(keys)) {
		t.Fatalf("round %d: without %v of %v there is no room either: %s", round, keys, p.Annotations, x.Reason)
	}
	for i := range keys {
		if fewer := slices.Delete(slices.Clone(keys), i, i+1); fits(without(fewer)) {
			t.Fatalf("round %d: without %v of %v there is room, and %v are named: %s", round, fewer, p.Annotations, keys, x.Reason)
		}
	}
}

// membersAfter is how many members a next step says to run besides what it says to change.
func membersAfter(next string) (n int, ok bool) {
	_, after, ok := strings.Cut(next, " and run ")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(strings.Fields(after)[0])
	return n, err == nil
}

// checkNext: with the value that the next step says there is room. It returns how many values it says.
func checkNext(t *testing.T, round int, x *Explanation, p *v1.Pod, fits func(*v1.Pod) bool) int {
	t.Helper()
	changed := p.DeepCopy()
	words := strings.Fields(x.Next)
	switch {
	case strings.HasPrefix(x.Next, "set "), strings.HasPrefix(x.Next, "leave out "):
		follow(changed, x.Next)
	case strings.HasPrefix(x.Next, "ask for at most "):
		n, err := strconv.Atoi(words[4])
		if err != nil {
			t.Fatalf("round %d: next step %q", round, x.Next)
		}
		if len(p.Annotations) > 0 {
			return 0 // what else it asks is said once it asks for fewer
		}
		setGPUs(changed, n)
	default:
		return 0
	}
	if !fits(changed) {
		t.Fatalf("round %d: %v: next step %q does not help", round, p.Annotations, x.Next)
	}
	return 1
}

// follow changes a pod as a next step says: "set KEY to VALUE and KEY to VALUE and leave out KEY (COMMAND),
// with which…", or "leave out KEY and KEY (COMMAND), without which…".
func follow(p *v1.Pod, next string) {
	changes, _, _ := strings.Cut(strings.TrimPrefix(next, "set "), ", with which ")
	changes, _, _ = strings.Cut(changes, ", without which ")
	changes, _, _ = strings.Cut(changes, " (")
	for change := range strings.SplitSeq(changes, " and ") {
		if key, ok := strings.CutPrefix(change, "leave out "); ok {
			delete(p.Annotations, key)
		} else if key, value, ok := strings.Cut(change, " to "); ok {
			p.Annotations[key] = value
		} else {
			delete(p.Annotations, change)
		}
	}
}

// checkFewer: as many members as the next step says there is room for, and no more.
func checkFewer(t *testing.T, round int, x *Explanation, fits func(members int) bool) {
	t.Helper()
	_, after, ok := strings.Cut(x.Next, "run ")
	n, err := strconv.Atoi(strings.Fields(after + " -")[0])
	if !ok || err != nil {
		n = 0
	}
	if n > 0 && !fits(n) || fits(n+1) {
		t.Fatalf("round %d: next step %q: %d members fit: %t, and one more: %t", round, x.Next, n, n == 0 || fits(n), fits(n+1))
	}
}

func setGPUs(p *v1.Pod, n int) {
	p.Spec.Containers[0].Resources.Limits[gpu] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	if p.Spec.Containers[0].Resources.Requests != nil {
		p.Spec.Containers[0].Resources.Requests[gpu] = *resource.NewQuantity(int64(n), resource.DecimalSI)
	}
}

// fitsEmpty reports whether some node takes the pod that has no other.
func (e *testEnv) fitsEmpty(t *testing.T, p *v1.Pod) bool {
	t.Helper()
	for i := range e.Nodes {
		var all []string
		for j := range e.Pods {
			all = append(all, e.Pods[j].Namespace+"/"+e.Pods[j].Name)
		}
		if reason, _ := e.place(t, p, e.Nodes[i].Name, all); reason == "" {
			return true
		}
	}
	return false
}

// gangFits reports whether so many pods fit on empty nodes of one model, by all sets of GPUs there are.
func (e *testEnv) gangFits(t *testing.T, p *v1.Pod, members int) bool {
	t.Helper()
	room := map[string]int{}
	for i := range e.Nodes {
		name := e.Nodes[i].Name
		g := e.graphs[name]
		model := g.GPUs[0].Model
		if p.Annotations[gangrequest.MixedModelsKey] == "true" {
			model = ""
		}
		room[model] += most(newScene(e.World).byName[name], g, p, members)
	}
	for _, n := range room {
		if n >= members {
			return true
		}
	}
	return false
}

// most is how many such pods a machine holds, up to a number.
func most(n *node, g *nvtopo.Graph, p *v1.Pod, limit int) int {
	tables := n.graph.Accel(gpu).Tables
	asked := p.Spec.Containers[0].Resources.Limits[gpu]
	size := int(asked.Value())
	var sets []nvtopo.Mask
	for m := range nvtopo.Mask(1) << g.Len() {
		if m.Len() == size && suits(g, tables, m, p.Annotations) {
			sets = append(sets, m)
		}
	}
	var fill func(from int, used nvtopo.Mask, left int) int
	fill = func(from int, used nvtopo.Mask, left int) (best int) {
		if left == 0 {
			return 0
		}
		for i := from; i < len(sets); i++ {
			if sets[i]&used == 0 {
				if best = max(best, 1+fill(i+1, used|sets[i], left-1)); best == left {
					return best
				}
			}
		}
		return best
	}
	return fill(0, 0, min(limit, g.Len()/size))
}

// suits reports whether a set of GPUs is as annotations ask.
func suits(g *nvtopo.Graph, tables *nvtopo.Tables, set nvtopo.Mask, asks map[string]string) bool {
	if asked := asks[podrequest.MinBandwidthKey]; asked != "" {
		least, _ := strconv.ParseFloat(strings.TrimSuffix(asked, "GB/s"), 64)
		if nvtopo.GBps(tables.Ring(set)) < least {
			return false
		}
	}
	if asked := asks[podrequest.MinLinkKey]; asked != "" {
		floor, err := nvtopo.ParseClass(asked)
		if err != nil {
			return false
		}
		for _, i := range set.Positions() {
			for _, j := range set.Positions() {
				if i != j && !g.Link(i, j).Class.AtLeast(floor) {
					return false
				}
			}
		}
	}
	for _, i := range set.Positions() {
		if asked := asks[podrequest.GPUModelKey]; asked != "" && !slices.Contains(strings.FieldsFunc(strings.ToUpper(g.GPUs[i].Model), func(r rune) bool { return r == '-' || r == ' ' || r == '_' }), asked) {
			return false
		}
		if asked := asks[podrequest.MinGPUMemoryKey]; asked != "" {
			if least := resource.MustParse(asked); g.GPUs[i].Memory < least.Value() {
				return false
			}
		}
	}
	return true
}
