// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// errAlone reports that pods outside of gangs have no node.
type errAlone struct{ have, want int }

func (e *errAlone) Error() string { return fmt.Sprintf("cluster: %d of %d", e.have, e.want) }

// isRoom reports whether an error means that there is no room now, rather than that a topology request
// can never be met.
func isRoom(err error) bool {
	var room *fabric.UnplaceableError
	var alone *errAlone
	return errors.As(err, &room) || errors.As(err, &alone)
}

// mixedFits reports whether an error means that a gang would fit on GPUs of several models.
func mixedFits(err error) bool {
	var room *fabric.UnplaceableError
	return errors.As(err, &room) && room.MixedFits
}

// fitted is the places of an ask's pods.
type fitted struct {
	after *Snapshot // including them
	plans []*fabric.Plan
}

// fit places all pods of an ask, or none. The Snapshot is not modified. bound are the members of the
// ask's gangs that are bound already.
func (s *Snapshot) fit(a *ask, bound []seated) (*fitted, error) {
	out := &fitted{after: s.copy()}
	for _, g := range a.gangs {
		plan, err := out.after.place(g, bound)
		if err != nil {
			return nil, err
		}
		out.plans = append(out.plans, plan)
	}
	for _, k := range a.singles {
		if have := out.after.fill(k); have < k.count {
			return nil, &errAlone{have: have, want: k.count}
		}
	}
	return out, nil
}

// place plans a gang, and records its members on their nodes.
func (s *Snapshot) place(g *gang, bound []seated) (*fabric.Plan, error) {
	plan, err := s.plan(g, bound)
	if err != nil {
		return nil, err
	}
	for rank, pod := range g.Members.Live {
		k, at := g.kinds[g.of[pod.UID]], plan.Nodes[rank]
		n := s.own(at)
		if !k.demand.HasGPUs() {
			n.give(pod.UID, k, nil)
			continue
		}
		a, reason := placement.ChooseOnly(n.usageBeside(s.now, nil), k.demand, plan.Sets[rank], s.now)
		if reason != placement.Fits {
			return nil, &fabric.UnplaceableError{Level: plan.Level, Have: rank, Want: len(g.Members.Live), Detail: fmt.Sprintf("node %s: %s", s.tree.Name(at), reason)}
		}
		n.give(pod.UID, k, a)
	}
	return plan, nil
}

// plan runs the planner with the nodes' present free capacity.
func (s *Snapshot) plan(g *gang, bound []seated) (*fabric.Plan, error) {
	wishes, err := g.WishesIn(s.levels)
	if err != nil {
		return nil, err
	}
	asks := placement.Gang{Wishes: wishes}
	for _, k := range g.kinds {
		asks.Shapes = append(asks.Shapes, &k.shape)
	}
	for _, pod := range g.Members.Live {
		number := g.of[pod.UID]
		asks.Members = append(asks.Members, placement.Member{Pod: pod, Demand: g.kinds[number].demand, Shape: number})
	}
	for _, b := range bound {
		m := placement.Member{Pod: b.pod, Bound: true, Node: b.at, Graph: s.nodes[b.at].graph}
		if r, err := podrequest.Parse(b.pod, options()); err == nil {
			m.Demand = &placement.Demand{Request: r}
		}
		asks.Members = append(asks.Members, m)
	}
	return asks.Plan(s.tree, func(shape, at int, used nvtopo.Mask, others []placement.Placed) fabric.Supply {
		return s.nodes[at].supply(s, g.kinds[shape], used, others)
	})
}

// fill places pods of a kind on the nodes that have the least room left, and counts them. A node that
// refused one refuses the next.
func (s *Snapshot) fill(k *kind) (have int) {
	type candidate struct{ at, free int }
	var order []candidate
	for at, n := range s.nodes {
		if n.ready && k.shape.Eligible.Allows(n.object) {
			order = append(order, candidate{at, n.free(s.now)})
		}
	}
	slices.SortFunc(order, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.free, b.free), cmp.Compare(a.at, b.at)) })
	for _, c := range order {
		for have < k.count {
			a, ok := s.nodes[c.at].takes(s, k)
			if !ok {
				break
			}
			s.own(c.at).give(k.uid(have), k, a)
			have++
			if k.shape.Alone {
				break
			}
		}
	}
	return have
}

// missing is the pods of a Workload that have quota, and no node yet.
type missing struct {
	counts map[string]int // by PodSet
	bound  []seated       // the other pods
}

// seated is a pod that is bound to a node.
type seated struct {
	at  int // index in the tree
	pod *v1.Pod
}

// missingOf subtracts the pods of a Workload that need no place from counts. ended is the number of
// succeeded pods per PodSet that counts excludes already.
func (s *Snapshot) missingOf(counts, ended map[string]int, of []*v1.Pod) missing {
	m := missing{counts: counts}
	for _, p := range of {
		name := p.Labels[kueue.LabelPodSet]
		if _, ok := counts[name]; !ok && len(counts) == 1 {
			for only := range counts {
				name = only
			}
		}
		at, known := s.tree.Node(p.Spec.NodeName)
		switch live := p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed; {
		case live && p.Spec.NodeName == "":
			continue
		case live && known:
			m.bound = append(m.bound, seated{at, p})
		case p.Status.Phase == v1.PodFailed:
			continue // it will be replaced
		case p.Status.Phase == v1.PodSucceeded && ended[name] > 0:
			ended[name]--
			continue
		}
		m.counts[name] = max(0, m.counts[name]-1)
	}
	return m
}
