// SPDX-License-Identifier: Apache-2.0

package eviction

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
)

// Gang is the part of a gang that is on nodes. A preemptor evicts all of it, or members above its minimum,
// or none.
type Gang struct {
	Needed  []*v1.Pod // members that it needs for its minimum
	Surplus []*v1.Pod // those above it, the lowest rank first
}

// With returns the pods that are evicted if a member is, itself included: the whole gang if it needs the
// member, else the member alone. It is nil for a pod that only has an assumed place so far.
func (g *Gang) With(uid types.UID) []*v1.Pod {
	is := func(pod *v1.Pod) bool { return pod.UID == uid }
	if slices.ContainsFunc(g.Needed, is) {
		return slices.Concat(g.Needed, g.Surplus)
	}
	if i := slices.IndexFunc(g.Surplus, is); i >= 0 {
		return g.Surplus[i : i+1]
	}
	return nil
}

// Below reports whether all pods have a lower priority than the given one, which is the preemptor's: only
// such pods may be evicted for it, alone or with their gang.
func Below(pods []*v1.Pod, priority int32) bool {
	return !slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return corev1.PodPriority(pod) >= priority })
}
