// SPDX-License-Identifier: Apache-2.0

package allocation

import "slices"

// Recorded compares kubelet's record for a container with the allocation. ids are sorted. chosen is sorted
// too, and nil if the allocation has no such container.
func (a *Allocation) Recorded(container, resource string, ids []string) (chosen []string, equal bool) {
	i := slices.IndexFunc(a.Containers, func(c Container) bool { return c.Name == container && c.Resource == resource })
	if i < 0 {
		return nil, false
	}
	c := &a.Containers[i]
	chosen = slices.Sorted(slices.Values(c.GPUs))
	if slices.Equal(chosen, ids) {
		return chosen, true
	}
	// Kubelet passes on init containers' devices in random order and without a request, so it does not matter
	// which of the pod's devices an init container had.
	all := a.GPUs(resource)
	foreign := slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(all, id) })
	return chosen, c.Init && len(ids) == len(chosen) && !foreign
}
