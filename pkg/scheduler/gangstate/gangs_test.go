// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
)

const testProfile = "test"

// member starts a member of a gang of the namespace "ns".
func member(gang string, size int, name string) *schedtest.PodWrapper {
	return schedtest.Pod(name).Namespace("ns").Scheduler(testProfile).
		Annotation(gangrequest.GangKey, gang).Annotation(gangrequest.GangSizeKey, strconv.Itoa(size))
}

// testEnv is a scheduler for gangs: a queue, cycles one after the other, concurrent binding cycles, and
// room for a number of members.
type testEnv struct {
	t      *testing.T
	gangs  *Gangs
	clock  *clocktesting.FakeClock
	rand   *rand.Rand
	faults bool

	unsynced bool                          // the first lists are not in
	kept     map[string][]*candidates.Kept // by node; the last argument of Keep

	mu      sync.Mutex
	pods    map[string]*v1.Pod      // by name: those that exist
	room    int                     // for reservations and bound pods
	entries map[types.UID]bool      // kept for a member; true: its cycle has used it
	keeps   map[types.UID]bool      // committed
	flying  map[types.UID]bool      // in a cycle, or being bound
	waiting map[types.UID]chan bool // at Permit
	active  []*v1.Pod
	asked   map[types.UID]bool // activated while in flight
	binding sync.WaitGroup
	running int // goroutines beside the cycles that do not wait for a decision
	whole   map[string]int
	never   map[string]bool // by name: pods that fit no node
	tries   int             // of plans
}

var _ Scheduler = &testEnv{}

func newTestEnv(t *testing.T, room int, seed uint64, faults bool) *testEnv {
	t.Helper()
	return newTestEnvWith(t, Config{}, room, seed, faults)
}

func newTestEnvWith(t *testing.T, c Config, room int, seed uint64, faults bool) *testEnv {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	r := &testEnv{
		t: t, clock: clk, rand: rand.New(rand.NewPCG(seed, 1)), room: room, faults: faults,
		pods: map[string]*v1.Pod{}, entries: map[types.UID]bool{}, keeps: map[types.UID]bool{}, flying: map[types.UID]bool{},
		waiting: map[types.UID]chan bool{}, asked: map[types.UID]bool{}, whole: map[string]int{},
	}
	r.gangs = New(clk, c, r)
	r.gangs.Serve(testProfile)
	return r
}

func (e *testEnv) MayLead() bool                             { return false }
func (e *testEnv) Synced() bool                              { return !e.unsynced }
func (e *testEnv) Fabric() *fabricview.View                  { return nil }
func (e *testEnv) Keep(places map[string][]*candidates.Kept) { e.kept = places }

// chance is false without faults.
func (e *testEnv) chance(percent int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.faults && e.rand.IntN(100) < percent
}

func (e *testEnv) Release(uids []types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, uid := range uids {
		delete(e.keeps, uid)
		if used, ok := e.entries[uid]; ok && !used {
			delete(e.entries, uid)
		}
	}
}

func (e *testEnv) Reject(uids []types.UID, _ string) { e.tell(uids, false) }

func (e *testEnv) Allow(uids []types.UID) { e.tell(uids, true) }

func (e *testEnv) tell(uids []types.UID, word bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, uid := range uids {
		if c := e.waiting[uid]; c != nil {
			e.send(c, word)
		}
	}
}

// send sends a decision to a binding cycle. The first one is used. The caller holds e.mu.
func (e *testEnv) send(c chan bool, word bool) {
	select {
	case c <- word:
		e.running++
	default:
	}
}

// forget ends the wait of a pod. A decision that was not read is dropped. The caller holds e.mu.
func (e *testEnv) forget(uid types.UID) {
	select {
	case <-e.waiting[uid]:
		e.running--
	default:
	}
	delete(e.waiting, uid)
}

