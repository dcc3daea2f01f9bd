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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testrig"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

const testProfile = "test"

func member(gang string, size int, name string, uid int) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name + "." + strconv.Itoa(uid)), Annotations: map[string]string{
			gangrequest.GangKey: gang, gangrequest.GangSizeKey: strconv.Itoa(size),
		}},
		Spec: v1.PodSpec{SchedulerName: testProfile},
	}
}

// rig is a scheduler as gangs see it: a queue, cycles one after the other, binding cycles side
// by side, and room for so many members.
type rig struct {
	t      *testing.T
	gangs  *Gangs
	clock  *clocktesting.FakeClock
	rand   *rand.Rand
	faults bool

	mu      sync.Mutex
	pods    map[string]*v1.Pod      // by name: those that exist
	room    int                     // for entries and bound pods
	entries map[types.UID]bool      // kept for a member; true: its cycle has used it
	keeps   map[types.UID]bool      // committed
	flying  map[types.UID]bool      // in a cycle, or being bound
	waiting map[types.UID]chan bool // at Permit
	active  []*v1.Pod
	asked   map[types.UID]bool // activated while in flight
	binding sync.WaitGroup
	running int // what goes on beside the cycles and waits for no word
	whole   map[string]int
	never   map[string]bool // by name: pods that no node takes
	tries   int             // of plans
}

var _ Doer = &rig{}

func newRig(t *testing.T, room int, seed uint64, faults bool) *rig {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	r := &rig{
		t: t, clock: clk, gangs: New(clk), rand: rand.New(rand.NewPCG(seed, 1)), room: room, faults: faults,
		pods: map[string]*v1.Pod{}, entries: map[types.UID]bool{}, keeps: map[types.UID]bool{}, flying: map[types.UID]bool{},
		waiting: map[types.UID]chan bool{}, asked: map[types.UID]bool{}, whole: map[string]int{},
	}
	r.gangs.Serve(testProfile, r)
	return r
}

// chance is false without faults.
func (r *rig) chance(percent int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.faults && r.rand.IntN(100) < percent
}

func (r *rig) Release(uids []types.UID, _ []*v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range uids {
		delete(r.keeps, uid)
		if used, ok := r.entries[uid]; ok && !used {
			delete(r.entries, uid)
		}
	}
}

func (r *rig) Reject(uids []types.UID, _ string) { r.tell(uids, false) }

func (r *rig) Allow(uids []types.UID) { r.tell(uids, true) }

func (r *rig) tell(uids []types.UID, word bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range uids {
		if c := r.waiting[uid]; c != nil {
			r.send(c, word)
		}
	}
}

// send gives a binding cycle its word, whose mu is held. The first word counts.
func (r *rig) send(c chan bool, word bool) {
	select {
	case c <- word:
		r.running++
	default:
	}
}

// forget ends the wait of a pod, whose mu is held. A word that nobody has read is dropped.
func (r *rig) forget(uid types.UID) {
	select {
	case <-r.waiting[uid]:
		r.running--
	default:
	}
	delete(r.waiting, uid)
}

// fly runs what goes on beside the cycles.
func (r *rig) fly(run func()) {
	r.mu.Lock()
	r.running++
	r.mu.Unlock()
	r.binding.Go(func() {
		run()
		r.mu.Lock()
		r.running--
		r.mu.Unlock()
	})
}

// rest waits until all that goes on beside the cycles has ended, or waits for its word.
func (r *rig) rest() {
	rests := func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.running == 0
	}
	for range 1000 { // sooner than a wait by the clock
		if rests() {
			return
		}
		runtime.Gosched()
	}
	testrig.Soon(r.t, "the binding cycles rest", rests)
}

func (r *rig) Activate(pods []*v1.Pod) {
	for _, pod := range pods {
		open := r.gangs.Gate(pod) == ""
		r.mu.Lock()
		switch {
		case r.pods[pod.Name] == nil || r.pods[pod.Name].UID != pod.UID || r.pods[pod.Name].Spec.NodeName != "":
		case r.flying[pod.UID]:
			r.asked[pod.UID] = true
		case open:
			r.active = append(r.active, pod)
		}
		r.mu.Unlock()
	}
}

func (r *rig) Commit(c *Commit) {
	r.mu.Lock()
	for _, uid := range c.Members {
		r.keeps[uid] = true
		if used := r.entries[uid]; !used && r.exists(uid) {
			r.t.Errorf("%s is committed without %s", c.Key, uid)
		}
	}
	r.mu.Unlock()
	var err error
	if r.chance(10) {
		err = errors.New("no API server")
	}
	r.fly(func() { r.gangs.Written(c, err) })
}

func (r *rig) exists(uid types.UID) bool {
	for _, pod := range r.pods {
		if pod.UID == uid {
			return true
		}
	}
	return false
}

