// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// TestMixedGangNeverFits: a gang whose members ask for different things is said never to fit exactly where
// a brute force finds no place. Of the wishes that are named, each of the members that are named, none is
// enough to leave out fewer, and the commands change what has to be changed. As many members as it is said to
// have room for fit at the same time, and no more.
func TestMixedGangNeverFits(t *testing.T) {
	random := rand.New(rand.NewPCG(37, 3))
	never, blamed, advised := 0, 0, 0
	for round := range 120 {
		w := newTestEnv()
		kinds := []string{cube, hopper, hopper, "a100-pcie-4-bridged", quad, "hgx-a100-4"}
		for i := range 2 + random.IntN(2) {
			w.node(t, fmt.Sprint("n", i), kinds[random.IntN(len(kinds))], nil)
		}
		members := randomMembers(random)
		w.group("train", int32(len(members)), members)
		e, err := Pod(w.World, "team", "asks")
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprintf("round %d: %s: %s; next step %q; members", round, e.Cause, e.Reason, e.Next)
		var those []string
		for _, p := range members {
			those = append(those, fmt.Sprint(p.Name, p.Annotations, p.Spec.Containers[0].Resources.Limits.Name(gpu, "").String()))
		}
		said += " " + strings.Join(those, " ")
		if got, want := e.Cause == NeverFits, !w.mixedFits(t, members); got != want {
			t.Fatalf("%s: said never to fit %t, brute force %t", said, got, want)
		}
		if e.Cause != NeverFits {
			continue
		}
		if room := w.mixedRoom(t, members); e.Gang.Room != room {
			t.Fatalf("%s: said to have room for %d, brute force %d", said, e.Gang.Room, room)
		}
		never++
		named := wishesNamed(e.Reason)
		if strings.Contains(e.Reason, "also of its size") || len(named) == 0 || slices.Contains(e.Lacks, "FewOneModel") {
			continue
		}
		for i := range len(named) + 1 {
			left := slices.Clone(named)
			if i < len(named) {
				left = slices.Delete(left, i, i+1)
			}
			if fits := w.mixedFits(t, leaveOut(members, left)); fits != (i == len(named)) {
				t.Fatalf("%s: without %v there is room: %t", said, left, fits)
			}
		}
		if !strings.Contains(e.Reason, " of the members") {
			blamed++
		}
		if changed, ok := obey(members, e.Next); ok {
			advised++
			if !w.mixedFits(t, changed) {
				t.Fatalf("%s: the commands do not help", said)
			}
		}
	}
	if never < 50 || blamed < 15 || advised < 20 {
		t.Errorf("only %d times a gang never fits, %d times some members are named, and %d times there is a command", never, blamed, advised)
	}
}

// TestManyModelsFit: members of four kinds on four models, more combinations than are planned, get the one
// that fits.
func TestManyModelsFit(t *testing.T) {
	w := newTestEnv()
	for name, kind := range map[string]string{"n0": hopper, "n1": "l40s-8", "n2": "dgx1-v100", "n3": "hgx-a100-4"} {
		w.node(t, name, kind, nil)
	}
	members := []*v1.Pod{
		pod("asks", 3).Obj(), pod("m1", 8).Annotations(map[string]string{podrequest.MinGPUMemoryKey: "30Gi"}).Obj(),
		pod("m2", 4).Annotations(map[string]string{podrequest.MinBandwidthKey: "20"}).Obj(), pod("m3", 8).Obj(), pod("m4", 3).Obj(),
	}
	w.group("train", int32(len(members)), members)
	if e, err := Pod(w.World, "team", "asks"); err != nil || e.Cause != WaitsForItsTurn {
		t.Errorf("%v %s: %s", err, e.Cause, e.Reason)
	}
}

// randomMembers are two to four that wish the same, but for one or more of them.
func randomMembers(random *rand.Rand) (out []*v1.Pod) {
	wishes := randomWishes(random)
	for i := range 2 + random.IntN(3) {
		name, size := fmt.Sprint("m", i), []int{2, 3, 4, 4, 8, 8}[random.IntN(6)]
		if i == 0 {
			name = "asks"
		}
		if random.IntN(2) == 0 {
			wishes = randomWishes(random)
		}
		delete(wishes, podrequest.TopologyPolicyKey)
		out = append(out, pod(name, size).Annotations(maps.Clone(wishes)).Obj())
	}
	return out
}

// wishNamed is a wish that a reason names, and the members that have it; nil: all.
type wishNamed struct {
	key     string
	members []string
}

// wishesNamed are those that are said to be the cause.
func wishesNamed(reason string) (out []wishNamed) {
	_, text, ok := strings.Cut(reason, " because of ")
	if !ok {
		return nil
	}
	text, _, _ = strings.Cut(text, "; even if no other pod ran")
	for part := range strings.SplitSeq(text, ", and also of ") {
		part, _, _ = strings.Cut(part, " (the other members ask ")
		if strings.HasPrefix(part, "one GPU model") {
			out = append(out, wishNamed{key: gangrequest.MixedModelsKey})
			continue
		}
		key, rest, _ := strings.Cut(part, ": ")
		w := wishNamed{key: key}
		if _, who, _ := strings.Cut(rest, " of "); who != "the members" {
			w.members = strings.Split(who, ", ")
		}
		out = append(out, w)
	}
	return out
}

