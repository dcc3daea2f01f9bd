// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// question is a random job on a random cluster.
type question struct {
	pods, gpus int
	gang, rack bool // rack: all in one
	link       nvtopo.Class
	free       map[string]nvtopo.Mask // by node
	racks      map[string]string      // by node
}

func newQuestion(r *rand.Rand) question {
	q := question{pods: 1 + r.IntN(4), gpus: 1 + r.IntN(4), gang: r.IntN(4) > 0, free: map[string]nvtopo.Mask{}, racks: map[string]string{}}
	q.rack = q.gang && r.IntN(2) == 0
	if r.IntN(2) == 0 {
		q.link = nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 1 + r.IntN(4)}
	}
	return q
}

func (q *question) workload() *kueue.Workload {
	annotations := map[string]string{}
	if q.gang {
		annotations = gangOf("g", q.pods)
	}
	if q.rack {
		annotations[gangrequest.RequiredKey] = "rack"
	}
	if q.link.Lanes > 0 {
		annotations[podrequest.MinLinkKey] = q.link.String()
	}
	return job("train", q.pods, q.gpus, annotations)
}

// build makes two racks of one or two small nodes, and pods with random GPUs.
func (q *question) build(t *testing.T, r *rand.Rand) *testEnv {
	t.Helper()
	w := newTestEnv(t)
	machines := []string{"a100-pcie-4-bridged", "power9-v100-4", "hgx-a100-4", "dgx1-v100"}
	for _, rack := range []string{"a", "b"} {
		for i := range 1 + r.IntN(2) {
			name := rack + strconv.Itoa(i)
			w.node(name, machines[r.IntN(len(machines))], map[string]string{rackLabel: rack})
			q.racks[name] = rack
			g := w.graphs[name]
			q.free[name] = g.Healthy()
			var held []int
			for gpu := range g.Len() {
				if r.IntN(3) == 0 {
					held = append(held, gpu)
					q.free[name] &^= nvtopo.MaskOf(gpu)
				}
			}
			if len(held) > 0 {
				w.pod("on-"+name, name, nil, held...)
			}
		}
	}
	return w
}

// most returns the number of disjoint sets for a pod that the free GPUs of a node can be divided
// into, by trying all.
func (q *question) most(o *oracle.Oracle, free nvtopo.Mask, bound int) (best int) {
	if bound == 0 || free.Len() < q.gpus {
		return 0
	}
	first := free.First()
	best = q.most(o, free&^nvtopo.MaskOf(first), bound) // the first stays free
	subsets(free&^nvtopo.MaskOf(first), q.gpus-1, func(rest nvtopo.Mask) {
		if set := rest | nvtopo.MaskOf(first); o.Permits(set, nvtopo.Constraint{Policy: nvtopo.PolicyBestEffort, MinLink: q.link}) {
			best = max(best, 1+q.most(o, free&^set, bound-1))
		}
	})
	return best
}

func subsets(of nvtopo.Mask, k int, visit func(nvtopo.Mask)) {
	if k == 0 {
		visit(0)
		return
	}
	for m := of; m != 0; m &= m - 1 {
		first := m & -m
		subsets(m&^first, k-1, func(rest nvtopo.Mask) { visit(rest | first) })
	}
}

// possible decides by brute force.
func (q *question) possible(w *testEnv) bool {
	room := map[[2]string]int{} // by rack where one is required, and by model of a gang
	for name, free := range q.free {
		where := [2]string{}
		if q.rack {
			where[0] = q.racks[name]
		}
		if q.gang {
			where[1] = w.graphs[name].GPUs[0].Model
		}
		room[where] += q.most(oracle.New(w.graphs[name]), free, q.pods)
	}
	for _, n := range room {
		if n >= q.pods {
			return true
		}
	}
	return false
}

