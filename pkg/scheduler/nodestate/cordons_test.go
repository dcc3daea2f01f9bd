// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/cordons"
)

// cordonRun is one random history of a node that is cordoned, drained and divided again and again, while
// schedulers bind pods to it and succeed each other. A step is a second.
//
// API server: writes are carried out up to requestTimeout after they were sent, also those that the
// client has given up. Informers are late by up to lateness. Bindings begin up to twenty minutes after
// the choice.
type cordonRun struct {
	t       *testing.T
	r       *rand.Rand
	clock   *tickClock
	start   time.Time
	without safeguard // the part left out, to show that the histories need it

	token, acknowledged string                 // at the API server: the cordon of the node, and the one acknowledged
	pods                map[types.UID]struct{} // bound to the node
	writes              []lateWrite
	processes           []*cordonProcess
	leads               *cordonProcess // nil: between two terms
	renewed             int            // when it did so last
	cordoned            int            // when the node was
	divides             bool           // the devices are being divided
	tokens, names       int
	divisions, binds    int
	late                []string // pods that came to a node whose devices were being divided
}

// safeguard is a part of the protocol.
type safeguard string

const (
	nothing         safeguard = ""
	acknowledgement safeguard = "the acknowledgement, with the settle time alone"
	liveRead        safeguard = "the read of the node by a new leader"
	takeover        safeguard = "the wait of a new leader for writes of its predecessor"
	doubt           safeguard = "the wait for a write without an answer"
)

// lateness is how late an informer may be: less than leader.ConfirmFor.
const lateness = 80

// lateWrite is a write that the API server carries out later.
type lateWrite struct {
	at int
	do func()
}

// cordonProcess is a scheduler.
type cordonProcess struct {
	*State

	holder   string
	acquired metav1.MicroTime
	lag      int      // of its informer of nodes
	seen     []string // the node's token by step, as the API server had it
	attempts []*cordonAttempt
}

// cordonAttempt is a pod that goes to the node.
type cordonAttempt struct {
	pod    *v1.Pod
	sends  int // when its Binding is sent
	answer int // when its client gets the answer, or gives up; 0 before it is sent
	bound  *bool
}

func (h *cordonRun) now() int { return int(h.clock.now.Sub(h.start) / time.Second) }

// carriesOut sends a write. It returns whether it was carried out when the client reads the result.
func (h *cordonRun) carriesOut(do func()) *bool {
	done := new(bool)
	if h.r.IntN(10) == 0 {
		return done // it is lost
	}
	at := h.now()
	if h.r.IntN(2) == 0 {
		at += h.r.IntN(int(requestTimeout / time.Second))
	}
	h.writes = append(h.writes, lateWrite{at, func() { do(); *done = true }})
	return done
}

func (h *cordonRun) bind(uid types.UID) func() {
	return func() {
		h.binds++
		h.pods[uid] = struct{}{}
		if h.divides {
			h.late = append(h.late, fmt.Sprintf("second %d: pod %s", h.now(), uid))
		}
	}
}

// newProcess starts a scheduler.
func (h *cordonRun) newProcess() *cordonProcess {
	config := testConfig()
	config.LeaderLease, config.Host = "nvtopo-scheduler", "host"
	p := &cordonProcess{State: New(config, h.clock), holder: fmt.Sprintf("host_%d", len(h.processes)), acquired: metav1.NewMicroTime(h.clock.now), lag: h.r.IntN(lateness)}
	p.Binder.leader.Connect(func(context.Context, string) ([]v1.Pod, error) { return nil, nil })
	if h.without == doubt {
		p.Binder.cordons = cordons.New(h.clock, 0)
	}
	p.Binder.readNode = func(context.Context, string) (*v1.Node, error) { return h.node(h.token), nil }
	if h.without == liveRead {
		p.Binder.readNode = nil
	}
	h.processes = append(h.processes, p)
	return p
}

func (h *cordonRun) node(token string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	if token != "" {
		n.Annotations = map[string]string{poolv1alpha1.AnnotationDraining: token}
	}
	return n
}

// elections renew the leader's Lease, or elect another process once it is over.
func (h *cordonRun) elections() {
	now := h.now()
	switch {
	case h.leads != nil && h.r.IntN(400) == 0:
		h.leads = nil // it is paused, or cut off, and continues
	case h.leads != nil:
		h.renewed = now
		h.shows(h.leads)
	case now > h.renewed+15:
		h.leads, h.renewed = h.newProcess(), now
		h.shows(h.leads)
		if err := h.leads.Binder.leader.Check(h.t.Context()); err != nil { // it knows its identity from here on
			h.t.Fatal(err)
		}
	}
}

// shows makes a process see that it leads. A former leader does not see its successor.
func (h *cordonRun) shows(p *cordonProcess) {
	l := lease("nvtopo-scheduler", h.clock.now, testConfig().LeaderTerm)
	l.Spec.HolderIdentity, l.Spec.AcquireTime = &p.holder, &p.acquired
	p.Binder.leader.See(l)
}