// leaveOut are the members without some wishes.
func leaveOut(members []*v1.Pod, wishes []wishNamed) (out []*v1.Pod) {
	for _, p := range members {
		p = p.DeepCopy()
		for _, w := range wishes {
			switch {
			case w.key == gangrequest.MixedModelsKey:
				p.Annotations[w.key] = "true"
			case w.members == nil || slices.Contains(w.members, p.Name):
				delete(p.Annotations, w.key)
			}
		}
		out = append(out, p)
	}
	return out
}

var annotateCommand = regexp.MustCompile(`\(kubectl -n team annotate --overwrite pod ([^)]*)\)`)

// obey are the members as the commands of a next step change them; false if there is none.
func obey(members []*v1.Pod, next string) ([]*v1.Pod, bool) {
	commands := annotateCommand.FindAllStringSubmatch(next, -1)
	out := leaveOut(members, nil)
	for _, c := range commands {
		words := strings.Fields(c[1])
		for _, p := range out {
			if !slices.Contains(words, p.Name) {
				continue
			}
			for _, word := range words {
				if key, value, ok := strings.Cut(word, "="); ok {
					p.Annotations[key] = value
				} else if key, ok := strings.CutSuffix(word, "-"); ok {
					delete(p.Annotations, key)
				}
			}
		}
	}
	return out, len(commands) > 0
}

// mixedFits reports whether pods that differ fit on empty nodes together.
func (e *testEnv) mixedFits(t *testing.T, members []*v1.Pod) bool {
	t.Helper()
	return e.mixedRoom(t, members) == len(members)
}

// mixedRoom is how many of some pods that differ fit on empty nodes together, those that ask for the same
// GPUs on one model, by all ways to divide them among models and nodes and all sets of GPUs there are.
func (e *testEnv) mixedRoom(t *testing.T, members []*v1.Pod) int {
	t.Helper()
	var models []string
	for _, g := range e.graphs {
		if model := g.GPUs[0].Model; !slices.Contains(models, model) {
			models = append(models, model)
		}
	}
	var kinds []string
	for _, p := range members {
		if kind := gpuKeyOf(p); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	var suits []suiting
	for name, g := range e.graphs {
		suits = append(suits, suiting{g.GPUs[0].Model, setsOf(newScene(e.World).byName[name], g, members)})
	}
	mixed := members[0].Annotations[gangrequest.MixedModelsKey] == "true"
	chosen := map[string]string{} // the model of each kind
	var choose func(at int) int
	choose = func(at int) (most int) {
		if at == len(kinds) || mixed {
			return fitOn(suits, func(member int, model string) bool { return mixed || chosen[gpuKeyOf(members[member])] == model }, len(members))
		}
		for _, model := range models {
			chosen[kinds[at]] = model
			most = max(most, choose(at+1))
		}
		return most
	}
	return choose(0)
}

// gpuKeyOf is the same of pods that ask for the same GPUs.
func gpuKeyOf(p *v1.Pod) string {
	kind := []string{p.Spec.Containers[0].Resources.Limits.Name(gpu, "").String()}
	for _, key := range []string{podrequest.MinLinkKey, podrequest.MinBandwidthKey, podrequest.GPUModelKey, podrequest.MinGPUMemoryKey} {
		kind = append(kind, strings.TrimSuffix(p.Annotations[key], "GB/s"))
	}
	return strings.Join(kind, "/")
}

// suiting is a machine's model, and its sets of GPUs that suit each of some pods.
type suiting struct {
	model string
	sets  [][]nvtopo.Mask
}

// fitOn is how many members have places together, each on a machine of a model that it may have.
func fitOn(machines []suiting, may func(member int, model string) bool, members int) (most int) {
	reached := map[int]bool{0: true} // the members that have a place, as bits
	for _, m := range machines {
		allowed := 0
		for i := range members {
			if may(i, m.model) {
				allowed |= 1 << i
			}
		}
		before := maps.Clone(reached)
		for more := range 1 << members {
			if more&^allowed != 0 || !holdsAll(m.sets, more, 0) {
				continue
			}
			for have := range before {
				reached[have|more] = true
			}
		}
	}
	for have := range reached {
		most = max(most, bits.OnesCount(uint(have)))
	}
	return most
}

// setsOf are the sets of GPUs of a machine that suit each of some pods.
func setsOf(n *node, g *nvtopo.Graph, members []*v1.Pod) [][]nvtopo.Mask {
	tables := n.graph.Accel(gpu).Tables
	out := make([][]nvtopo.Mask, len(members))
	for i, p := range members {
		asked := p.Spec.Containers[0].Resources.Limits[gpu]
		for m := range nvtopo.Mask(1) << g.Len() {
			if m.Len() == int(asked.Value()) && suits(g, tables, m, p.Annotations) {
				out[i] = append(out[i], m)
			}
		}
	}
	return out
}

// holdsAll reports whether there are sets apart from each other for the members that bits say.
func holdsAll(sets [][]nvtopo.Mask, members int, used nvtopo.Mask) bool {
	for i := range sets {
		if members&(1<<i) != 0 {
			return slices.ContainsFunc(sets[i], func(s nvtopo.Mask) bool { return s&used == 0 && holdsAll(sets, members&^(1<<i), used|s) })
		}
	}
	return true
}
