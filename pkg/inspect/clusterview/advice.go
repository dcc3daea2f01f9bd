// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// DefaultMaxMoves is how many pods one Advice moves at most, unless it is told otherwise: more
// than people carry out by hand.
const DefaultMaxMoves = 16

// AdviceOptions say what to look for.
type AdviceOptions struct {
	// GPUs is the size of the linked groups that are to be free.
	GPUs int
	// MaxMoves is how many pods may move; DefaultMaxMoves if it is 0.
	MaxMoves int
	// Steps bounds how often a pod is tried on a node; DefaultSteps if it is 0.
	Steps int
}

// Advice is which pods to move, one after the other, so that more linked groups are free.
type Advice struct {
	GPUs    int    `json:"gpus"`              // size of the groups
	MinLink string `json:"minLink,omitempty"` // as View.MinLink
	// Before and After are the free linked groups now and once all moves are made. Ideal is how
	// many so many free GPUs of each model could be.
	Before int    `json:"before"`
	After  int    `json:"after"`
	Ideal  int    `json:"ideal"`
	Moves  []Move `json:"moves"`
	// Freed are the nodes that have more free linked groups once all moves are made.
	Freed []Freed `json:"freed,omitempty"`
	// Commands make the moves, one after the other, each when the one before it has ended.
	// The nodes that pods leave are cordoned meanwhile: else they may get the replacements.
	Commands []string `json:"commands,omitempty"`
	// Cordoned are the nodes of which nothing counts only because they are cordoned.
	Cordoned []Cordoned `json:"cordoned,omitempty"`
	// Proven: no moves that are allowed free more groups, and no fewer moves as many.
	Proven bool `json:"proven"`
	// Unmovable is how many pods with GPUs must stay, by the reason.
	Unmovable map[string]int `json:"unmovable,omitempty"`
	// Staying names these pods, such as "team/train-0 on node-7", by the reason.
	Staying map[string][]string `json:"-"`
}

// Freed is how many free linked groups more a node has.
type Freed struct {
	Node   string `json:"node"`
	Groups int    `json:"groups"`
}

// Cordoned is what a node has free once it is uncordoned.
type Cordoned struct {
	Node     string `json:"node"`
	FreeGPUs int    `json:"freeGPUs"`
	Groups   int    `json:"groups"` // linked ones
}

// Move is one pod that goes to another place: it is evicted, its controller makes it again, and
// it is placed there.
type Move struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	From      string    `json:"from"` // node
	FromGPUs  []int     `json:"fromGPUs"`
	// To is the node with room for it, and ToGPUs the GPUs that the scheduler chooses there once
	// the moves before are made. It may be the node that it is on.
	To     string `json:"to"`
	ToGPUs []int  `json:"toGPUs"`
	// Gain is how many linked groups more are free after the move than before it.
	Gain int `json:"gain"`
	// Replacement are the words by which kubectl finds the pod that is made in its place.
	Replacement string `json:"-"`
}

// Advise looks for the moves that free the most linked groups, and of these for the fewest. It
// moves each pod at most once; never one that is Unmovable; never more pods of a
// PodDisruptionBudget than may be disrupted at the same time; and each only to a node that has
// the GPUs, CPUs, memory and labels for it, as the scheduler judges, GPUs of the same model, and
// no pods that hold GPUs of which nobody knows which these are. None gets a slower ring than it
// has. Volumes, ports and what other pods demand of their neighbours it does not look at.
//
// In a small cluster all sequences of moves are tried. In a large one, or if that takes too many
// steps, the moves are taken that free the most groups a move, node by node, until none gains
// anything: then it is not Proven.
func (v *View) Advise(opt AdviceOptions) Advice {
	p := v.newProblem(opt)
	best := p.search()
	out := Advice{
		GPUs: opt.GPUs, MinLink: v.MinLink, Before: p.before, After: p.before, Ideal: p.ideal, Moves: []Move{}, Freed: best.freed(), Cordoned: p.cordoned,
		Proven: p.proven, Unmovable: map[string]int{}, Staying: p.staying,
	}
	for why, pods := range p.staying {
		out.Unmovable[why] = len(pods)
	}
	value := p.before
	for _, s := range best.moved {
		pod, from := &p.pods[s.pod], p.pods[s.pod].node
		m := Move{
			Namespace: pod.view.Namespace, Name: pod.view.Name, UID: pod.view.UID, From: p.nodes[from].view.Name, FromGPUs: pod.view.GPUs,
			To: p.nodes[s.to].view.Name, ToGPUs: s.gpus, Gain: s.value - value,
			Replacement: pod.view.Replacement,
		}
		value = s.value
		out.Moves = append(out.Moves, m)
	}
	out.After, out.Commands = value, commandsOf(out.Moves)
	return out
}

// AdviseAll advises for every size of group of two GPUs or more, greatest first.
func (v *View) AdviseAll(maxMoves int) []Advice {
	var out []Advice
	for _, k := range Sizes() {
		if k > 1 {
			out = append(out, v.Advise(AdviceOptions{GPUs: k, MaxMoves: maxMoves}))
		}
	}
	return out
}

// fits chooses the GPUs of a pod on a node, as the scheduler would; ok is false if it has no
// room there, or should not be there.
func (p *problem) fits(n *place, pod *movable) (to placed, ok bool) {
	if !n.view.Open() || n.view.used.Foreign[n.view.accel] || n.view.Model != p.nodes[pod.node].view.Model || !pod.eligible.Allows(n.view.object) {
		return to, false
	}
	if room := n.room(); room.Holds(pod.request) == 0 {
		return to, false
	}
	u := n.usage()
	if placement.CheckNode(&placement.Demand{Request: pod.request}, n.view.known, placement.Fits, p.view.objects.Now) != placement.Fits {
		return to, false
	}
	a, reason := placement.Choose(u, pod.request, false)
	if reason != placement.Fits {
		return to, false
	}
	a.Assumed = p.view.objects.Now
	accel := n.view.known.Accels[n.view.accel]
	to = placed{allocation: a, set: a.Mask(accel.Resource, accel.Graph)}
	return to, pod.view.Ring == nil || nvtopo.GBps(accel.Tables.Ring(to.set)) >= pod.view.Ring.BandwidthGBps
}

func (n *place) indices(set nvtopo.Mask) []int { return indices(n.view.Graph(), set) }