// schedules is a second of a process, whether or not it still leads.
func (h *cordonRun) schedules(p *cordonProcess) {
	now := h.now()
	p.seen = append(p.seen, h.token)
	if i := len(p.seen) - 1 - p.lag; i >= 0 {
		p.Binder.cordons.See(h.node(p.seen[i]))
	}
	if p == h.leads && h.r.IntN(40) == 0 {
		h.names++
		pod := schedtest.Pod(fmt.Sprintf("p%d", h.names)).GPUs(1).Obj()
		if p.Binder.cordons.Assume(pod, "n") {
			wait := h.r.IntN(5)
			if h.r.IntN(4) == 0 {
				wait = h.r.IntN(1200) // volumes, a gang, an API server that is slow
			}
			p.attempts = append(p.attempts, &cordonAttempt{pod: pod, sends: now + wait})
		}
	}
	p.attempts = slices.DeleteFunc(p.attempts, func(a *cordonAttempt) bool { return h.goesOn(p, a) })
	words := p.Binder.cordons.Words()
	if now%3 == 0 && len(words) == 1 && len(words[0].InFlight) == 0 && p.Binder.leader.Check(h.t.Context()) == nil && (p.Binder.leader.Settled() || h.without == takeover) {
		token := words[0].Token
		h.carriesOut(func() { h.acknowledged = token })
	}
}

// goesOn advances an attempt, and reports whether it has ended.
func (h *cordonRun) goesOn(p *cordonProcess, a *cordonAttempt) (ended bool) {
	now := h.now()
	switch {
	case now < a.sends:
		return false
	case a.answer == 0 && p.Binder.MayBind(h.t.Context(), "n") != nil:
		p.Binder.cordons.Forget(a.pod.UID, "n")
		return true
	case a.answer == 0:
		a.answer, a.bound = now+1+h.r.IntN(int(requestTimeout/time.Second)), h.carriesOut(h.bind(a.pod.UID))
		return false
	case *a.bound:
		p.Binder.cordons.Bound(a.pod.UID, "n")
		return true
	case now >= a.answer:
		p.Binder.cordons.Forget(a.pod.UID, "n")
		return true
	}
	return false
}

// divide is a second of the pool controller.
func (h *cordonRun) divide() {
	now := h.now()
	switch {
	case h.token == "" && h.r.IntN(100) == 0:
		h.tokens++
		h.token, h.cordoned = h.start.Add(time.Duration(h.tokens)).UTC().Format(time.RFC3339Nano), now
	case h.token == "", now%5 != 0:
	case h.divides && h.r.IntN(40) == 0:
		h.divides, h.token = false, ""
	case len(h.pods) > 0:
		clear(h.pods) // evicted
	case now >= h.cordoned+10 && (h.without == acknowledgement || h.acknowledged == h.token) && !h.divides:
		h.divides = true
		h.divisions++
	}
}

func (h *cordonRun) run(seconds int) {
	for range seconds {
		h.clock.now = h.clock.now.Add(time.Second)
		h.elections()
		steps := []func(){h.divide}
		for _, p := range h.processes[max(0, len(h.processes)-3):] {
			steps = append(steps, func() { h.schedules(p) })
		}
		h.r.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
		for _, step := range steps {
			step()
		}
		due := h.writes
		h.writes = nil
		for _, w := range due {
			if w.at > h.now() {
				h.writes = append(h.writes, w)
				continue
			}
			w.do()
		}
	}
}

func runCordons(t *testing.T, seed uint64, without safeguard) *cordonRun {
	t.Helper()
	start := time.Unix(1_700_000_000, 0)
	h := &cordonRun{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), clock: &tickClock{now: start}, start: start, without: without, renewed: -100,
		pods: map[types.UID]struct{}{},
	}
	h.run(4 * 3600)
	return h
}

// TestCordonHistories: no pod with devices is bound to a node whose devices are being divided since a
// scheduler acknowledged its cordon.
func TestCordonHistories(t *testing.T) {
	divisions, binds := 0, 0
	for seed := range uint64(12) {
		h := runCordons(t, seed, nothing)
		for _, l := range h.late {
			t.Errorf("seed %d: %s came while the devices were divided", seed, l)
		}
		divisions, binds = divisions+h.divisions, binds+h.binds
	}
	if divisions < 100 || binds < 100 {
		t.Errorf("the devices were divided %d times, and %d pods bound: the histories show nothing", divisions, binds)
	}
}

// TestCordonSafeguards: without any one part of the protocol, pods are bound while the devices are
// divided.
func TestCordonSafeguards(t *testing.T) {
	for _, without := range []safeguard{acknowledgement, liveRead, takeover, doubt} {
		t.Run("without "+string(without), func(t *testing.T) {
			for seed := range uint64(100) {
				if len(runCordons(t, seed, without).late) > 0 {
					return
				}
			}
			t.Error("no pod came too late in 100 histories")
		})
	}
}
