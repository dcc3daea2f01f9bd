// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// opKind is an operation on the cluster or on its machines and programs.
type opKind string

// The operations. Those with a lag undo themselves when it is over.
const (
	opCreate   opKind = "pod-create"
	opDelete   opKind = "pod-delete"
	opRecreate opKind = "pod-force-recreate" // deleted by force, the same name recreated at once
	opFail     opKind = "pod-fail"
	opFinish   opKind = "pod-finish"
	opEvict    opKind = "pod-evict"

	opGangCreate    opKind = "gang-create"
	opGangKill      opKind = "gang-kill-member" // its controller creates another one with its index
	opGangKillBound opKind = "gang-kill-bound"  // one that has its node
	opGangEdit      opKind = "gang-edit"        // minimum, level and timeout of its PodGroup
	opGangRecreate  opKind = "gang-recreate"    // deleted, and another one created under its name
	opGangDelete    opKind = "gang-delete"
	opGroupsFail    opKind = "groups-writes-fail" // of PodGroups

	opCordon        opKind = "node-cordon"
	opReturn        opKind = "node-delete-readd"      // the same machine under the same name; its pods stay
	opReplace       opKind = "node-delete-replace"    // another machine under the same name; its pods are gone
	opRackMoved     opKind = "node-rack-moved"        // by its labels, and back
	opRackLost      opKind = "node-rack-lost"         // its labels are removed, and restored
	opLinkDown      opKind = "graph-link-down"        // and up again
	opGPUSick       opKind = "graph-gpu-unhealthy"    // and well again
	opGPUGone       opKind = "graph-gpu-gone"         // and back again
	opGraphRemoved  opKind = "graph-deleted"          // the exporter has to notice
	opExporterLease opKind = "lease-exporter-stopped" // and resumed
	opAgentLease    opKind = "lease-agent-stopped"    // and resumed

	opKillLeader   opKind = "scheduler-kill-leader"
	opKillFollower opKind = "scheduler-kill-follower"
	opPauseLeader  opKind = "scheduler-pause-leader" // for longer than its Lease
	opRestartAPI   opKind = "apiserver-restart"
	opSlowAPI      opKind = "apiserver-slow"
	opFaultBurst   opKind = "apiserver-fault-burst"
	opLagWatches   opKind = "informers-delayed"
	opCutWatches   opKind = "watches-cut"
)

// operations is the only table of the operations, with their weights and durations. Pods' operations are
// drawn by weight; those of nodes and of the control plane are dealt from a shuffled deck with weight
// cards of each, so that all of them happen.
var operations = []struct {
	kind     opKind
	weight   int
	min, max time.Duration // lag
	deadly   bool          // may end a scheduler's process
}{
	{kind: opDelete, weight: 30},
	{kind: opRecreate, weight: 12},
	{kind: opFail, weight: 8},
	{kind: opFinish, weight: 20},
	{kind: opEvict, weight: 8},

	{kind: opGangCreate, weight: 5},
	{kind: opGangKill, weight: 3},
	{kind: opGangKillBound, weight: 4},
	{kind: opGangEdit, weight: 4},
	{kind: opGangRecreate, weight: 3},
	{kind: opGangDelete, weight: 2},
	// Longer than a gang may be partly bound.
	{kind: opGroupsFail, weight: 1, min: scheduleTimeout + 2*time.Second, max: scheduleTimeout + 15*time.Second},

	{kind: opCordon, weight: 2, min: 2 * time.Second, max: 8 * time.Second},
	{kind: opReturn, weight: 2, min: 100 * time.Millisecond, max: 3 * time.Second},
	{kind: opReplace, weight: 1, min: 500 * time.Millisecond, max: 4 * time.Second},
	{kind: opRackMoved, weight: 1, min: 3 * time.Second, max: 15 * time.Second},
	{kind: opRackLost, weight: 1, min: 3 * time.Second, max: 15 * time.Second},
	{kind: opLinkDown, weight: 2, min: 5 * time.Second, max: 20 * time.Second},
	{kind: opGPUSick, weight: 2, min: 5 * time.Second, max: 20 * time.Second},
	{kind: opGPUGone, weight: 1, min: 5 * time.Second, max: 20 * time.Second},
	{kind: opGraphRemoved, weight: 1},
	{kind: opExporterLease, weight: 1, min: 3 * time.Second, max: 10 * time.Second},
	{kind: opAgentLease, weight: 1, min: 3 * time.Second, max: 10 * time.Second},

	{kind: opKillLeader, weight: 2, max: 3 * time.Second, deadly: true},
	{kind: opKillFollower, weight: 1, max: 3 * time.Second, deadly: true},
	{kind: opPauseLeader, weight: 2, min: leaseDuration + time.Second, max: leaseDuration + 6*time.Second, deadly: true},
	{kind: opRestartAPI, weight: 1, min: 200 * time.Millisecond, max: 2 * time.Second, deadly: true},
	{kind: opSlowAPI, weight: 2, min: 3 * time.Second, max: 8 * time.Second},
	{kind: opFaultBurst, weight: 2, min: 3 * time.Second, max: 8 * time.Second},
	{kind: opLagWatches, weight: 2, min: 3 * time.Second, max: 8 * time.Second},
	{kind: opCutWatches, weight: 2},
}

