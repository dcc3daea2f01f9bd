// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	// gangShare is the largest share of all GPUs that the gangs which the plan has created and not deleted
	// yet may request together. They are part of crowd, so that some find room.
	gangShare = 0.4
	// largest bounds the GPUs of one gang: that many come free now and then.
	largest = 24
)

// gangPlan is the request of a gang.
type gangPlan struct {
	Members, GPUs, Minimum  int
	Profile, Priority, Wish int
	// Group: it has a PodGroup, and Late: which is created after the pods. Collects: its PodGroup is edited
	// when half of the members exist.
	Group, Late, Collects bool
}

// gangEdit is the result of an edit of a PodGroup.
type gangEdit struct {
	Minimum, Wish int
	Timeout       int // scheduleTimeoutSeconds; 0: none
}

// gangWish is a gang's requirements on the fabric.
type gangWish struct {
	notes    map[string]string
	required string // the level that all members must share
	// loose: further requirements decide whether there is room, and the calm does not judge it.
	loose bool
}

var gangWishes = []gangWish{
	{},
	{},
	{notes: map[string]string{gangrequest.RequiredKey: "rack"}, required: "rack"},
	{notes: map[string]string{gangrequest.RequiredKey: "rack"}, required: "rack"},
	{notes: map[string]string{gangrequest.RequiredKey: "spine"}, required: "spine"},
	{notes: map[string]string{gangrequest.PreferredKey: "rack"}},
	{notes: map[string]string{gangrequest.StrategyKey: "compute-heavy"}},
	{notes: map[string]string{gangrequest.PatienceKey: "5s"}},
	{notes: map[string]string{gangrequest.SegmentSizeKey: "2", gangrequest.PreferredSegmentKey: "rack"}},
	{notes: map[string]string{gangrequest.SegmentSizeKey: "2", gangrequest.RequiredSegmentKey: "rack"}, loose: true},
}

// gangPlanner makes the operations on gangs of one phase.
type gangPlanner struct {
	made, asked int
	live        []string
	wants       map[string]gangPlan
}

func (b *planner) gangOp() op {
	g := &b.gangs
	var kinds []opKind
	grouped := slices.DeleteFunc(slices.Clone(g.live), func(name string) bool { return !g.wants[name].Group })
	for _, o := range operations {
		switch {
		case !strings.HasPrefix(string(o.kind), "gang"):
		case o.kind == opGangCreate && float64(g.asked) >= gangShare*float64(b.gpus):
		case o.kind != opGangCreate && len(g.live) == 0:
		case o.kind == opGangEdit && len(grouped) == 0:
		default:
			kinds = append(kinds, slices.Repeat([]opKind{o.kind}, o.weight)...)
		}
	}
	o := op{Kind: kinds[b.rng.IntN(len(kinds))]}
	switch o.Kind {
	case opGangCreate:
		g.made++
		o.Pod = fmt.Sprintf("%s-gang-%03d", b.prefix, g.made)
		g.live = append(g.live, o.Pod)
		b.drawRun(&o)
	case opGangEdit:
		o.Pod = grouped[b.rng.IntN(len(grouped))]
		want := g.wants[o.Pod]
		o.Edit = b.drawEdit(&want)
		want.Minimum, want.Wish = o.Edit.Minimum, o.Edit.Wish
		g.wants[o.Pod] = want
	default:
		i := b.rng.IntN(len(g.live))
		o.Pod = g.live[i]
		want := g.wants[o.Pod]
		switch o.Kind { //nolint:exhaustive // the others ask for as much as before
		case opGangDelete:
			g.live = slices.Delete(g.live, i, i+1)
			b.askGang(&want, -1)
		case opGangRecreate:
			b.askGang(&want, -1)
			b.drawRun(&o)
		}
	}
	return o
}

// drawRun draws the gang that is created under a name.
func (b *planner) drawRun(o *op) {
	o.Gang = b.drawGang()
	if o.Gang.Group && b.rng.IntN(2) == 0 {
		o.Gang.Collects = true
		o.Edit = b.drawEdit(&o.Gang)
		o.Lag = time.Duration(b.rng.IntN(1500)) * time.Millisecond // between the first members and the edit
	}
	if b.gangs.wants == nil {
		b.gangs.wants = map[string]gangPlan{}
	}
	after := o.Gang
	if after.Collects {
		after.Minimum, after.Wish = o.Edit.Minimum, o.Edit.Wish
	}
	b.gangs.wants[o.Pod] = after
	b.askGang(&o.Gang, 1)
}

// drawEdit draws another minimum, other wishes and a timeout. A gang with segments keeps minimum and
// wish, since both must fit whole segments.
func (b *planner) drawEdit(want *gangPlan) gangEdit {
	out := gangEdit{Minimum: 1 + b.rng.IntN(want.Members), Wish: b.rng.IntN(len(gangWishes)), Timeout: []int{0, 10, 60, 600}[b.rng.IntN(4)]}
	if segments(want.Wish) || segments(out.Wish) {
		out.Minimum, out.Wish = want.Minimum, want.Wish
	}
	return out
}

func segments(wish int) bool { return gangWishes[wish].notes[gangrequest.SegmentSizeKey] != "" }

func (b *planner) askGang(want *gangPlan, sign int) {
	n := sign * want.Members * want.GPUs
	b.asked += n
	b.gangs.asked += n
}

func (b *planner) drawGang() gangPlan {
	p := gangPlan{
		Members: 2 + b.rng.IntN(5), GPUs: []int{1, 1, 2, 2, 4, 8}[b.rng.IntN(6)],
		Profile: b.rng.IntN(len(profiles)), Wish: b.rng.IntN(len(gangWishes)), Group: b.rng.IntN(2) == 0, Late: b.rng.IntN(3) == 0,
	}
	for p.Members*p.GPUs > largest {
		p.GPUs /= 2
	}
	if b.rng.IntN(3) == 0 {
		p.Priority = 1 + b.rng.IntN(len(priorities)-1)
	}
	p.Minimum = p.Members
	if p.Members > 2 && b.rng.IntN(4) == 0 {
		p.Minimum -= 1 + b.rng.IntN(2)
	}
	if segments(p.Wish) {
		p.Minimum = p.Members / 2 * 2 // of whole segments
	}
	return p
}
