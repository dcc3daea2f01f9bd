// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Wishes are the topology request of a gang. A level is given by its name or by the node label that its
// domains are read from; "" is none. Gang.WishesIn turns labels into names.
type Wishes struct {
	Strategy  fabric.Strategy
	Required  string // all members in one domain of this level
	Preferred string // a level that is good enough: patience waits for it

	SegmentSize     int // 0: no segments
	SegmentLevel    string
	SegmentRequired bool

	SpreadOver   string
	MaxPerDomain int // 0: no bound

	// MixedModels: members that request the same GPUs may get them of several models.
	MixedModels bool

	// MessageBytes is the size of each GPU's message in the all-reduce by which the gang is placed and
	// judged; 0: fabric.DefaultMessage.
	MessageBytes int64

	// Patience is how long the gang waits for a better level. It is 0 once Kueue admitted it.
	Patience time.Duration
	// ByName: ranks are in the byte order of the pods' names.
	ByName bool
}

// Message is the number of bytes of each GPU in the all-reduce by which the gang is placed and judged.
func (w *Wishes) Message() float64 {
	return (&fabric.Request{MessageBytes: float64(w.MessageBytes)}).Message()
}

// MessageText returns Message for people, such as 1 GB.
func (w *Wishes) MessageText() string {
	q := resource.NewQuantity(int64(w.Message()), resource.DecimalSI).String()
	digits := strings.TrimRight(q, "kMGTPE")
	return digits + " " + q[len(digits):] + "B"
}

// PatienceReason returns why a gang waits until a time though there is room for the plan now: for the plan
// empty, which is possible on the empty cluster.
func PatienceReason(until time.Time, now, empty *fabric.Plan) string {
	what, have, could := "level", now.Level, empty.Level
	if now.Millis > 0 && empty.Millis > 0 {
		what, have, could = "all-reduce", fmt.Sprintf("%.1f ms", now.Millis), fmt.Sprintf("%.1f ms", empty.Millis)
	}
	return fmt.Sprintf("waits until %s for a better %s than %s: %s is possible on the empty cluster",
		until.UTC().Format(time.RFC3339), what, have, could)
}

// Level is one level of the fabric.
type Level struct{ Name, NodeLabel string }

// Apply copies the topology request into a request to the planner that has its shapes and members. Levels
// must be names. Segments that are only preferred are given up where they do not divide the members: a
// replacement, or a member above the minimum.
func (w *Wishes) Apply(r *fabric.Request) {
	r.Strategy, r.Required, r.Preferred = w.Strategy, w.Required, w.Preferred
	r.SegmentSize, r.SegmentLevel, r.SegmentRequired = w.SegmentSize, w.SegmentLevel, w.SegmentRequired
	r.SpreadOver, r.MaxPerDomain = w.SpreadOver, w.MaxPerDomain
	r.MessageBytes = float64(w.MessageBytes)
	if w.MixedModels {
		for i := range r.Shapes {
			r.Shapes[i].Kind = 0
		}
	}
	if w.SegmentSize > 0 && !w.SegmentRequired && len(r.Members)%w.SegmentSize != 0 {
		r.SegmentSize = 0
	}
}

// The parts of the request that name a level, as indices of Gang.levels.
const (
	levelRequired = iota
	levelPreferred
	levelSegment
	levelSpread
	levelWishes // their number
)

func (r *reader) readWishes() {
	w := &r.gang.Wishes
	r.read(StrategyKey, func(v string) (err error) { w.Strategy, err = ParseStrategy(v); return err })
	r.readLevel(RequiredKey, levelRequired, &w.Required)
	r.readLevel(PreferredKey, levelPreferred, &w.Preferred)
	r.readSegments()
	r.readLevel(SpreadOverKey, levelSpread, &w.SpreadOver)
	r.readMaxPerDomain()
	r.readPatience()
	r.read(MixedModelsKey, func(v string) (err error) { w.MixedModels, err = podrequest.ParseBool(v); return err })
	r.read(MessageSizeKey, func(v string) (err error) { w.MessageBytes, err = podrequest.ParseMessageSize(v); return err })
	r.read(RankOrderKey, func(v string) (err error) { w.ByName, err = parseRankOrder(v); return err })
	if !r.gang.Pinned {
		r.readKueueTopology()
	}
	if w.SegmentSize > 0 && (w.SpreadOver != "" || w.Strategy == fabric.StrategyComputeHeavy) {
		_, at, _ := r.value(SegmentSizeKey)
		r.fault(at, "members cannot be kept in segments and be spread")
	}
}