// fly runs a function beside the cycles.
func (e *testEnv) fly(run func()) {
	e.mu.Lock()
	e.running++
	e.mu.Unlock()
	e.binding.Go(func() {
		run()
		e.mu.Lock()
		e.running--
		e.mu.Unlock()
	})
}

// rest waits until all functions beside the cycles have ended, or wait for a decision.
func (e *testEnv) rest() {
	rests := func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.running == 0
	}
	for range 1000 { // sooner than a wait by the clock
		if rests() {
			return
		}
		runtime.Gosched()
	}
	testkit.Soon(e.t, "the binding cycles rest", rests)
}

func (e *testEnv) Activate(pods []*v1.Pod) {
	for _, pod := range pods {
		open := e.gangs.Gate(pod) == ""
		e.mu.Lock()
		switch {
		case e.pods[pod.Name] == nil || e.pods[pod.Name].UID != pod.UID || e.pods[pod.Name].Spec.NodeName != "":
		case e.flying[pod.UID]:
			e.asked[pod.UID] = true
		case open:
			e.active = append(e.active, pod)
		}
		e.mu.Unlock()
	}
}

func (e *testEnv) Commit(c *Commit) {
	e.mu.Lock()
	for _, uid := range c.Members {
		e.keeps[uid] = true
		if used := e.entries[uid]; !used && e.exists(uid) {
			e.t.Errorf("%s is committed without %s", c.Key, uid)
		}
	}
	e.mu.Unlock()
	var err error
	if e.chance(10) {
		err = errors.New("no API server")
	}
	e.fly(func() { e.gangs.Written(c, err) })
}

func (e *testEnv) exists(uid types.UID) bool {
	for _, pod := range e.pods {
		if pod.UID == uid {
			return true
		}
	}
	return false
}

func (e *testEnv) Whole(c *Commit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.whole[c.Key.Name]++
}

func (e *testEnv) Settle(s *Settlement) { e.gangs.Settled(s, 0) } // no gang here has a PodGroup

func (e *testEnv) Say(gangrequest.Key, []*v1.Pod, string) {}

// set makes or changes a pod.
func (e *testEnv) set(pod *v1.Pod) {
	e.mu.Lock()
	e.pods[pod.Name] = pod
	e.mu.Unlock()
	e.gangs.SetPod(pod)
	e.Activate([]*v1.Pod{pod}) // as the queue does with a new pod
}

func (e *testEnv) delete(name string) {
	e.mu.Lock()
	pod := e.pods[name]
	delete(e.pods, name)
	if pod != nil {
		if used, ok := e.entries[pod.UID]; ok && !used {
			delete(e.entries, pod.UID)
		}
		if c := e.waiting[pod.UID]; c != nil {
			e.send(c, false)
		}
	}
	e.mu.Unlock()
	if pod != nil {
		e.gangs.DeletePod(pod)
	}
}

// cycle takes one pod from the queue. It reports whether there was one.
func (e *testEnv) cycle() bool {
	e.mu.Lock()
	if len(e.active) == 0 {
		e.mu.Unlock()
		return false
	}
	pod := e.active[0]
	e.active = e.active[1:]
	now := e.pods[pod.Name]
	if now == nil || now.UID != pod.UID || now.Spec.NodeName != "" || e.flying[pod.UID] || e.entries[pod.UID] {
		e.mu.Unlock()
		return true
	}
	e.flying[pod.UID] = true
	e.mu.Unlock()
	if !e.begin(pod) {
		e.land(pod)
	}
	return true
}

// land ends a pod's cycle without success.
func (e *testEnv) land(pod *v1.Pod) {
	e.mu.Lock()
	delete(e.flying, pod.UID)
	asked := e.asked[pod.UID]
	delete(e.asked, pod.UID)
	e.mu.Unlock()
	if asked {
		e.Activate([]*v1.Pod{pod})
	}
}

