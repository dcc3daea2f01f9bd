// SPDX-License-Identifier: Apache-2.0

package reservations

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// TestSteps does one step with the reservation of GPU a on node n, in each phase that
// matters.
func TestSteps(t *testing.T) {
	binding := func(r *testEnv, c *Reservation) { r.BindingBegan(c) }
	doubtful := func(r *testEnv, c *Reservation) {
		r.BindingBegan(c)
		r.Unreserve(c, nil)
	}
	confirmed := func(r *testEnv, c *Reservation) { r.PodBound(&Bound{UID: c.UID, Node: "n", Allocation: c.Allocation}) }
	bound := func(node, gpu string) func(*testEnv, *Reservation) Change {
		return func(r *testEnv, c *Reservation) Change {
			b := &Bound{UID: c.UID, Node: node}
			if gpu != "" {
				b.Allocation = chosen(c.UID, node, gpu)
			}
			return r.PodBound(b)
		}
	}
	unreserve := func(b *Bound) func(*testEnv, *Reservation) Change {
		return func(r *testEnv, c *Reservation) Change { return r.Unreserve(c, b) }
	}
	gone := func(r *testEnv, c *Reservation) Change { return r.PodGone(c.UID) }
	decide := func(carries bool, gpu string) func(*testEnv, *Reservation) Change {
		return func(r *testEnv, c *Reservation) Change {
			if gpu == "" {
				return r.Decide(c, carries, nil)
			}
			return r.Decide(c, carries, chosen(c.UID, "n", gpu))
		}
	}
	// told is a Change by the names of nodes.
	type told struct {
		Nodes, Soon []string
		Freed, Left bool
	}
	none, soon, freed := told{}, told{Soon: []string{"n"}}, told{Soon: []string{"n"}, Freed: true, Left: true}
	for name, tc := range map[string]struct {
		before func(*testEnv, *Reservation)
		step   func(*testEnv, *Reservation) Change
		want   string // the phase then, or "dropped"
		told   told
	}{
		"an attempt fails before its writes":                        {nil, unreserve(nil), "dropped", told{Nodes: []string{"n"}, Soon: []string{"n"}, Left: true}},
		"an attempt fails during its writes":                        {binding, unreserve(nil), "doubtful", none},
		"an attempt fails, an earlier one was for here":             {binding, unreserve(&Bound{UID: "p", Node: "n", Allocation: chosen("p", "n", "b")}), "void", freed},
		"an attempt fails, an earlier one was elsewhere":            {binding, unreserve(&Bound{UID: "p", Node: "m"}), "void", freed},
		"an attempt fails that was carried out":                     {binding, unreserve(&Bound{UID: "p", Node: "n", Allocation: chosen("p", "n", "a")}), "confirmed", soon},
		"an attempt fails, the pod is bound with what nobody knows": {binding, unreserve(&Bound{UID: "p", Node: "n"}), "doubtful", none},
		"an attempt in doubt ends no more":                          {doubtful, unreserve(nil), "doubtful", none},
		"the pod is bound with the choice":                          {binding, bound("n", "a"), "confirmed", soon},
		"the pod is bound with the choice before the write":         {nil, bound("n", "a"), "confirmed", soon},
		"the pod is bound with another choice":                      {binding, bound("n", "b"), "void", freed},
		"the pod is bound with another choice before the write":     {nil, bound("n", "b"), "reserved", none},
		"the pod is bound to another node":                          {binding, bound("m", ""), "void", freed},
		"the pod is bound here with what nobody knows":              {binding, bound("n", ""), "binding", none},
		"a doubtful one is carried out":                             {doubtful, bound("n", "a"), "confirmed", soon},
		"a confirmed one is decided":                                {confirmed, bound("m", ""), "confirmed", none},
		"the pod is gone":                                           {nil, gone, "void", freed},
		"the pod is gone whose choice was confirmed":                {confirmed, gone, "void", freed},
		"a live read finds a doubtful pod without a node":           {doubtful, decide(false, ""), "dropped", told{Nodes: []string{"n"}, Freed: true}},
		"a live read finds the choice, of the only attempt":         {doubtful, decide(true, "a"), "dropped", told{Nodes: []string{"n"}, Freed: true}},
		"a live read comes too late":                                {confirmed, decide(false, ""), "confirmed", none},
		"a live read finds the choice, which a later attempt may bind": {func(r *testEnv, c *Reservation) {
			doubtful(r, c)
			r.add(c.UID, "n", "b")
		}, decide(true, "a"), "doubtful", none},
		"a confirmed one is replaced": {
			confirmed, func(r *testEnv, _ *Reservation) Change { return r.sweep() }, "dropped",
			told{Nodes: []string{"n"}},
		},
		"a doubtful one is not": {doubtful, func(r *testEnv, _ *Reservation) Change { return r.sweep() }, "doubtful", none},
		"a write is refused": {binding, func(r *testEnv, c *Reservation) Change {
			r.BindingRefused(c)
			return Change{}
		}, "reserved", none},
		"the PATCH has ended": {binding, func(r *testEnv, c *Reservation) Change {
			r.WriteEnded(c)
			return Change{}
		}, "reserved", none},
		"the PATCH has ended while an earlier attempt is in doubt": {func(r *testEnv, c *Reservation) {
			doubtful(r, r.add(c.UID, "m", "b"))
			r.BindingBegan(c)
		}, func(r *testEnv, c *Reservation) Change {
			r.WriteEnded(c)
			return Change{}
		}, "binding", none},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv()
			c := r.add("p", "n", "a")
			if tc.before != nil {
				tc.before(r, c)
			}
			change := tc.step(r, c)
			r.check(t)
			got := "dropped"
			for _, l := range r.List() {
				if l.Reservation == c {
					got = l.Phase.String()
				}
			}
			if got != tc.want {
				t.Errorf("it is %s, want %s", got, tc.want)
			}
			if diff := cmp.Diff(tc.told, told{names(change.Nodes), names(change.Soon), change.Freed, change.Left}); diff != "" {
				t.Errorf("change (-want +got):\n%s", diff)
			}
		})
	}
}

