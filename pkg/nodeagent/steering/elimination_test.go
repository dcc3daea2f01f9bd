// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nodeagent/kubelet"
)

// crowd is a node on which one pod asks, with the truth about each pod on it.
type crowd struct {
	facts *facts
	world world
	asker *podView
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
	c := crowd{facts: newFacts(newQuestion(gpu, offered, nil, size)), world: world{kubelet: map[string]map[string][]string{}}}
	n := 1 + r.IntN(40)
	newPod := func(i, n int) *podView { return testPod(i, asks("main", n, offered[n*i:n*(i+1)]...)) }
	who := r.IntN(n)
	for i := range n {
		p := newPod(i, size)
		p.version = uint64(100 + r.IntN(n)) // neither order tells anything
		p.created = epoch.Add(time.Duration(r.IntN(n)) * time.Second)
		held := p.containers[0].want[gpu]
		kind := r.IntN(12)
		switch {
		case i == who:
			c.asker = p
			c.world.kubelet[p.name] = map[string][]string{"main": nil}
		case kind < 5: // waits
		case kind == 5: // waits, and is deleted
			p.deleting = true
		case kind == 6: // runs
			c.world.kubelet[p.name] = map[string][]string{"main": held}
			recordedAs(i, "main", held...)(c.facts)
		case kind == 7: // has ended, and its record is still there
			recordedAs(i, "main", held...)(c.facts)
			p.terminal = r.IntN(2) == 0
		case kind == 8: // was refused after it had been served
			servedAs(i, "main", time.Hour, held...)(c.facts)
		case kind == 9 && c.empty < 3: // runs, and kubelet has lost its record
			p.started, p.containers[0].running = true, true
			servedAs(i, "main", time.Hour, held...)(c.facts)
			c.world.kubelet[p.name] = map[string][]string{"main": nil}
			c.empty++
		case kind == 10 && c.empty < 3: // kubelet was told of its deletion before it admitted it
			p.deleting = true
			c.world.kubelet[p.name] = map[string][]string{"main": nil}
			c.empty++
		default: // asks for another number
			p = newPod(i, 1)
		}
		c.facts.pods = append(c.facts.pods, p)
	}
	if r.IntN(8) == 0 {
		c.world.live = c.facts.pods
		c.facts.pods = slices.DeleteFunc(slices.Clone(c.facts.pods), func(p *podView) bool { return p == c.asker })
	}
	return c
}

// TestEliminationLeavesWhoAsks: whoever else is on the node and in whatever order pods
// came, kubelet's answers leave the pod that asks, without doubt, and a few requests do.
func TestEliminationLeavesWhoAsks(t *testing.T) {
	t.Parallel()
	surveys, most := 0, 0
	for seed := range uint64(3000) {
		c := randomCrowd(rand.New(rand.NewPCG(seed, 50)))
		who, asked, _ := settle(t, c.facts, c.world)
		if who == nil || who.pod != c.asker || who.source != sourceGet || who.ambiguous {
			t.Fatalf("seed %d: found %+v after %v, want %s without doubt", seed, who, asked, c.asker.name)
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

// TestNoSurveyWhileKubeletHasTakenDevices: it would forget that it has.
func TestNoSurveyWhileKubeletHasTakenDevices(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		c := randomCrowd(rand.New(rand.NewPCG(seed, 51)))
		c.facts.q = including(c.facts.q, "GPU-199")
		if _, asked, _ := settle(t, c.facts, c.world); slices.Contains(asked, surveyed) {
			t.Fatalf("seed %d: asked for %v", seed, asked)
		}
	}
}

// withoutList is a kubelet that does not tell all its pods.
type withoutList struct{ *model }

func (withoutList) ActivePods(context.Context) (map[types.NamespacedName]bool, error) {
	return nil, kubelet.ErrUnsupported
}

// TestWithoutAListEachPodIsAskedAbout: what tells of all pods only saves time.
func TestWithoutAListEachPodIsAskedAbout(t *testing.T) {
	n := newNode(t, nil)
	n.start(withoutList{n.model})
	var pods []*v1.Pod
	for i := range 8 {
		pods = append(pods, n.bind(fmt.Sprintf("p%d", i), ofOne(1), gpus(i)))
	}
	for i, pod := range slices.Backward(pods) {
		if got := n.admit(pod); !slices.Equal(got, gpus(i)) {
			t.Errorf("%s holds %v, want %v", pod.Name, got, gpus(i))
		}
	}
	n.counted(n.metrics.identity.WithLabelValues(sourceGet), 8, "found by kubelet's answer")
}
