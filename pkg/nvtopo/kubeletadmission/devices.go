// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import "github.com/nvtopo/nvtopo/pkg/nvtopo"

// addDevices adds the device manager's hints for n devices of resource r. reuse are those left by the
// pod's init containers, which must be inside every hint.
//
// A set of nodes is a hint if it has n devices that are free or reused. It is preferred if no smaller set
// has n devices at all, free or not. Kubelets from 1.36 on make hints only of nodes that have such
// devices.
func (m *Machine) addDevices(l *lists, r, n int, free, reuse nvtopo.Mask) {
	res := &m.resources[r]
	if n == 0 || !res.aligned {
		return
	}
	if (free | reuse).Len() < n {
		l.impossible = true
		return
	}
	// A reused device without a known node is in none of the sums, as free ones are.
	var kept NodeSet
	var all, left [MaxNodes]int
	for i := range m.nodes {
		on := res.onNode[i]
		all[i], left[i] = on.Len(), (on & free).Len()
		if on&reuse != 0 {
			kept |= 1 << i
		}
	}
	reused := (reuse & res.known).Len()
	row := l.next()
	width := res.hinted.len()
	for set := NodeSet(1); set <= m.all; set++ {
		if !set.in(res.hinted) {
			continue
		}
		total, have := 0, reused
		for i := range m.nodes {
			if set.has(i) {
				total += all[i]
				have += left[i]
			}
		}
		if total >= n {
			width = min(width, set.len())
		}
		if kept.in(set) && have >= n {
			row[set] = offered
		}
	}
	if !l.keep(width) {
		l.impossible = true
	}
}

// Honoured returns the devices from which kubelet serves n more of a resource under a hint: every one of
// forced, and the rest, if any, from free as its plugin prefers. ok is false when there are too few.
func (m *Machine) Honoured(s *State, r, n int, h Hint) (forced, free nvtopo.Mask, ok bool) {
	have := s.Free[r]
	if have.Len() < n {
		return 0, 0, false
	}
	res := &m.resources[r]
	if !h.Bound || !res.aligned {
		return 0, have, true
	}
	var aligned nvtopo.Mask
	for i := range m.nodes {
		if h.Nodes.has(i) {
			aligned |= res.onNode[i]
		}
	}
	aligned &= have
	if n < aligned.Len() {
		return 0, aligned, true
	}
	return aligned, have &^ aligned, true
}
