// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// judged is what keeps the pod off one node.
type judged struct {
	*node
	obstacles []Obstacle
}

// is reports whether all obstacles are of some kinds; true without any.
func (j *judged) is(kinds ...kind) bool {
	return !slices.ContainsFunc(j.obstacles, func(o Obstacle) bool { return !slices.Contains(kinds, o.kind) })
}

// sick reports whether unhealthy GPUs keep the pod off.
func (j *judged) sick() bool {
	return slices.ContainsFunc(j.obstacles, func(o Obstacle) bool { return o.Cause == UnhealthyGPUs })
}

// first is the first obstacle of a kind.
func (j *judged) first(k kind) *Obstacle {
	for i := range j.obstacles {
		if j.obstacles[i].kind == k {
			return &j.obstacles[i]
		}
	}
	return nil
}

// judge asks every node. What even the empty node with sound GPUs lacks is marked as such.
func (x *podAsk) judge() (out []judged) {
	for _, n := range x.nodes {
		j := judged{node: n, obstacles: n.obstacles(x.q, x.now)}
		if j.first(ofPods) != nil {
			lasting := x.cure(&j, n.emptied().obstacles(x.q, x.now))
			for i := range j.obstacles {
				o := &j.obstacles[i]
				if o.kind == ofPods && slices.ContainsFunc(lasting, func(l Obstacle) bool { return l.kind == ofPods && l.Cause == o.Cause }) {
					o.kind = never
				}
			}
			// The empty node may refuse for what does not show while it is full.
			for _, l := range lasting {
				if l.kind == ofPods && !slices.ContainsFunc(j.obstacles, func(o Obstacle) bool { return o.Cause == l.Cause }) {
					l.kind = never
					j.obstacles = append(j.obstacles, l)
				}
			}
		}
		out = append(out, j)
	}
	return out
}

// refusalsOf counts nodes by the first reason of each, the most frequent first.
func refusalsOf(all []judged) (out []Refusal) {
	for i := range all {
		for _, o := range all[i].obstacles[:min(1, len(all[i].obstacles))] {
			at := slices.IndexFunc(out, func(r Refusal) bool { return r.Cause == o.Cause })
			if at < 0 {
				at, out = len(out), append(out, Refusal{Cause: o.Cause, Text: o.Text})
			}
			r := &out[at]
			if r.Nodes++; len(r.Named) < maxNamed {
				r.Named = append(r.Named, all[i].object.Name)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Refusal) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return out
}

// most makes the reason the obstacle of one kind of the most nodes.
func (e *Explanation) most(all []judged, k kind) Cause {
	count := map[Cause]int{}
	var best *Obstacle
	for i := range all {
		o := all[i].first(k)
		count[o.Cause]++
		if best == nil || count[o.Cause] > count[best.Cause] {
			best = o
		}
	}
	var named []string
	for i := range all {
		if o := all[i].first(k); o.Cause == best.Cause {
			named = append(named, all[i].object.Name)
			if len(e.Evidence) < maxNamed {
				e.Evidence = append(e.Evidence, strings.TrimSuffix(all[i].object.Name+": "+cmp.Or(o.Detail, o.Text), ": "))
			}
		}
	}
	what := map[kind]string{
		ofFault: "would do but for this", ofWish: "would do but for this", never: "cannot take the pod even when empty",
	}[k]
	if best.Cause == causeOf(placement.NoGraph) || best.Cause == causeOf(placement.NoDefinition) { // what it has is not known
		what = "may do but for this"
	}
	e.Reason = fmt.Sprintf("%s: %s %s", best.Text, nodes(named), what)
	return best.Cause
}

// offering are the nodes that have such devices at all, or all if none has.
func offering(q *question, all []judged) []judged {
	out := slices.DeleteFunc(slices.Clone(all), func(j judged) bool { return j.offers(q.resource()) == 0 })
	if len(out) == 0 {
		return all
	}
	return out
}

// freeOn counts the devices that are free on some nodes, and names those that have some.
func (x *podAsk) freeOn(all []judged) (total int, with []string) {
	for i := range all {
		if free := all[i].free(x.now, x.q.resource()); free > 0 {
			total += free
			with = append(with, fmt.Sprintf("%s %d", all[i].object.Name, free))
		}
	}
	return total, with
}