const (
	// podEvery, gangEvery, nodeEvery and controlEvery are the mean times between two operations on pods, on
	// gangs, on nodes and on the control plane.
	podEvery     = 170 * time.Millisecond
	gangEvery    = 1500 * time.Millisecond
	nodeEvery    = 2500 * time.Millisecond
	controlEvery = 3 * time.Second
	// groupsEvery is the mean time from the end of one period in which no PodGroup can be written to the
	// next.
	groupsEvery = 20 * time.Second
	// crowd is the share of all GPUs that the pods which the plan has created and not ended yet request:
	// some always wait, so that preemption happens.
	crowd = 1.15
	// roundTime is the approximate duration of a round of two phases.
	roundTime = 10 * time.Minute
	// deadlyShare is the part of a round in which scheduler processes are killed. In the rest they live, so
	// that their resources can be compared.
	deadlyShare = 0.6
)

// op is one operation.
type op struct {
	At   time.Duration // since the start of its phase
	Kind opKind
	Lag  time.Duration
	Pod  string // or the gang
	Want podPlan
	Node int
	Gang gangPlan
	Edit gangEdit
	Draw uint64 // for choices that depend on the state of the cluster, such as which link
}

func (o *op) String() string {
	s := fmt.Sprintf("%8.3fs %s", o.At.Seconds(), o.Kind)
	switch {
	case o.Pod != "" && len(o.Want.GPUs) > 0:
		s += fmt.Sprintf(" %s %+v", o.Pod, o.Want)
	case o.Kind == opGangCreate, o.Kind == opGangRecreate:
		s += fmt.Sprintf(" %s %+v %+v", o.Pod, o.Gang, o.Edit)
	case o.Kind == opGangEdit:
		s += fmt.Sprintf(" %s %+v", o.Pod, o.Edit)
	case o.Pod != "":
		s += " " + o.Pod
	case strings.HasPrefix(string(o.Kind), "scheduler") || strings.HasPrefix(string(o.Kind), "api"):
	case o.Kind == opGroupsFail:
	default:
		s += fmt.Sprintf(" node %d draw %d", o.Node, o.Draw%1000)
	}
	if o.Lag > 0 {
		s += fmt.Sprintf(" for %.1fs", o.Lag.Seconds())
	}
	return s
}

// phase is a stretch of churn with calm at its end.
type phase struct {
	Deadly bool
	Length time.Duration
	Ops    []op
}

// plan is all phases of a run.
type plan struct {
	Seed   uint64
	Phases []phase
}