func (r *reader) readLevel(key string, which int, level *string) (field, bool) {
	at, ok := r.read(key, func(v string) (err error) { *level, err = parseLevel(v); return err })
	if ok {
		r.gang.levels[which] = at
	}
	return at, ok
}

func (r *reader) readSegments() {
	w := &r.gang.Wishes
	_, sized := r.read(SegmentSizeKey, func(v string) (err error) { w.SegmentSize, err = parseCount(v); return err })
	must, required := r.readLevel(RequiredSegmentKey, levelSegment, &w.SegmentLevel)
	if required {
		w.SegmentRequired = true
	}
	var preferred string
	should, prefers := r.readLevel(PreferredSegmentKey, levelSegment, &preferred)
	switch {
	case required && prefers:
		r.fault(should, "%s is set too, and segments are of one level", RequiredSegmentKey)
	case prefers:
		w.SegmentLevel = preferred
	}
	if _, _, ok := r.value(SegmentSizeKey); !ok && !sized && (required || prefers) {
		if !required {
			must = should
		}
		r.fault(must, "%s is missing: it says how many members a segment has", SegmentSizeKey)
	}
}

func (r *reader) readMaxPerDomain() {
	w := &r.gang.Wishes
	at, ok := r.read(MaxPerDomainKey, func(v string) (err error) { w.MaxPerDomain, err = parseCount(v); return err })
	if ok && w.SpreadOver == "" && w.Strategy != fabric.StrategyComputeHeavy {
		r.fault(at, "%s is missing: it says which domains are meant", SpreadOverKey)
	}
}

func (r *reader) readPatience() {
	w := &r.gang.Wishes
	at, set := r.read(PatienceKey, func(v string) (err error) { w.Patience, err = ParsePatience(v); return err })
	if !set && w.Strategy == fabric.StrategyCommunicationHeavy {
		w.Patience = CommunicationPatience
	}
	if r.gang.Admitted && w.Patience > 0 {
		if set {
			r.warn(at, "a gang that Kueue has admitted does not wait: its quota would be idle")
		}
		w.Patience = 0
	}
}

// ParseStrategy reads a value of StrategyKey.
func ParseStrategy(v string) (fabric.Strategy, error) {
	s, err := fabric.ParseStrategy(v)
	if err != nil {
		return s, fmt.Errorf("%s: want communication-heavy, compute-heavy or mixed", quoted(v))
	}
	return s, nil
}

// ParsePatience reads a value of PatienceKey.
func ParsePatience(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || strings.HasPrefix(v, "-") || d > MaxPatience {
		return 0, fmt.Errorf("%s: want a duration such as 300s, at most 24h", quoted(v))
	}
	return d, nil
}

func parseRankOrder(v string) (byName bool, err error) {
	switch v {
	case "index":
		return false, nil
	case "name":
		return true, nil
	}
	return false, fmt.Errorf("%s: want index or name", quoted(v))
}

// UnknownLevelError is returned if a gang requests a level that the fabric does not have.
type UnknownLevelError struct {
	Where string // object and field
	Level string // as written there
}

func (e *UnknownLevelError) Error() string {
	return e.Where + ": the fabric has no level " + quoted(e.Level)
}

// WishesIn returns the topology request with the fabric's names of its levels; levels lists them outermost
// first. A level that the fabric does not have is an UnknownLevelError, unless Kueue's users only prefer
// it.
func (g *Gang) WishesIn(levels []Level) (Wishes, error) {
	w := g.Wishes
	for which, wish := range [...]*string{&w.Required, &w.Preferred, &w.SegmentLevel, &w.SpreadOver} {
		if *wish == "" {
			continue
		}
		name, ok := levelName(levels, *wish)
		if !ok && g.levels[which].key != kueuePreferredKey {
			return w, &UnknownLevelError{Where: g.levels[which].String(), Level: *wish}
		}
		*wish = name
	}
	return w, nil
}

// levelName returns the name of the level that is given by its name or by its node label.
func levelName(levels []Level, wish string) (string, bool) {
	for _, l := range levels {
		if l.Name == wish {
			return l.Name, true
		}
	}
	for _, l := range levels {
		if l.NodeLabel == wish {
			return l.Name, true
		}
	}
	switch wish {
	case fabric.RootLevel, fabric.NodeLevel:
		return wish, true
	case v1.LabelHostname:
		return fabric.NodeLevel, true
	}
	return "", false
}
