// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// State says how far a pod or gang has come.
type State string

// The states.
const (
	Pending State = "Pending"
	Bound   State = "Bound"
	Ended   State = "Ended"
)

// Explanation is what is said of a pod, a PodGroup, another gang, or an object of the Owners.
type Explanation struct {
	Kind      string `json:"kind"` // Pod, PodGroup, Gang or one of the Owners
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     State  `json:"state"`
	// Cause is the one dominant reason, Reason the same in a sentence, and Evidence what it is
	// seen by.
	Cause Cause `json:"cause,omitempty"`
	// Lacks is, for NeverFits, what the cluster has too little of: the causes of the fewest wishes without
	// which there would be room.
	Lacks    []Cause  `json:"lacks,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Evidence []string `json:"evidence,omitempty"`
	Next     string   `json:"next,omitempty"` // what to do about it
	// Scheduler is what the scheduler itself wrote on the pod.
	Scheduler string `json:"scheduler,omitempty"`
	// IgnoredKeys is what the event KeyIgnored says of keys of the pod that nothing reads.
	IgnoredKeys string       `json:"ignoredKeys,omitempty"`
	Refusals    []Refusal    `json:"refusals,omitempty"`   // the reason of the most nodes first
	Candidates  []Candidate  `json:"candidates,omitempty"` // the nearest first
	Relaxations []Relaxation `json:"relaxations,omitempty"`
	Gang        *Gang        `json:"gang,omitempty"`
	Choice      *Choice      `json:"choice,omitempty"` // of a bound pod
	// Pods are those of one of the Owners that has several, the first of which stands for it.
	Pods []Alike `json:"pods,omitempty"`
}

// Alike is pods of one object that have come as far and, if they wait, wait for the same.
type Alike struct {
	State State `json:"state"`
	// Cause is why they wait; empty of pods that do not, and of those that nobody looked at, see maxExplained.
	Cause Cause    `json:"cause,omitempty"`
	Pods  int      `json:"pods"`
	Named []string `json:"named"` // the first of them
}

// Refusal is what keeps the pod off some nodes. A node with several reasons is in that of the first.
type Refusal struct {
	Cause Cause    `json:"cause"`
	Text  string   `json:"text"`
	Nodes int      `json:"nodes"`
	Named []string `json:"named"` // the first of them
}

// Candidate is a node that would take the pod if something were otherwise.
type Candidate struct {
	Node      string     `json:"node"`
	Free      int        `json:"free"` // devices of the resource asked, whoever may have them
	Obstacles []Obstacle `json:"obstacles"`
	// Blockers are the fewest pods whose going would let the pod in, if the other obstacles are
	// none of pods; Exact: fewer do not do. Then it would get Gets.
	Blockers []Blocker `json:"blockers,omitempty"`
	Exact    bool      `json:"exact"`
	Gets     *Set      `json:"gets,omitempty"`
}

// Obstacle is one thing in a node that keeps the pod off it.
type Obstacle struct {
	Cause  Cause  `json:"cause"`
	Text   string `json:"text"`             // constant but for what the pod asks
	Detail string `json:"detail,omitempty"` // of this node

	kind kind
}

// Blocker is a pod in the way.
type Blocker struct {
	Pod      string `json:"pod"` // namespace/name
	Priority int32  `json:"priority"`
	GPUs     []int  `json:"gpus,omitempty"` // indices of those that it has
	// Lost is what is said of those of its GPUs that are unhealthy or no longer part of the node.
	Lost string `json:"lost,omitempty"`
	// MovesTo is a node that would take it now; empty if none would, and if it stays.
	MovesTo string `json:"movesTo,omitempty"`
	// Stays is why nobody should move it; empty if it may be moved.
	Stays string `json:"stays,omitempty"`
}

// Set is GPUs of a node, as indices.
type Set struct {
	Ring          []int   `json:"ring"` // in ring order
	LinkClass     string  `json:"linkClass,omitempty"`
	BandwidthGBps float64 `json:"bandwidthGBps,omitempty"` // of the ring; 0 for one GPU
	BestGBps      float64 `json:"bestGBps,omitempty"`      // of as many on this machine when empty
	Band          int     `json:"band"`
	NUMANodes     []int   `json:"numaNodes,omitempty"`
}

// Relaxation is what the pod would get if it asked for less.
type Relaxation struct {
	Wish  string `json:"wish"`  // what is dropped
	Nodes int    `json:"nodes"` // that would take the pod, or the members of the gang
	Node  string `json:"node,omitempty"`
	Gets  *Set   `json:"gets,omitempty"` // on that node
	Level string `json:"level,omitempty"`
}

// Gang is the gang that a pod is of.
type Gang struct {
	Name     string `json:"name"`    // as messages name it
	Minimum  int    `json:"minimum"` // members that start together; 0 if nobody says
	Have     int    `json:"have"`    // members there are
	Placed   int    `json:"placed"`  // members with a node
	Level    string `json:"level,omitempty"`
	Required string `json:"required,omitempty"` // the level that must have all
	Room     int    `json:"room,omitempty"`     // members that fit at the same time, in one domain of it
}

// Choice is where a bound pod is, and why.
type Choice struct {
	Node     string               `json:"node"`
	Set      *Set                 `json:"set,omitempty"` // by the graph of now
	At       *time.Time           `json:"at,omitempty"`
	Decision *allocation.Decision `json:"decision,omitempty"` // as it was decided then
	// Best is what the scheduler would give the pod now if it were placed anew, all others staying,
	// and Left the faster node that it would leave to larger pods. Not of a gang's members.
	Best     *Set             `json:"best,omitempty"`
	BestNode string           `json:"bestNode,omitempty"`
	Left     *allocation.Left `json:"left,omitempty"`
	// Compared is of how many nodes Best is the best, and NotCompared why the others took no part: by the first
	// reason of each, that of the most nodes first.
	Compared    int       `json:"compared,omitempty"`
	NotCompared []Refusal `json:"notCompared,omitempty"`
	// Profile is the schedulerName of the profile by which Best was chosen. Assumed: no scheduler has published
	// that profile, and the shipped one was taken.
	Profile string `json:"profile,omitempty"`
	Assumed bool   `json:"assumed,omitempty"`
}

// Bounds of what is shown.
const (
	maxNamed      = 3  // nodes named with a refusal
	maxCandidates = 4  // nearest nodes
	maxSearched   = 64 // nodes on which blockers are looked for
	maxWishes     = 16 // wishes of members of a gang that are told apart by value
)

// nodes names the first few of some nodes.
func nodes(names []string) string {
	if len(names) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
	}
	return strings.Join(names, ", ")
}

func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// anyOf names steps of which one is enough.
func anyOf(steps []string) string {
	last := len(steps) - 1
	if last < 2 {
		return strings.Join(steps, ", or ")
	}
	return strings.Join(steps[:last], ", ") + ", or " + steps[last]
}