func names(nodes []*Node) (out []string) {
	for _, n := range nodes {
		out = append(out, n.Name())
	}
	return out
}

// TestGonePod: a pod that is gone gets no reservation.
func TestGonePod(t *testing.T) {
	r := newTestEnv()
	r.PodGone("p")
	if r.add("p", "n", "a"); len(r.List()) != 0 {
		t.Error("no event would end this reservation")
	}
	r.PodThere("p") // a list was older than the events before it
	if r.add("p", "n", "a"); len(r.List()) != 1 {
		t.Error("the pod is there, and its choice is not recorded")
	}
	r.PodGone("q")
	r.pass(ReleaseWithin + time.Second)
	if r.Gone("q") {
		t.Error("the pod went long ago")
	}
}

// TestGonePodMemory: pods that are gone are forgotten.
func TestGonePodMemory(t *testing.T) {
	r := newTestEnv()
	for i := range 2 * minTerminated {
		r.PodGone(types.UID(strconv.Itoa(i)))
		r.pass(time.Second)
	}
	if n := len(r.gone.at); n > minTerminated+2 {
		t.Errorf("%d pods are remembered after their time", n)
	}
}

// TestDoubtOrder: doubtful reservations are read in turn, and a bounded number at a time.
func TestDoubtOrder(t *testing.T) {
	r := newTestEnv()
	for i := range maxResolving + 4 {
		c := r.add(types.UID(fmt.Sprintf("p-%02d", i)), "n", "a")
		r.BindingBegan(c)
		r.Unreserve(c, nil)
	}
	if n := len(r.ToResolve()); n != 0 {
		t.Errorf("%d doubts are read before requestTimeout", n)
	}
	r.pass(2 * requestTimeout)
	first := r.ToResolve()
	if len(first) != maxResolving || len(r.ToResolve()) != 0 {
		t.Errorf("%d doubts are read at a time, want %d", len(first), maxResolving)
	}
	for _, c := range first {
		r.Resolved(c)
	}
	r.pass(2 * time.Second)
	seen := map[*Reservation]bool{}
	for _, c := range append(first, r.ToResolve()[:4]...) {
		seen[c] = true
	}
	if len(seen) != maxResolving+4 {
		t.Errorf("%d doubts were read in two rounds, want all %d", len(seen), maxResolving+4)
	}
}

