// SPDX-License-Identifier: Apache-2.0

package membership

import (
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// Selector returns the labels that all nodes of a pool have: its nodeSelector, or without one its name
// as the value of v1alpha1.LabelPool.
func Selector(pool *v1alpha1.ComputePool) map[string]string {
	if len(pool.Spec.NodeSelector) > 0 {
		return pool.Spec.NodeSelector
	}
	return map[string]string{v1alpha1.LabelPool: pool.Name}
}

// Selects reports whether a pool's selector picks a node with these labels. The node may belong to
// another pool nevertheless: see PoolOf.
func Selects(pool *v1alpha1.ComputePool, labels map[string]string) bool {
	for k, v := range Selector(pool) {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// In returns pointers to the pools of a list. They are not copied.
func In(list *v1alpha1.ComputePoolList) []*v1alpha1.ComputePool {
	out := make([]*v1alpha1.ComputePool, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

// PoolOf returns the pool, among pools in any order, that a node with these labels belongs to; nil if
// there is none. Of several that select it, it is the first by name, so that each device is counted
// once.
func PoolOf(labels map[string]string, pools []*v1alpha1.ComputePool) *v1alpha1.ComputePool {
	var first *v1alpha1.ComputePool
	for _, p := range pools {
		if (first == nil || p.Name < first.Name) && Selects(p, labels) {
			first = p
		}
	}
	return first
}
