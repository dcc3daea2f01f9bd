// SPDX-License-Identifier: Apache-2.0

package fabric

import (
	"errors"
	"fmt"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Supply is the room of one node for members of one shape.
type Supply struct {
	Slots *Slots // nil: nothing
	Limit Limit
	// Preference is the sum of the weights of a member's preferred node affinity that match the node.
	// Greater is better.
	Preference int64
	// Hardware is the part of these weights that is about the node's hardware. It decides between plans
	// before their time does.
	Hardware int64
}

// Limit is the most members that a node can take for reasons other than GPUs: CPU, memory, ports,
// anti-affinity. The zero value limits nothing; AtMost(0) allows no member at all.
type Limit struct{ excluded int } // how many less than maxSlots

// AtMost limits a node to that many members, none if it is negative.
func AtMost(members int) Limit {
	return Limit{maxSlots - min(max(members, 0), maxSlots)}
}

// maxSlots bounds the slots of one node, so that sums over MaxNodes fit 31 bits.
const maxSlots = 1 << 14

// count returns how many members fit in a band.
func (s *Supply) count(band int) int {
	return min(s.Slots.Count(band), maxSlots-s.Limit.excluded)
}

// Members returns how many members the node can take, in any band.
func (s *Supply) Members() int { return s.count(worstBand) }

// Shape is the members of a gang with the same request.
type Shape struct {
	GPUs  int      // of one member
	Nodes []Supply // by node of the tree
	// Kind is the same for shapes whose members request the same GPUs: all of them get GPUs of one model.
	// All GPUs without a known model are one model. 0: of any model, as for members without GPUs.
	Kind int
	// Models are the models of those members of the kind that have nodes. Each of the other members gets one
	// of them. Nil: no member has a node, or its model is not known.
	Models []string

	withSlots []int32 // nodes with slots, ascending; nil: not listed yet
}

// Member is one member of a gang.
type Member struct {
	Shape int // in Request.Shapes
	// Bound reports that the member has its node already: Node. It stays there, and its GPUs are not part of
	// the supply.
	Bound bool
	Node  int
}

// Strategy is a gang's wish for its spread over the fabric.
type Strategy uint8

// The strategies, by the names used in pods.
const (
	StrategyMixed              Strategy = iota // near each other; the zero value
	StrategyCommunicationHeavy                 // the same; the caller waits longer for a better level
	StrategyComputeHeavy                       // in as many domains as possible, evenly
)

var strategyNames = [...]string{"mixed", "communication-heavy", "compute-heavy"}

// String returns the name used in pods.
func (s Strategy) String() string {
	if int(s) < len(strategyNames) {
		return strategyNames[s]
	}
	return fmt.Sprintf("Strategy(%d)", uint8(s))
}

// strategyAliases are other spellings: those with underscores, and names of the strategies' effect.
var strategyAliases = map[string]Strategy{
	"communication_heavy": StrategyCommunicationHeavy, "same-switch": StrategyCommunicationHeavy,
	"compute_heavy": StrategyComputeHeavy, "spread": StrategyComputeHeavy, "best-effort": StrategyMixed,
}

// ParseStrategy parses a strategy's name or one of its other spellings.
func ParseStrategy(s string) (Strategy, error) {
	for i, name := range strategyNames {
		if name == s {
			return Strategy(i), nil
		}
	}
	if alias, ok := strategyAliases[s]; ok {
		return alias, nil
	}
	return StrategyMixed, fmt.Errorf("unknown placement strategy %q, want one of communication-heavy, compute-heavy, mixed", s)
}

// Request is a gang to place. Levels are named as in the tree; "" is none.
type Request struct {
	Shapes  []Shape
	Members []Member // in the order of their ranks

	Strategy Strategy
	Required string // all members in one domain of this level
	// Preferred is a level that is good enough: a plan of it comes before a faster one beyond it.
	// Plan.Preferred refers to it.
	Preferred string

	// Segments are the members whose rank divided by SegmentSize is the same. They belong into one domain of
	// the level SegmentLevel (default: the innermost): always if SegmentRequired, as many segments as
	// possible otherwise. 0 is no segments. They are of the shape that has the most members; the others,
	// such as a launcher, are in none and fewer than a segment.
	SegmentSize     int
	SegmentLevel    string
	SegmentRequired bool

	// SpreadOver is the level that members are spread over evenly, with StrategyComputeHeavy or without
	// (default with it: the innermost). MaxPerDomain bounds the members in one of its domains, bound ones
	// included; 0 is no bound.
	SpreadOver   string
	MaxPerDomain int

	// Near are nodes that the members should be near to although they have no member of this gang. They are
	// used like bound members for the level and the domains, but never for the required level, of which the
	// nearest domain that has room is used.
	Near []int

	// MessageBytes is the bytes that each GPU sends in the all-reduce by whose time plans are compared; 0 is
	// DefaultMessage.
	MessageBytes float64

	// Remaining is called for gangs of several shapes only: it returns the node's supply for a shape once
	// the members placed there so far have the given GPUs. placed is their number by shape. It must be a
	// function of its arguments.
	Remaining func(shape, node int, used nvtopo.Mask, placed []int) Supply
}

// DefaultMessage is the bytes that each GPU sends in an all-reduce, if the request gives none: 1 GB. At
// that size bandwidth decides, and latency hardly matters.
const DefaultMessage = 1e9

// Message returns the bytes that each GPU sends in the all-reduce by which plans are compared.
func (r *Request) Message() float64 {
	if r.MessageBytes > 0 {
		return r.MessageBytes
	}
	return DefaultMessage
}

// Plan is the nodes and GPUs of the members of a gang, and the plan's quality.
type Plan struct {
	Level string // of the smallest domain that has all members, bound ones included
	// Domains are the domains with members, by depth; Domains[0] is the root.
	Domains [][]int
	// Fewest is a bound: the nearest plan for these members has that many domains of each depth, or more. It
	// equals the numbers of Domains if Exact, unless time decided, and is 0 for members that are spread or
	// near others.
	Fewest []int
	Nodes  []int         // of each rank
	Sets   []nvtopo.Mask // GPUs of each rank; 0 for bound ones and members without GPUs
	Band   int           // the worst of the members placed
	// SegmentsCut is the number of segments that are not in one domain.
	SegmentsCut int
	// Crossings is how often the ring of all ranks goes from one innermost domain to another.
	Crossings int
	// Millis is the time of an all-reduce of the request's message over measured links; 0 if a link is
	// assumed or not known, and for members that are spread or near others.
	Millis float64
	// Chosen summarises the plan, and Others the best plan on each other model that has room, fastest first
	// and at most maxModelsNamed. They are set where members get one model of several, except with too many
	// kinds to try all combinations.
	Chosen    Alternative
	Others    []Alternative
	Preferred bool // the level is the preferred one or better; true if none is preferred
	// Exact reports that it is proven that no plan on the same models, rings and domains is better in level,
	// domains and band (2 to 4) and, for members of one shape, in segments, preference and best fit too (5
	// to 7). It does not cover the hardware and the time that decided between plans.
	Exact bool
}

// Alternative summarises a plan for users: model, place and time.
type Alternative struct {
	Model  string // as in node labels, several joined by "and"; empty without GPUs
	GPUs   int    // of the members that the plan places
	Joins  bool   // Domain includes bound members
	Domain string // the smallest that has all members: a domain, a node or cluster
	// Millis is the time of an all-reduce of the request's message, estimated by rules of thumb where
	// nothing else is known; 0 if a bandwidth is not known.
	Millis float64
}

// UnplaceableError reports that there is no room for a gang, and how many members fit.
type UnplaceableError struct {
	Level      string // the required level, the cluster if there is none
	Have, Want int    // the most members that fit in one domain of the level; and all members
	Domain     string // the domain where Have fit; empty if none does
	Detail     string // an obstacle other than room; empty if it is room
	// Fit is how many of the members without a node fit there at the same time, by shape; nil unless they
	// are of several shapes.
	Fit []int
	// AtMost reports that Have treats each of several shapes as if the others were absent.
	AtMost bool
	// Unproven reports that not all ways to place members of several shapes were tried.
	Unproven bool
	// Models is how many fit on each model, most first; nil unless members get one model and that matters.
	// MixedFits reports that there is a plan on several.
	Models    []ModelRoom
	MixedFits bool
}

// ModelRoom is how many members fit on one model, bound ones included.
type ModelRoom struct {
	Model string // as in node labels; several joined by "and"
	Have  int
}

// Error returns the reason shown to users, such as "rack: 3 of 4", or "cluster: 14 of 16 on NVIDIA-A100,
// 11 on NVIDIA-H200; allow-mixed-models would fit".
func (e *UnplaceableError) Error() string {
	s := e.Level + ": " + e.Room()
	if e.Detail != "" {
		s += ", " + e.Detail
	}
	if e.MixedFits {
		s += "; allow-mixed-models would fit"
	}
	return s
}

// maxModelsNamed bounds how many models a reason names.
const maxModelsNamed = 4

// Room returns how many members fit of how many, by model where that matters.
func (e *UnplaceableError) Room() string {
	s := fmt.Sprintf("%d of %d", e.Have, e.Want)
	if e.AtMost {
		s = "at most " + s
	}
	for i, m := range e.Models {
		switch {
		case i == maxModelsNamed:
			return s + fmt.Sprintf(", less on %d more", len(e.Models)-i)
		case i > 0:
			s += fmt.Sprintf(", %d", m.Have)
		}
		s += " on " + m.Model
	}
	return s
}

// wishes are the levels of a request as depths.
type wishes struct {
	required, preferred int // 0: the whole cluster
	segment             int // depth of segments, -1 for none
	segmented           int // shape of segments
	spread              int // depth to spread over, -1 for none
}

// check returns the levels of the request as depths and refuses contradictions.
func (r *Request) check(t *Tree) (w wishes, err error) {
	if err := r.checkMembers(t); err != nil {
		return w, err
	}
	if w.required, err = depthOf(t, "required level", r.Required, 0); err != nil {
		return w, err
	}
	if w.preferred, err = depthOf(t, "preferred level", r.Preferred, 0); err != nil {
		return w, err
	}
	w.segment, w.spread = -1, -1
	if r.SegmentSize != 0 {
		if w.segment, w.segmented, err = r.checkSegments(t); err != nil {
			return w, err
		}
	}
	if r.Strategy == StrategyComputeHeavy || r.SpreadOver != "" {
		if w.spread, err = depthOf(t, "level to spread over", r.SpreadOver, t.Depth()); err != nil {
			return w, err
		}
	}
	return w, r.checkSpread(t, w)
}

func (r *Request) checkSpread(t *Tree, w wishes) error {
	switch {
	case r.MaxPerDomain < 0:
		return fmt.Errorf("at most %d members in a domain: want 0 or more", r.MaxPerDomain)
	case r.MaxPerDomain > 0 && w.spread < 0:
		return errors.New("a bound on the members of a domain needs a level to spread over")
	case w.spread >= 0 && w.segment >= 0:
		return errors.New("members cannot be spread and kept in segments")
	case w.spread >= 0 && w.required > 0 && w.required >= w.spread:
		return fmt.Errorf("members cannot be spread over several of level %q and be in one of level %q", t.LevelName(w.spread), t.LevelName(w.required))
	case w.spread > t.Depth():
		return errors.New("members cannot be spread over nodes: bound them by the supply's limit")
	}
	return nil
}

func (r *Request) checkMembers(t *Tree) error {
	if len(r.Members) == 0 {
		return errors.New("a gang without members")
	}
	for i := range r.Shapes {
		if n := len(r.Shapes[i].Nodes); n != t.Len() {
			return fmt.Errorf("shape %d: the supply of %d nodes for a fabric of %d", i, n, t.Len())
		}
	}
	for rank, m := range r.Members {
		switch {
		case m.Shape < 0 || m.Shape >= len(r.Shapes):
			return fmt.Errorf("rank %d: there is no shape %d", rank, m.Shape)
		case m.Bound && (m.Node < 0 || m.Node >= t.Len()):
			return fmt.Errorf("rank %d: there is no node %d", rank, m.Node)
		}
	}
	if several(r.Members) && r.Remaining == nil {
		return errors.New("members of several shapes, and nothing says what they leave each other")
	}
	for _, n := range r.Near {
		if n < 0 || n >= t.Len() {
			return fmt.Errorf("there is no node %d to be near to", n)
		}
	}
	return nil
}

// several reports whether members without a node are of several shapes.
func several(members []Member) bool {
	first := -1
	for _, m := range members {
		if m.Bound {
			continue
		}
		if first >= 0 && m.Shape != first {
			return true
		}
		first = m.Shape
	}
	return false
}

// checkSegments returns the depth and the shape of segments.
func (r *Request) checkSegments(t *Tree) (depth, shape int, err error) {
	depth, err = depthOf(t, "segment level", r.SegmentLevel, t.Depth())
	members := make([]int, len(r.Shapes))
	for _, m := range r.Members {
		members[m.Shape]++
	}
	for s, n := range members {
		if n > members[shape] {
			shape = s
		}
	}
	switch {
	case err != nil:
		return 0, 0, err
	case r.SegmentSize < 1:
		return 0, 0, fmt.Errorf("segments of %d members: want 1 or more", r.SegmentSize)
	case depth > t.Depth():
		return 0, 0, errors.New("segments on one node: ask for larger members instead")
	case members[shape]%r.SegmentSize != 0:
		return 0, 0, fmt.Errorf("segments of %d do not divide %d members", r.SegmentSize, members[shape])
	}
	for s, n := range members {
		if s != shape && n >= r.SegmentSize {
			return 0, 0, fmt.Errorf("segments of %d are of one shape, but another has %d members", r.SegmentSize, n)
		}
	}
	return depth, shape, nil
}

func depthOf(t *Tree, what, level string, none int) (int, error) {
	if level == "" {
		return none, nil
	}
	depth, ok := t.DepthOf(level)
	if !ok {
		return 0, fmt.Errorf("%s: the fabric has no level %q", what, level)
	}
	return depth, nil
}

func total(numbers []int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}
