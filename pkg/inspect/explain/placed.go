// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// Placed is why a pod that was just placed is where it is.
type Placed struct {
	Choice *Choice `json:"choice"`
	// Gang is the gang by whose plan it is there.
	Gang *Gang `json:"gang,omitempty"`
	// Behind are the nodes that would have taken the pod too, the next best first, at most maxBehind.
	Behind   []Behind `json:"behind,omitempty"`
	Evidence []string `json:"evidence,omitempty"`
}

// Behind is a node that would take a pod and is not chosen.
type Behind struct {
	Node string `json:"node"`
	Set  *Set   `json:"set"`
	Why  string `json:"why"`
}

// maxBehind bounds the nodes that are named behind the chosen one.
const maxBehind = 3

// PlacedPods explains pods that were placed one after the other, by UID: each as things were when it was placed, so
// that those after it hold nothing. It explains the first maxExplained of those that have a choice.
func PlacedPods(w *World, uids []types.UID) map[types.UID]*Placed {
	s := newScene(w)
	gone := map[types.UID]bool{}
	for _, uid := range uids {
		gone[uid] = true
	}
	var pods []*v1.Pod
	choices := map[types.UID]*allocation.Allocation{}
	for i := range w.Pods {
		p := &w.Pods[i]
		if a := (usage.AnnotationReader{}).Allocation(p, p.Spec.NodeName); gone[p.UID] && a != nil {
			pods, choices[p.UID] = append(pods, p), a
		}
	}
	slices.SortStableFunc(pods, func(a, b *v1.Pod) int { return choices[a.UID].Assumed.Compare(choices[b.UID].Assumed) })
	out := map[types.UID]*Placed{}
	for _, p := range pods[:min(len(pods), maxExplained)] {
		e := &Explanation{Namespace: p.Namespace, Name: p.Name}
		_, _, behind := s.explainChoice(e, p, gone)
		out[p.UID] = &Placed{e.Choice, e.Gang, behind, e.Evidence}
		delete(gone, p.UID)
	}
	return out
}

// behind are the nodes that come after the chosen one in the scheduler's order.
func (s *scene) behind(q *question, all []offered, best *nodeindex.Best, chosen *offered) (out []Behind) {
	raw := func(x *offered) int64 {
		if !best.Among(&x.offer) {
			return -1
		}
		return q.profile.Order.Weights.Raw(&x.offer, best)
	}
	var others []*offered
	for i := range all {
		if &all[i] != chosen {
			others = append(others, &all[i])
		}
	}
	slices.SortFunc(others, func(x, y *offered) int {
		return cmp.Or(cmp.Compare(raw(y), raw(x)), best.Compare(&x.offer, &y.offer), cmp.Compare(x.spare, y.spare),
			strings.Compare(x.node.object.Name, y.node.object.Name))
	})
	for _, x := range others[:min(len(others), maxBehind)] {
		why := ""
		if best.Among(&x.offer) {
			why = lessPoints(raw(chosen), raw(x), chosen.spare < x.spare)
		} else {
			why = notAmong(best, &x.offer, &chosen.offer)
		}
		out = append(out, Behind{x.node.object.Name, x.node.set(q, s.Now), why})
	}
	return out
}

// lessPoints says why a node that was scored comes after the chosen one.
func lessPoints(chosen, of int64, emptier bool) string {
	switch points := float64(chosen-of) / nodeindex.Point; {
	case points >= 0.01:
		return fmt.Sprintf("score %.2f, %.2f less", float64(of)/nodeindex.Point, points)
	case chosen > of:
		return "as good, and more GPUs are free there, which stay together"
	case emptier:
		return "as good, and more nodes around it are free as a whole, which are left to gangs"
	}
	return "as good: the scheduler draws lots"
}

// notAmong says why a node is not scored.
func notAmong(best *nodeindex.Best, of, chosen *nodeindex.Offer) string {
	switch {
	case best.Reserved.Has(of) && !best.Last:
		return "left to larger pods"
	case of.Preference < best.Preference:
		return "the pod prefers other hardware"
	case best.GPUs > 1:
		return fmt.Sprintf("an all-reduce takes %s there, not %s", millisOf(best, of), millisOf(best, chosen))
	case best.Singles == nodeindex.SinglesSlowGPUs:
		return "its GPU is faster, and left to others"
	}
	return "its GPUs have faster links, which are left to pods of several GPUs"
}

func millisOf(best *nodeindex.Best, o *nodeindex.Offer) string {
	return nvtopo.FormatMillis(1000 * o.Seconds(best.GPUs, best.Bytes))
}