// check verifies the promises, set by set.
func (q *question) check(w *testEnv, d *Decision) error {
	held := map[string]nvtopo.Mask{}
	count, racks, models := 0, map[string]bool{}, map[string]bool{}
	for _, n := range d.after.nodes {
		g := w.graphs[n.object.Name]
		for _, r := range n.given {
			set := r.Allocation.Mask(gpu, g)
			switch {
			case set.Len() != q.gpus:
				return fmt.Errorf("%d GPUs on %s, want %d", set.Len(), n.object.Name, q.gpus)
			case set&^q.free[n.object.Name] != 0 || set&held[n.object.Name] != 0:
				return fmt.Errorf("GPUs %v of %s are another's", set, n.object.Name)
			case !oracle.New(g).Permits(set, nvtopo.Constraint{Policy: nvtopo.PolicyBestEffort, MinLink: q.link}):
				return fmt.Errorf("GPUs %v of %s are not linked by %s", set, n.object.Name, q.link)
			}
			held[n.object.Name] |= set
			racks[q.racks[n.object.Name]] = true
			models[g.GPUs[0].Model] = true
			count++
		}
	}
	if count != q.pods || q.rack && len(racks) > 1 {
		return fmt.Errorf("%d pods in %d racks, want %d", count, len(racks), q.pods)
	}
	if q.gang && len(models) > 1 {
		return fmt.Errorf("members have GPUs of %v", models)
	}
	if selected := d.PodSetUpdates[0].NodeSelector[rackLabel]; selected != "" && (len(racks) > 1 || !racks[selected]) {
		return fmt.Errorf("the pods are kept in rack %s, but planned in %v", selected, racks)
	}
	return nil
}

// TestDecisionBruteForce: decisions are those of a brute force: a Ready job can be placed. A gang
// that can be placed is Ready; single pods are placed one after the other, so a later one may find
// no place.
func TestDecisionBruteForce(t *testing.T) {
	verdicts := map[string]int{}
	g := NewGraphs()
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 17))
		q := newQuestion(r)
		w := q.build(t, r)
		d := Decide(NewSnapshot(&w.World, g), q.workload())
		possible := q.possible(w)
		verdicts[fmt.Sprintf("%s gang=%t possible=%t", d.Verdict, q.gang, possible)]++
		about := fmt.Sprintf("seed %d: %d pods of %d GPUs, gang %t, in one rack %t, link %q\n%s", seed, q.pods, q.gpus, q.gang, q.rack, q.link, w)
		switch {
		case d.Verdict == Ready && !possible:
			t.Errorf("Ready, and a brute force finds no place: %s", about)
		case d.Verdict != Ready && possible && (q.gang || q.pods == 1):
			t.Errorf("%s %q, and a brute force finds a place: %s", d.Verdict, d.Message, about)
		}
		if d.Verdict == Ready {
			if err := q.check(w, &d); err != nil {
				t.Errorf("%v: %s", err, about)
			}
		}
		for i := range w.Topologies { // another cluster may have a node of this name
			delete(g.known, w.Topologies[i].Name)
		}
	}
	t.Log(verdicts)
	for _, v := range []Verdict{Ready, Retry} {
		if verdicts[fmt.Sprintf("%s gang=true possible=%t", v, v == Ready)] < 100 {
			t.Errorf("too few of a verdict to tell anything: %v", verdicts)
		}
	}
}

// TestPromiseOverlap: promises never share a GPU. Jobs decided one after the other are promised
// different GPUs, each of which was free.
func TestPromiseOverlap(t *testing.T) {
	g := NewGraphs()
	promises := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 18))
		first := newQuestion(r)
		w := first.build(t, r)
		s := NewSnapshot(&w.World, g)
		asked := map[string]int{}
		for i := range 6 {
			q := newQuestion(r)
			job := q.workload()
			job.Name, job.UID = fmt.Sprint("job", i), ""
			if d := Decide(s, job); d.Verdict == Ready {
				s = d.after
				asked[job.Name] = q.pods * q.gpus
				promises++
			}
		}
		held, total := 0, 0
		for _, n := range s.nodes {
			var used nvtopo.Mask
			for _, r := range n.given {
				set := r.Allocation.Mask(gpu, w.graphs[n.object.Name])
				if set&used != 0 || set&^first.free[n.object.Name] != 0 {
					t.Errorf("seed %d: GPUs %v of %s are promised twice, or another's", seed, set, n.object.Name)
				}
				used |= set
			}
			held += used.Len()
		}
		for _, n := range asked {
			total += n
		}
		if held != total {
			t.Errorf("seed %d: %d GPUs are promised, %d were asked for by %v", seed, held, total, asked)
		}
		for i := range w.Topologies {
			delete(g.known, w.Topologies[i].Name)
		}
	}
	t.Logf("%d promises", promises)
	if promises < 300 {
		t.Errorf("%d promises tell little", promises)
	}
}