func (r *rig) Whole(c *Commit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole[c.Key.Name]++
}

func (r *rig) Settle(s *Settlement) { r.gangs.Settled(s, 0) } // no gang of these has a PodGroup

func (r *rig) Say(gangrequest.Key, []*v1.Pod, string) {}

// set makes or changes a pod.
func (r *rig) set(pod *v1.Pod) {
	r.mu.Lock()
	r.pods[pod.Name] = pod
	r.mu.Unlock()
	r.gangs.SetPod(pod)
	r.Activate([]*v1.Pod{pod}) // as the queue does with a new pod
}

func (r *rig) delete(name string) {
	r.mu.Lock()
	pod := r.pods[name]
	delete(r.pods, name)
	if pod != nil {
		if used, ok := r.entries[pod.UID]; ok && !used {
			delete(r.entries, pod.UID)
		}
		if c := r.waiting[pod.UID]; c != nil {
			r.send(c, false)
		}
	}
	r.mu.Unlock()
	if pod != nil {
		r.gangs.DeletePod(pod)
	}
}

// cycle takes one pod from the queue. It reports whether there was one.
func (r *rig) cycle() bool {
	r.mu.Lock()
	if len(r.active) == 0 {
		r.mu.Unlock()
		return false
	}
	pod := r.active[0]
	r.active = r.active[1:]
	now := r.pods[pod.Name]
	if now == nil || now.UID != pod.UID || now.Spec.NodeName != "" || r.flying[pod.UID] || r.entries[pod.UID] {
		r.mu.Unlock()
		return true
	}
	r.flying[pod.UID] = true
	r.mu.Unlock()
	if !r.begin(pod) {
		r.land(pod)
	}
	return true
}

// land ends a pod's cycle without success.
func (r *rig) land(pod *v1.Pod) {
	r.mu.Lock()
	delete(r.flying, pod.UID)
	asked := r.asked[pod.UID]
	delete(r.asked, pod.UID)
	r.mu.Unlock()
	if asked {
		r.Activate([]*v1.Pod{pod})
	}
}

func (r *rig) begin(pod *v1.Pod) bool {
	turn, _ := r.gangs.Begin(pod)
	if turn.Why != "" {
		return false
	}
	if r.chance(10) {
		r.gangs.RefusedBy(pod, Refusal{Shape: "s", Node: "n"}, 1, "refused")
		return false
	}
	if turn.Held {
		r.mu.Lock()
		_, ok := r.entries[pod.UID]
		r.mu.Unlock()
		if !ok || !r.gangs.Reserved(pod.UID) {
			r.gangs.Unreserved(pod.UID)
			return false
		}
	} else if !r.hold(&turn, pod) {
		return false
	}
	r.mu.Lock()
	r.entries[pod.UID] = true
	r.mu.Unlock()
	if r.chance(5) {
		r.unreserve(pod)
		return false
	}
	r.mu.Lock()
	r.waiting[pod.UID] = make(chan bool, 1)
	r.mu.Unlock()
	timeout, ok := r.gangs.Permit(pod.UID)
	if !ok {
		r.unreserve(pod)
		return false
	}
	r.fly(func() { r.bind(pod, timeout > 0) })
	return true
}

// hold makes the entries of all, or none.
func (r *rig) hold(turn *Turn, pod *v1.Pod) bool {
	r.mu.Lock()
	bound := 0
	for _, p := range r.pods {
		if _, has := r.entries[p.UID]; p.Spec.NodeName != "" && !has {
			bound++
		}
	}
	r.tries++
	never := slices.ContainsFunc(turn.Pods, func(p *v1.Pod) bool { return r.never[p.Name] })
	if never || bound+len(r.entries)+len(turn.Pods) > r.room {
		r.mu.Unlock()
		r.gangs.Wait(turn.Gang.Key, &Wait{Why: "no room", ForChange: true})
		return false
	}
	uids := make([]types.UID, len(turn.Pods))
	for i, p := range turn.Pods {
		uids[i] = p.UID
		if _, has := r.entries[p.UID]; has {
			r.t.Errorf("%s has an entry of an earlier attempt", p.UID)
		}
		r.entries[p.UID] = false
	}
	r.mu.Unlock()
	if !r.gangs.Hold(turn, pod, nil) {
		r.Release(uids, nil)
		return false
	}
	return true
}

func (r *rig) unreserve(pod *v1.Pod) {
	r.mu.Lock()
	r.forget(pod.UID)
	if r.keeps[pod.UID] && r.exists(pod.UID) {
		r.entries[pod.UID] = false
	} else {
		delete(r.entries, pod.UID)
	}
	r.mu.Unlock()
	r.gangs.Unreserved(pod.UID)
	r.gangs.Changed()
}