func (e *testEnv) begin(pod *v1.Pod) bool {
	turn, _ := e.gangs.Begin(pod)
	if turn.Why != "" {
		return false
	}
	if e.chance(10) {
		e.gangs.RefusedBy(pod, Refusal{Shape: "s", Node: "n"}, 1, "refused")
		return false
	}
	if turn.Held {
		e.mu.Lock()
		_, ok := e.entries[pod.UID]
		e.mu.Unlock()
		if !ok || !e.gangs.Reserved(pod.UID) {
			e.gangs.Unreserved(pod.UID)
			return false
		}
	} else if !e.hold(&turn, pod) {
		return false
	}
	e.mu.Lock()
	e.entries[pod.UID] = true
	e.mu.Unlock()
	if e.chance(5) {
		e.unreserve(pod)
		return false
	}
	e.mu.Lock()
	e.waiting[pod.UID] = make(chan bool, 1)
	e.mu.Unlock()
	timeout, ok := e.gangs.Permit(pod.UID)
	if !ok {
		e.unreserve(pod)
		return false
	}
	e.fly(func() { e.bind(pod, timeout > 0) })
	return true
}

// hold makes the reservations of all members, or none.
func (e *testEnv) hold(turn *Turn, pod *v1.Pod) bool {
	e.mu.Lock()
	bound := 0
	for _, p := range e.pods {
		if _, has := e.entries[p.UID]; p.Spec.NodeName != "" && !has {
			bound++
		}
	}
	e.tries++
	never := slices.ContainsFunc(turn.Pods, func(p *v1.Pod) bool { return e.never[p.Name] })
	if never || bound+len(e.entries)+len(turn.Pods) > e.room {
		e.mu.Unlock()
		e.gangs.Wait(turn.Gang.Key, &Wait{Why: "no room", ForChange: true})
		return false
	}
	uids := make([]types.UID, len(turn.Pods))
	for i, p := range turn.Pods {
		uids[i] = p.UID
		if _, has := e.entries[p.UID]; has {
			e.t.Errorf("%s has an entry of an earlier attempt", p.UID)
		}
		e.entries[p.UID] = false
	}
	e.mu.Unlock()
	if !e.gangs.Hold(turn, pod, nil) {
		e.Release(uids)
		return false
	}
	return true
}

func (e *testEnv) unreserve(pod *v1.Pod) {
	e.mu.Lock()
	e.forget(pod.UID)
	if e.keeps[pod.UID] && e.exists(pod.UID) {
		e.entries[pod.UID] = false
	} else {
		delete(e.entries, pod.UID)
	}
	e.mu.Unlock()
	e.gangs.Unreserved(pod.UID)
	e.gangs.Changed()
}

// bind waits at Permit and binds.
func (e *testEnv) bind(pod *v1.Pod, waits bool) {
	e.mu.Lock()
	c := e.waiting[pod.UID]
	if waits {
		e.running--
	}
	e.mu.Unlock()
	ok := true
	if waits {
		ok = <-c
	}
	e.mu.Lock()
	e.forget(pod.UID)
	now := e.pods[pod.Name]
	e.mu.Unlock()
	if !ok || now == nil || now.UID != pod.UID || e.chance(10) {
		e.unreserve(pod)
		e.land(pod)
		return
	}
	bound := now.DeepCopy()
	bound.Spec.NodeName = "n"
	e.mu.Lock()
	if e.pods[pod.Name] != now {
		e.mu.Unlock()
		e.unreserve(pod)
		e.land(pod)
		return
	}
	e.pods[pod.Name] = bound
	delete(e.entries, pod.UID)
	delete(e.flying, pod.UID)
	e.mu.Unlock()
	e.gangs.SetPod(bound)
}

// settle runs cycles and lets time pass until nothing happens any more.
func (e *testEnv) settle(rounds int) {
	for range rounds {
		for e.cycle() {
		}
		e.clock.Step(time.Second)
		e.gangs.tick()
		e.gangs.round()
		e.rest()
	}
}

func (e *testEnv) counts(gang string, size int) (bound int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range size {
		if pod := e.pods[fmt.Sprintf("%s-%d", gang, i)]; pod != nil && pod.Spec.NodeName != "" {
			bound++
		}
	}
	return bound
}

