// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

// PlacedPods explains pods that were placed one after the other, by UID: each as things were when it was
// placed, so that those after it hold nothing. It explains the first maxExplained of those that have a
// choice.
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
		if !gone[p.UID] {
			continue
		}
		if a := (usage.AnnotationReader{}).Allocation(p, p.Spec.NodeName); a != nil {
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