// bind waits at Permit and binds.
func (r *rig) bind(pod *v1.Pod, waits bool) {
	r.mu.Lock()
	c := r.waiting[pod.UID]
	if waits {
		r.running--
	}
	r.mu.Unlock()
	ok := true
	if waits {
		ok = <-c
	}
	r.mu.Lock()
	r.forget(pod.UID)
	now := r.pods[pod.Name]
	r.mu.Unlock()
	if !ok || now == nil || now.UID != pod.UID || r.chance(10) {
		r.unreserve(pod)
		r.land(pod)
		return
	}
	bound := now.DeepCopy()
	bound.Spec.NodeName = "n"
	r.mu.Lock()
	if r.pods[pod.Name] != now {
		r.mu.Unlock()
		r.unreserve(pod)
		r.land(pod)
		return
	}
	r.pods[pod.Name] = bound
	delete(r.entries, pod.UID)
	delete(r.flying, pod.UID)
	r.mu.Unlock()
	r.gangs.SetPod(bound)
}

// settle runs cycles and lets time pass until nothing happens any more.
func (r *rig) settle(rounds int) {
	for range rounds {
		for r.cycle() {
		}
		r.clock.Step(time.Second)
		r.gangs.tick()
		r.gangs.round()
		r.rest()
	}
}

func (r *rig) counts(gang string, size int) (bound int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range size {
		if pod := r.pods[fmt.Sprintf("%s-%d", gang, i)]; pod != nil && pod.Spec.NodeName != "" {
			bound++
		}
	}
	return bound
}

// nothingHeld fails the test if anything is left of attempts.
func (r *rig) nothingHeld() {
	r.t.Helper()
	r.binding.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.entries)+len(r.waiting)+len(r.flying) > 0 {
		r.t.Errorf("left: entries %v, waiting %d, in flight %v", r.entries, len(r.waiting), r.flying)
	}
	r.gangs.mu.Lock()
	defer r.gangs.mu.Unlock()
	for key, x := range r.gangs.gangs {
		if x.attempt != nil || x.busy > 0 {
			r.t.Errorf("%s still has an attempt in phase %d, %v, busy %d", key, x.attempt.phase, x.attempt.steps, x.busy)
		}
	}
}

// TestGangsAtRandom lets gangs come to a scheduler in which everything fails now and then:
// none is ever partly bound at the end, and nothing is held for anybody.
func TestGangsAtRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			const gangs, size = 6, 5
			room := 10 + int(seed%3)*10 // two, four or all of them
			r := newRig(t, room, seed, true)
			for i := range size {
				for n := range gangs {
					name := fmt.Sprintf("g%d", n)
					r.set(member(name, size, fmt.Sprintf("%s-%d", name, i), 0))
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

// TestMembersComeAndGo deletes, remakes and gates members at any time. In the end all gangs are
// whole.
func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			const gangs, size = 4, 4
			r := newRig(t, gangs*size, seed, true)
			uid := 0
			chaos := rand.New(rand.NewPCG(seed, 2))
			for n := range gangs {
				for i := range size {
					name := fmt.Sprintf("g%d", n)
					r.set(member(name, size, fmt.Sprintf("%s-%d", name, i), uid))
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
					r.set(member(gang, size, name, uid))
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

// gate adds a scheduling gate to a pod that is not bound, or takes it away.
func (r *rig) gate(name string, gated bool) {
	r.mu.Lock()
	pod := r.pods[name]
	if pod == nil || pod.Spec.NodeName != "" {
		r.mu.Unlock()
		return
	}
	pod = pod.DeepCopy()
	pod.Spec.SchedulingGates = nil
	if gated {
		pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/gate"}}
	}
	r.pods[name] = pod
	r.mu.Unlock()
	r.gangs.SetPod(pod)
	r.Activate([]*v1.Pod{pod})
}

// TestThePauseGrowsWhilePlansCannotBeHeld: each second a plan was made and refused, for ever.
func TestThePauseGrowsWhilePlansCannotBeHeld(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
	g := New(clk)
	g.Serve(testProfile, idle{})
	pod := member("g", 1, "p", 0)
	g.SetPod(pod)
	key, _ := gangrequest.KeyOf(pod)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if why := g.Gate(pod); why != "" {
			t.Fatalf("before plan %d: %s", i, why)
		}
		g.NotHeld(key, "no")
		until := clk.Now().Add(want * time.Second)
		clk.SetTime(until.Add(-time.Nanosecond))
		g.tick()
		if g.Gate(pod) != "no" {
			t.Errorf("after plan %d the pause is less than %d s", i, want)
		}
		clk.SetTime(until)
		g.tick()
	}
}