// hash identifies a plan.
func (p *plan) hash() string {
	h := sha256.New()
	fmt.Fprintf(h, "%+v", *p)
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// newPlan makes the plan of a seed for a number of nodes with a total of gpus GPUs.
func newPlan(seed uint64, length time.Duration, nodes, gpus int) *plan {
	p := &plan{Seed: seed}
	rounds := max(1, int((length+roundTime/2)/roundTime))
	for r := range rounds {
		first := time.Duration(float64(length/time.Duration(rounds)) * deadlyShare)
		for i, l := range []time.Duration{first, length/time.Duration(rounds) - first} {
			b := &planner{rng: rand.New(rand.NewPCG(seed, uint64(2*r+i))), nodes: nodes, gpus: gpus, prefix: fmt.Sprintf("s%d", 2*r+i)}
			p.Phases = append(p.Phases, phase{Deadly: i == 0, Length: l, Ops: b.phase(i == 0, l)})
		}
	}
	return p
}

// planner makes one phase.
type planner struct {
	rng         *rand.Rand
	nodes, gpus int
	prefix      string
	made        int
	live        []string
	wants       map[string]podPlan
	asked       int // GPUs of live, including those of gangs
	gangs       gangPlanner
}

func (b *planner) phase(deadly bool, length time.Duration) []op {
	b.wants = map[string]podPlan{}
	var out []op
	node, control := b.deck("node graph lease", false), b.deck("scheduler apiserver informers watches", deadly)
	groups := b.deck("groups", deadly)
	nextNode, nextControl, nextGang, nextGroups := b.gap(nodeEvery), b.gap(controlEvery), b.gap(gangEvery), b.gap(groupsEvery)/2
	for at := time.Duration(0); at < length; at += b.gap(podEvery) {
		for ; nextNode <= at; nextNode += b.gap(nodeEvery) {
			o := node()
			o.At, o.Node, o.Draw = nextNode, b.rng.IntN(b.nodes), b.rng.Uint64()
			out = append(out, o)
		}
		for ; nextControl <= at; nextControl += b.gap(controlEvery) {
			o := control()
			o.At, o.Draw = nextControl, b.rng.Uint64()
			out = append(out, o)
			nextControl += o.Lag // one at a time
		}
		for ; nextGroups <= at; nextGroups += b.gap(groupsEvery) {
			o := groups()
			o.At, o.Draw = nextGroups, b.rng.Uint64()
			out = append(out, o)
			nextGroups += o.Lag
		}
		for ; nextGang <= at; nextGang += b.gap(gangEvery) {
			o := b.gangOp()
			o.At, o.Draw = nextGang, b.rng.Uint64()
			out = append(out, o)
		}
		o := b.podOp()
		o.At = at
		out = append(out, o)
	}
	return out
}

// gap returns a random duration between half and one and a half times the mean.
func (b *planner) gap(mean time.Duration) time.Duration {
	return time.Duration((0.5 + b.rng.Float64()) * float64(mean))
}

// deck deals operations whose names begin with one of the words: first each once, then, repeatedly, as
// many of each as its weight.
func (b *planner) deck(words string, deadly bool) func() op {
	var once, cards []int
	for i, o := range operations {
		word, _, _ := strings.Cut(string(o.kind), "-")
		if slices.Contains(strings.Fields(words), word) && (deadly || !o.deadly) {
			once = append(once, i)
			for range o.weight {
				cards = append(cards, i)
			}
		}
	}
	left := once
	b.shuffle(left)
	return func() op {
		if len(left) == 0 {
			left = slices.Clone(cards)
			b.shuffle(left)
		}
		o := operations[left[0]]
		left = left[1:]
		return op{Kind: o.kind, Lag: o.min + time.Duration(b.rng.Float64()*float64(o.max-o.min))}
	}
}

func (b *planner) shuffle(cards []int) {
	b.rng.Shuffle(len(cards), func(i, j int) { cards[i], cards[j] = cards[j], cards[i] })
}

// TestPlan checks that the same seed gives the same plan, another gives another, and every operation of
// the table happens in four minutes.
func TestPlan(t *testing.T) {
	a, b := newPlan(7, 4*time.Minute, 14, 100), newPlan(7, 4*time.Minute, 14, 100)
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("two plans of one seed differ (-one,+other):\n%s", d)
	}
	if a.hash() != b.hash() || a.hash() == newPlan(8, 4*time.Minute, 14, 100).hash() {
		t.Errorf("plans of seeds 7, 7 and 8 have the hashes %s, %s, %s", a.hash(), b.hash(), newPlan(8, 4*time.Minute, 14, 100).hash())
	}
	for seed := range uint64(20) {
		seen := map[opKind]int{}
		p := newPlan(seed, 4*time.Minute, 14, 100)
		for _, ph := range p.Phases {
			var last time.Duration
			for _, o := range ph.Ops {
				seen[o.Kind]++
				last = max(last, o.At)
				if !ph.Deadly && (o.Kind == opKillLeader || o.Kind == opPauseLeader) {
					t.Errorf("seed %d: %s in a phase in which schedulers live", seed, o.Kind)
				}
			}
			if last > ph.Length {
				t.Errorf("seed %d: an operation at %v of a phase of %v", seed, last, ph.Length)
			}
		}
		for _, o := range operations {
			if seen[o.kind] == 0 {
				t.Errorf("seed %d: no %s in four minutes", seed, o.kind)
			}
		}
	}
}