// TestRandomSteps does random steps, also in orders that the scheduler would not use.
func TestRandomSteps(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r, rng := newTestEnv(), rand.New(rand.NewPCG(seed, 3))
		var all []*Reservation
		var reading []*Reservation
		uid := func() types.UID { return types.UID(fmt.Sprint("p-", rng.IntN(5))) }
		node := func() string { return fmt.Sprint("n-", rng.IntN(2)) }
		gpu := func() string { return fmt.Sprint("g-", rng.IntN(3)) }
		some := func() *Reservation { return all[rng.IntN(len(all))] }
		boundPod := func() *Bound {
			b := &Bound{UID: uid(), Node: node(), Version: "7"}
			if rng.IntN(3) > 0 {
				b.Allocation = chosen(b.UID, b.Node, gpu())
			}
			return b
		}
		steps := []func(){
			func() {
				if c := r.add(uid(), node(), gpu()); c != nil {
					all = append(all, c)
				}
			},
			func() {
				c := some()
				if before := c.Node.View().InDoubt(c.UID); before != nil {
					next := &Reservation{UID: c.UID, Node: c.Node, Allocation: before.Allocation}
					if _, added := r.Add(next, before); added {
						all = append(all, next)
					}
				}
			},
			func() {
				var gang []*Reservation
				for i := range 1 + rng.IntN(3) {
					id, n := types.UID(fmt.Sprint("p-", i)), node()
					gang = append(gang, &Reservation{UID: id, Node: r.node(n), Allocation: chosen(id, n, gpu())})
				}
				if rng.IntN(2) == 0 {
					gang[0].Allocation = nil
				}
				before := len(r.List())
				_, refused := r.AddAll(gang)
				if got := len(r.List()) - before; refused >= 0 && got != 0 || refused < 0 && got != len(gang) {
					t.Fatalf("%d of a gang of %d were added, refused: %d", got, len(gang), refused)
				}
				if refused < 0 {
					all = append(all, gang[1:]...)
				}
			},
			func() { r.Begin(uid(), node()) },
			func() { r.Keep(uid(), uid()) },
			func() { r.EndPlanned(uid(), uid()) },
			func() { r.Announce(some()) },
			func() { r.BindingBegan(some()) },
			func() { r.BindingRefused(some()) },
			func() { r.Written(some()) },
			func() { r.WriteEnded(some()) },
			func() { r.Unreserve(some(), nil) },
			func() { r.Unreserve(some(), boundPod()) },
			func() { r.PodBound(boundPod()) },
			func() { r.PodGone(uid()) },
			func() { r.PodThere(uid()) },
			func() { r.sweep() },
			func() { reading = append(reading, r.ToResolve()...) },
			func() {
				if len(reading) > 0 {
					r.Decide(reading[0], rng.IntN(2) == 0, chosen(reading[0].UID, "n-0", gpu()))
					r.Resolved(reading[0])
					reading = reading[1:]
				}
			},
			func() {
				id, n := uid(), node()
				r.ReserveNominated(r.node(n), id, chosen(id, n, gpu()), WaitsFor{Victims: []types.UID{uid()}, Until: r.clock.Now().Add(time.Minute)})
			},
			func() { r.EndNominated(uid()) },
			func() { r.ExpireNominated() },
			func() { r.pass(time.Duration(rng.IntN(40)) * time.Second) },
		}
		all = append(all, r.add(uid(), node(), gpu()))
		for range 3000 {
			steps[rng.IntN(len(steps))]()
			r.check(t)
		}
		for i := range 5 {
			r.PodGone(types.UID(fmt.Sprint("p-", i)))
		}
		r.sweep()
		r.check(t)
		if n := len(r.List()); n != 0 || r.Writing() != 0 {
			t.Errorf("seed %d: %d reservations are left of pods that are gone, %d of them being written", seed, n, r.Writing())
		}
	}
}

// TestViewConsistency: a view is of one moment.
func TestViewConsistency(t *testing.T) {
	r := newTestEnv()
	c := r.add("p", "n", "a")
	before := r.node("n").View()
	r.BindingBegan(c)
	r.Unreserve(c, nil)
	r.add("q", "n", "b")
	r.ReserveNominated(r.node("n"), "v", &allocation.Allocation{}, WaitsFor{Until: r.clock.Now().Add(time.Minute)})
	if len(before.Reservations) != 1 || before.Doubtful() || before.NominatedFor("v") != nil {
		t.Error("a view that was taken before has changed")
	}
	now := r.node("n").View()
	if len(now.Reservations) != 2 || now.InDoubt("p") != c || now.NominatedFor("v") == nil {
		t.Error("the view does not have what was done before it was taken")
	}
	if live := now.Live("p"); len(live.Reservations) != 1 || live.Reservations[0].UID != "q" {
		t.Errorf("for the pod in doubt, %v is reserved, want the other pod's GPU", live.Reservations)
	}
	if n := testing.AllocsPerRun(100, func() { r.node("n").View().InDoubt("p") }); n != 0 {
		t.Errorf("reading a node allocates %v times", n)
	}
}

// TestConcurrentViews is for the race detector. A reader also finds the effects of a step once it knows
// that the step is done.
func TestConcurrentViews(t *testing.T) {
	r := newTestEnv()
	node := r.node("n")
	added := make(chan *Reservation)
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for c := range added {
				if !slices.ContainsFunc(node.View().states, func(s state) bool { return s.r == c }) {
					t.Errorf("a reservation of pod %s was added and is not to be seen", c.UID)
				}
			}
		})
	}
	for i := range 500 {
		uid := types.UID(strconv.Itoa(i))
		c := r.add(uid, "n", "a")
		added <- c
		r.BindingBegan(c)
		if i%2 == 0 {
			r.PodBound(&Bound{UID: uid, Node: "n", Allocation: c.Allocation})
		}
	}
	close(added)
	readers.Wait()
	r.check(t)
}
