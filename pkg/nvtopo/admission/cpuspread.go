// SPDX-License-Identifier: Apache-2.0

package admission

// takeSpread takes CPUs in equal parts from as few nodes as that is possible on,
// in whole cores under full-pcpus-only. ok is false where kubelet packs instead.
func (c *layout) takeSpread(available cpuSet, n int) (cpuSet, bool) {
	group := 1
	if c.fullCores {
		group = c.threads
	}
	if n%group != 0 {
		return cpuSet{}, false
	}
	t := taking{c: c, left: available, need: n}
	nodes, count := t.nodeOrder()
	groups := (c.all.len()-1)/group + 1
	perNode := (groups-1)/c.with.len() + 1
	wanted := (n-1)/group + 1
	for k := (wanted-1)/perNode + 1; k <= min(wanted, count); k++ {
		if s, ok := c.spreadOver(available, n, group, nodes[:count], k); ok {
			return s, true
		}
	}
	return cpuSet{}, false
}

func (c *layout) spreadOver(cpuSet, int, int, []int, int) (cpuSet, bool) { return cpuSet{}, false }
