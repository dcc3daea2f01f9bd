// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// manyRacks is a world of racks with one node each, behind two or three levels of switches. There
// are more of them than all ways to place members could be tried for.
func manyRacks(r *rand.Rand) *world {
	w := &world{levels: 2 + r.IntN(2), spread: -1}
	room := 0
	for i := range 6 + r.IntN(7) {
		path := []string{strconv.Itoa(r.IntN(2)), strconv.Itoa(r.IntN(3)), strconv.Itoa(i)}[3-w.levels:]
		if w.levels == 2 {
			path[0] = strconv.Itoa(r.IntN(4))
		}
		n := worldNode{name: "n" + strconv.Itoa(i), path: path}
		slots := 1
		if r.IntN(3) == 0 {
			slots = 2 + r.IntN(3)
		}
		n.count, n.lost = [5]int{slots, slots, slots, slots, slots}, make([]int64, slots)
		if r.IntN(8) == 0 {
			n.bound = 1
		}
		room += slots
		w.nodes = append(w.nodes, n)
	}
	w.pods = 1 + room/2 + r.IntN(max(1, room/2))
	return w
}

// judgedRacks is level and domains with members in some racks and where they are bound.
func (w *world) judgedRacks(racks int) (level int, domains []int) {
	var used []int
	for i := range w.nodes {
		if racks>>i&1 != 0 || w.nodes[i].bound > 0 {
			used = append(used, i)
		}
	}
	for d := 1; d <= w.levels; d++ {
		domains = append(domains, len(w.group(used, d)))
	}
	return -w.common(used), domains
}

// fewestRacks returns the domains by the objective, over all subsets of the racks that have room, and the
// domains if the outermost level were decided first.
func (w *world) fewestRacks() (together, outermost []int) {
	levels := [2]int{1, 1}
	for racks := range 1 << len(w.nodes) {
		room := 0
		for i := range w.nodes {
			room += racks >> i & 1 * w.nodes[i].count[0]
		}
		if room < w.pods {
			continue
		}
		level, domains := w.judgedRacks(racks)
		if together == nil || cmp.Or(cmp.Compare(level, levels[0]), cmp.Compare(sumOf(domains), sumOf(together)), slices.Compare(domains, together)) < 0 {
			levels[0], together = level, domains
		}
		if outermost == nil || cmp.Or(cmp.Compare(level, levels[1]), slices.Compare(domains, outermost)) < 0 {
			levels[1], outermost = level, domains
		}
	}
	return together, outermost
}

// TestDomainBruteForce: domains of all levels count together. It compares the domains of plans with
// all subsets of the racks. The limits of the second half are such that some plans are not proven.
func TestDomainBruteForce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(16, 4))
	rounds, differ, unproven := 3000, 0, 0
	if testing.Short() {
		rounds = 400
	}
	for round := range rounds {
		w := manyRacks(r)
		tr, req := w.request(t)
		most := limits{states: maxStates, table: maxTable}
		if round >= rounds/2 {
			most.table = 100 + r.IntN(1000)
		}
		want, outermost := w.fewestRacks()
		p, err := placeWithin(tr, req, most)
		var none *UnplaceableError
		if errors.As(err, &none) && want == nil {
			continue
		}
		if err != nil {
			t.Fatalf("%v, but there is a way with %v\n%s", err, want, w)
		}
		var got []int
		for d := 1; d <= w.levels; d++ {
			got = append(got, len(p.Domains[d]))
		}
		switch d := gocmp.Diff(want, got); {
		case d != "" && (p.Exact || most.table == maxTable):
			t.Fatalf("domains by level (-by brute force,+of the plan, exact %v):\n%s\n%s", p.Exact, d, w)
		case !p.Exact:
			unproven++
		}
		if p.Exact && !slices.Equal(p.Fewest[1:], want) {
			t.Fatalf("fewest %v, want %v\n%s", p.Fewest[1:], want, w)
		}
		if !slices.Equal(want, outermost) {
			differ++
		}
	}
	t.Logf("%d gangs, %d of them with other domains than by the outermost level first, %d not proven", rounds, differ, unproven)
	if differ < rounds/50 || unproven < rounds/100 {
		t.Errorf("%d of %d gangs have other domains than by the outermost level first, %d are not proven: this was not a test", differ, rounds, unproven)
	}
}
