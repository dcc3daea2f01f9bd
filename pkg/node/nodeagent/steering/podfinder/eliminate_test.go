// SPDX-License-Identifier: Apache-2.0

package podfinder_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfindertest"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// crowd is a node on which one pod asks, with the truth about each pod on it.
type crowd struct {
	facts *podfinder.Facts
	world podfindertest.World
	asker *podfinder.Pod
	// empty are the other pods that kubelet knows as active, of the size that is asked
	// for and without devices.
	empty int
}

// randomCrowd draws pods of all kinds that there are beside the one that asks. In the
// checkpoint is what kubelet has recorded; the watch may not have delivered who asks.
func randomCrowd(r *rand.Rand) crowd {
	const size = 2
	offered := make([]string, 200)
	for i := range offered {
		offered[i] = fmt.Sprintf("GPU-%d", i)
	}
	c := crowd{facts: newFacts(question.New(gpu, offered, nil, size)), world: podfindertest.World{Kubelet: map[string]map[string][]string{}}}
	n := 1 + r.IntN(40)
	newPod := func(i, n int) *podfinder.Pod {
		return testPod(i, asks("main", n, offered[n*i:n*(i+1)]...))
	}
	who := r.IntN(n)
	for i := range n {
		p := newPod(i, size)
		p.Version = uint64(100 + r.IntN(n)) // neither order tells anything
		p.Created = epoch.Add(time.Duration(r.IntN(n)) * time.Second)
		held := p.Containers[0].Want[gpu]
		kind := r.IntN(12)
		switch {
		case i == who:
			c.asker = p
			c.world.Kubelet[p.Name] = map[string][]string{"main": nil}
		case kind < 5: // waits
		case kind == 5: // waits, and is deleted
			p.Deleting = true
		case kind == 6: // runs
			c.world.Kubelet[p.Name] = map[string][]string{"main": held}
			recordedAs(i, "main", held...)(c.facts)
		case kind == 7: // has ended, and its record is still there
			recordedAs(i, "main", held...)(c.facts)
			p.Terminal = r.IntN(2) == 0
		case kind == 8: // was refused after it had been served
			servedAs(i, "main", time.Hour, held...)(c.facts)
		case kind == 9 && c.empty < 3: // runs, and kubelet has lost its record
			p.Started, p.Containers[0].Running = true, true
			servedAs(i, "main", time.Hour, held...)(c.facts)
			c.world.Kubelet[p.Name] = map[string][]string{"main": nil}
			c.empty++
		case kind == 10 && c.empty < 3: // kubelet was told of its deletion before it admitted it
			p.Deleting = true
			c.world.Kubelet[p.Name] = map[string][]string{"main": nil}
			c.empty++
		default: // asks for another number
			p = newPod(i, 1)
		}
		c.facts.Pods = append(c.facts.Pods, p)
	}
	if r.IntN(8) == 0 {
		c.world.Live = c.facts.Pods
		c.facts.Pods = slices.DeleteFunc(slices.Clone(c.facts.Pods), func(p *podfinder.Pod) bool { return p == c.asker })
	}
	return c
}

// TestElimination: elimination leaves the pod that asks. Whoever else is on the node and in
// whatever order pods came, kubelet's answers leave the pod that asks, without doubt, and a few
// requests do.
func TestElimination(t *testing.T) {
	t.Parallel()
	surveys, most := 0, 0
	for seed := range uint64(3000) {
		c := randomCrowd(rand.New(rand.NewPCG(seed, 50)))
		who, asked, _ := settle(t, c.facts, c.world)
		if who == nil || who.Pod != c.asker || who.Source != podfinder.SourceGet || who.Ambiguous {
			t.Fatalf("seed %d: found %+v after %v, want %s without doubt", seed, who, asked, c.asker.Name)
		}
		if slices.Contains(asked, surveyed) {
			surveys++
		}
		most = max(most, len(asked)-c.empty)
		if len(asked) > 4+c.empty {
			t.Fatalf("seed %d: %d requests %v, with %d other pods that kubelet knows without devices", seed, len(asked), asked, c.empty)
		}
	}
	if surveys < 300 {
		t.Errorf("kubelet was asked for all pods in %d cases, want more to try it", surveys)
	}
	t.Logf("asked for all pods in %d cases; at most %d requests beside those for pods without devices", surveys, most)
}

// TestSurveyDuringAdmission: no survey is made while kubelet has taken devices: it would forget
// that it has.
func TestSurveyDuringAdmission(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		c := randomCrowd(rand.New(rand.NewPCG(seed, 51)))
		c.facts.Question = including(c.facts.Question, "GPU-199")
		if _, asked, _ := settle(t, c.facts, c.world); slices.Contains(asked, surveyed) {
			t.Fatalf("seed %d: asked for %v", seed, asked)
		}
	}
}

// Pods that seem to hold a device under another id than is offered have to be asked
// about too.
func TestRenamedDevicePods(t *testing.T) {
	switched := map[string]struct{ had, offered []string }{
		"sharing is switched on":  {gpus(0), []string{"GPU-0::0", "GPU-0::1"}},
		"sharing is switched off": {[]string{"GPU-0::1"}, gpus(0)},
		"nothing is shared":       {gpus(0), gpus(0)},
		"all the time shared":     {[]string{"GPU-0::1"}, []string{"GPU-0::1"}},
	}
	for name, tc := range switched {
		for holder, want := range map[string]int{tc.had[0]: 1, "GPU-7": 0} {
			f := newFacts(question.New(gpu, tc.offered, nil, 1), testPod(0, asks("a", 1)))
			recordedAs(0, "a", holder)(f)
			if got := f.Unsure(); got != want {
				t.Errorf("%s: unsure about %d holders of %s, want %d", name, got, holder, want)
			}
		}
	}
}
