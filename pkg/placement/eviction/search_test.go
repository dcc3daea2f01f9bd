// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plain judges by a table of devices: the preemptor needs some of them, in one of the groups listed, the
// better ones first.
type plain struct {
	holds  []uint64 // pod -> devices
	free   uint64
	groups []uint64
	rings  []int64
	// unknown are pods whose devices are not known: all of them have to be evicted.
	unknown Set
}

func (p *plain) Best(gone Set) (q Quality, need Set, ok bool) {
	if p.unknown&^gone != 0 {
		return Quality{}, 0, false
	}
	free := p.free
	for i := range gone.Each() {
		free |= p.holds[i]
	}
	at := -1
	for g, mask := range p.groups {
		if mask&^free == 0 && (at < 0 || p.rings[g] > p.rings[at]) {
			at = g
		}
	}
	if at < 0 {
		return Quality{}, 0, false
	}
	for i := range gone.Each() {
		if p.holds[i]&p.groups[at] != 0 {
			need |= 1 << i
		}
	}
	return Quality{Ring: p.rings[at]}, need, true
}

// brute returns the least cost over all subsets.
func brute(j Judge, pods []Pod, with []Set, allowed []int32, accept func(Set) bool) (best Cost, found bool) {
	for v := range All(len(pods)) + 1 {
		if apart(v, with) {
			continue
		}
		q, _, ok := j.Best(v)
		if !ok || accept != nil && !accept(v) {
			continue
		}
		if c := costOf(pods, v, allowed, q); !found || c.Compare(&best) < 0 {
			best, found = c, true
		}
	}
	return best, found
}

// apart reports whether some pods are evicted without others that belong to them.
func apart(v Set, with []Set) bool {
	for i := range v.Each() {
		if with != nil && with[i]&^v != 0 {
			return true
		}
	}
	return false
}

func costOf(pods []Pod, v Set, allowed []int32, q Quality) Cost {
	var victims []Pod
	for i := range v.Each() {
		victims = append(victims, pods[i])
	}
	return CostOf(victims, allowed, q)
}

// TestSearchLeastCost: the search finds the least cost.
func TestSearchLeastCost(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 5))
		j, pods, allowed := draw(r)
		var accept func(Set) bool
		if r.IntN(3) == 0 {
			// Something else is short as well: some pods have to be evicted for that.
			also := Set(r.Uint64()) & All(len(pods)) & Set(r.Uint64())
			accept = func(v Set) bool { return also&^v == 0 }
			for i := range pods {
				pods[i].Late = 0 // not looked at then, as is when they started
			}
		}
		with := gangs(r, pods)
		want, possible := brute(j, pods, with, allowed, accept)
		s := Search{Judge: j, Pods: pods, Allowed: allowed, Accept: accept, Steps: 1 << 20, Short: short(j, pods), With: with}
		v, ok := s.Best()
		if ok != possible {
			t.Fatalf("seed %d: found %t, want %t", seed, ok, possible)
		}
		if !ok {
			continue
		}
		if apart(v, with) {
			t.Fatalf("seed %d: victims %b, some without those that go with them: %b", seed, v, with)
		}
		q, _, _ := j.Best(v)
		got := costOf(pods, v, allowed, q)
		if accept != nil {
			got.Started, want.Started = 0, 0 // not looked at then
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("seed %d: victims %b of %d pods, cost (-brute force +search):\n%s", seed, v, len(pods), d)
		}
	}
}

// short is the number of devices that the smallest group lacks.
func short(j *plain, pods []Pod) int {
	least := 64
	for _, g := range j.groups {
		least = min(least, Set(g).Len()-Set(j.free).Len())
	}
	for i := range pods {
		pods[i].Devices = Set(j.holds[i]).Len()
	}
	return least
}

// gangs puts some pods into gangs: those that a gang needs are evicted together, those above its minimum
// with them or alone, and others of it are on other nodes.
func gangs(r *rand.Rand, pods []Pod) []Set {
	if r.IntN(2) == 0 {
		return nil
	}
	with := make([]Set, len(pods))
	for at := 0; at < len(pods); at += 1 + r.IntN(4) {
		needed, surplus := Set(0), Set(0)
		for i := at; i < min(at+1+r.IntN(3), len(pods)) && with[i] == 0; i++ {
			if r.IntN(4) == 0 {
				surplus |= 1 << i
			} else {
				needed |= 1 << i
			}
		}
		first := true
		for i := range needed.Each() {
			with[i] = (needed | surplus) &^ (1 << i)
			if first {
				for range r.IntN(4) {
					other := Pod{Priority: int32(r.IntN(3)), Started: int64(r.IntN(4)), Late: pods[i].Late}
					if r.IntN(3) == 0 {
						other.Budgets = []int{r.IntN(2)}
					}
					pods[i].Add(&other)
				}
			}
			first = false
		}
		at += (needed | surplus).Len()
	}
	return with
}

// draw returns a random machine of 12 devices and the pods on it.
func draw(r *rand.Rand) (*plain, []Pod, []int32) {
	const devices = 12
	j := &plain{}
	var pods []Pod
	at := 0
	for at < devices && len(pods) < 10 {
		if r.IntN(4) == 0 {
			j.free |= 1 << at
			at++
			continue
		}
		n := min(1+r.IntN(3), devices-at)
		if r.IntN(12) == 0 {
			j.unknown |= 1 << len(pods)
			n = 0
		}
		j.holds = append(j.holds, (1<<n-1)<<at)
		at += n
		pod := Pod{Priority: int32(r.IntN(3)), Started: int64(r.IntN(4))}
		if r.IntN(4) == 0 {
			pod.Late = 1 + r.IntN(2)
		}
		if r.IntN(8) == 0 {
			pod.Started = NotStarted
		}
		for b := range 2 {
			if r.IntN(3) == 0 {
				pod.Budgets = append(pod.Budgets, b)
			}
		}
		pods = append(pods, pod)
	}
	for range 1 + r.IntN(6) {
		var g uint64
		for range 1 + r.IntN(5) {
			g |= 1 << r.IntN(devices)
		}
		j.groups, j.rings = append(j.groups, g), append(j.rings, int64(r.IntN(3)))
	}
	return j, pods, []int32{int32(r.IntN(3)), int32(r.IntN(2))}
}

// TestSearchStepLimit: a search that is out of steps reports it.
func TestSearchStepLimit(t *testing.T) {
	j := &plain{holds: []uint64{1, 2, 4, 8}, groups: []uint64{15}, rings: []int64{1}}
	s := Search{Judge: j, Pods: make([]Pod, 4), Steps: 2}
	if v, ok := s.Best(); ok {
		t.Errorf("two steps found %b", v)
	}
}