// nothingHeld fails the test if any state of attempts is left.
func (e *testEnv) nothingHeld() {
	e.t.Helper()
	e.binding.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.entries)+len(e.waiting)+len(e.flying) > 0 {
		e.t.Errorf("left: entries %v, waiting %d, in flight %v", e.entries, len(e.waiting), e.flying)
	}
	e.gangs.mu.Lock()
	defer e.gangs.mu.Unlock()
	for key, x := range e.gangs.queue.gangs {
		if x.attempt != nil || x.busy > 0 {
			e.t.Errorf("%s still has an attempt in phase %d, %v, busy %d", key, x.attempt.phase, x.attempt.steps, x.busy)
		}
	}
}

// TestRandomGangs lets gangs come to a scheduler with random failures: none is partly bound at the end,
// and no place is held.
func TestRandomGangs(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			const gangs, size = 6, 5
			room := 10 + int(seed%3)*10 // two, four or all of them
			r := newTestEnv(t, room, seed, true)
			for i := range size {
				for n := range gangs {
					name := fmt.Sprintf("g%d", n)
					r.set(member(name, size, fmt.Sprintf("%s-%d", name, i)).Obj())
				}
				r.settle(2)
			}
			r.settle(200)
			r.mu.Lock()
			r.faults = false
			r.mu.Unlock()
			r.settle(300)
			r.nothingHeld()
			whole := 0
			for n := range gangs {
				switch bound := r.counts(fmt.Sprintf("g%d", n), size); bound {
				case 0:
				case size:
					whole++
				default:
					t.Errorf("gang %d has %d of %d members bound", n, bound, size)
				}
			}
			if want := room / size; whole != want {
				t.Errorf("%d gangs are whole, want %d", whole, want)
			}
		})
	}
}

// TestMemberChurn deletes, remakes and gates members at any time. In the end all gangs are whole.
func TestMemberChurn(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			const gangs, size = 4, 4
			r := newTestEnv(t, gangs*size, seed, true)
			uid := 0
			chaos := rand.New(rand.NewPCG(seed, 2))
			for n := range gangs {
				for i := range size {
					name := fmt.Sprintf("g%d", n)
					r.set(member(name, size, fmt.Sprintf("%s-%d", name, i)).UID(fmt.Sprint(fmt.Sprintf("%s-%d", name, i), ".", uid)).Obj())
				}
			}
			for range 300 {
				gang := fmt.Sprintf("g%d", chaos.IntN(gangs))
				name := fmt.Sprintf("%s-%d", gang, chaos.IntN(size))
				uid++
				switch chaos.IntN(4) {
				case 0:
					r.delete(name)
					r.settle(chaos.IntN(2))
					r.set(member(gang, size, name).UID(fmt.Sprint(name, ".", uid)).Obj())
				case 1:
					r.gate(name, true)
					r.settle(chaos.IntN(2))
					r.gate(name, false)
				default:
					r.settle(1)
				}
			}
			r.mu.Lock()
			r.faults = false
			r.mu.Unlock()
			r.settle(300)
			r.nothingHeld()
			for n := range gangs {
				if bound := r.counts(fmt.Sprintf("g%d", n), size); bound != size {
					t.Errorf("gang %d has %d of %d members bound", n, bound, size)
				}
			}
		})
	}
}

// gate adds a scheduling gate to a pod that is not bound, or removes it.
func (e *testEnv) gate(name string, gated bool) {
	e.mu.Lock()
	pod := e.pods[name]
	if pod == nil || pod.Spec.NodeName != "" {
		e.mu.Unlock()
		return
	}
	pod = pod.DeepCopy()
	pod.Spec.SchedulingGates = nil
	if gated {
		pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/gate"}}
	}
	e.pods[name] = pod
	e.mu.Unlock()
	e.gangs.SetPod(pod)
	e.Activate([]*v1.Pod{pod})
}
