// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import (
	"math/bits"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// maxCPUs bounds the CPU numbers that are supported; the largest two-processor machines of 2025 have 768
// hyper-threads.
const maxCPUs = 1024

// cpuSet is a set of CPUs by number.
type cpuSet [maxCPUs / 64]uint64

func toCPUSet(cpus nvtopo.CPUSet) (s cpuSet) {
	for _, c := range cpus {
		if c < maxCPUs {
			s.add(c)
		}
	}
	return s
}

func (s *cpuSet) add(c int)      { s[c/64] |= 1 << (c % 64) }
func (s *cpuSet) has(c int) bool { return s[c/64]>>(c%64)&1 != 0 }

func (s cpuSet) and(o cpuSet) cpuSet {
	for i := range s {
		s[i] &= o[i]
	}
	return s
}

func (s cpuSet) minus(o cpuSet) cpuSet {
	for i := range s {
		s[i] &^= o[i]
	}
	return s
}

func (s cpuSet) or(o cpuSet) cpuSet {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

func (s *cpuSet) len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// common returns the number of CPUs in both sets.
func (s *cpuSet) common(o *cpuSet) int {
	n := 0
	for i := range s {
		n += bits.OnesCount64(s[i] & o[i])
	}
	return n
}
