// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import (
	"math/bits"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// memoAfter is the step from which dead ends are remembered: most searches end before it and avoid the
// cost.
const memoAfter = 32

// remembers reports whether the search is long enough to remember dead ends. With given parts of
// containers there is almost no choice, and devices of one node are not equivalent.
func (x *search) remembers() bool { return x.wish.Parts == nil && x.left < maxSteps-memoAfter }

// deadEnd returns a number that is equal for two points of the search before container i from which
// kubelet continues equally: as many devices on every node, the same CPUs and memory. Other points share
// a number too rarely to matter, and then a pod is refused.
func (x *search) deadEnd(at, i int) uint64 {
	f := &x.frames[at]
	h := mix(uint64(i), uint64(len(x.pod.Containers)))
	for r := range x.m.resources {
		res := &x.m.resources[r]
		for _, set := range [...]nvtopo.Mask{f.state.Free[r], f.budget[r], f.state.own.devices[r]} {
			for node := range x.m.nodes {
				h = mix(h, uint64((set & res.onNode[node]).Len()))
			}
			h = mix(h, uint64((set &^ res.known).Len()))
		}
	}
	if x.m.cpu != nil {
		for w := range f.state.shared {
			h = mix(mix(h, f.state.shared[w]), f.state.own.cpus[w])
		}
	}
	if !x.m.memory {
		return h
	}
	for node := range x.m.nodes {
		n := &f.state.memory[node]
		h = mix(mix(h, uint64(n.free)), uint64(n.cells))
		if n.used {
			h = mix(h, 1)
		}
	}
	for _, c := range f.state.own.memory[:f.state.own.n] {
		h = mix(mix(h, uint64(c.nodes)), uint64(c.size))
	}
	return h
}

// mix folds a word into a hash: the two halves of a product by an odd constant (2^64 divided by the
// golden ratio) combined.
func mix(h, w uint64) uint64 {
	hi, lo := bits.Mul64(h^w^0x9e3779b97f4a7c15, 0x9e3779b97f4a7c15)
	return hi ^ lo ^ bits.RotateLeft64(w, 31)
}
