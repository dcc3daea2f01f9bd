// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

const (
	// gangShare is the part of all GPUs that the gangs may ask for together which the plan has
	// created and not deleted yet. They count in crowd, so that some find room.
	gangShare = 0.4
	// largest bounds the GPUs of one gang: that many come free now and then.
	largest = 24
)

// gangPlan is what a gang asks for.
type gangPlan struct {
	Members, GPUs, Minimum  int
	Profile, Priority, Wish int
	// Group: it has a PodGroup, and Late: which is made after the pods.
	Group, Late bool
}

// gangWish is what a gang asks of the fabric.
type gangWish struct {
	notes    map[string]string
	required string // the level that all members must share
	// loose: what else is asked decides whether there is room, and the calm does not judge it.
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
	for _, o := range operations {
		switch {
		case !strings.HasPrefix(string(o.kind), "gang"):
		case o.kind == opGangCreate && float64(g.asked) >= gangShare*float64(b.gpus):
		case o.kind != opGangCreate && len(g.live) == 0:
		default:
			kinds = append(kinds, slices.Repeat([]opKind{o.kind}, o.weight)...)
		}
	}
	o := op{Kind: kinds[b.rng.IntN(len(kinds))]}
	if o.Kind == opGangCreate {
		g.made++
		o.Pod, o.Gang = fmt.Sprintf("%s-gang-%03d", b.prefix, g.made), b.drawGang()
		g.live = append(g.live, o.Pod)
		if g.wants == nil {
			g.wants = map[string]gangPlan{}
		}
		g.wants[o.Pod] = o.Gang
		b.askGang(&o.Gang, 1)
		return o
	}
	i := b.rng.IntN(len(g.live))
	o.Pod = g.live[i]
	if o.Kind == opGangDelete {
		g.live = slices.Delete(g.live, i, i+1)
		want := g.wants[o.Pod]
		b.askGang(&want, -1)
	}
	return o
}

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
	if gangWishes[p.Wish].notes[gangrequest.SegmentSizeKey] != "" {
		p.Minimum = p.Members / 2 * 2 // of whole segments
	}
	return p
}
