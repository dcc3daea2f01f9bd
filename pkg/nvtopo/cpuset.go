// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxCPU bounds CPU numbers in lists from outside: Linux's largest NR_CPUS is 8192.
const maxCPU = 8191

// CPUSet is a sorted list of distinct logical CPU numbers.
type CPUSet []int

// NewCPUSet returns the set of the given CPUs, sorted and without repeats.
func NewCPUSet(cpus ...int) CPUSet {
	s := slices.Clone(cpus)
	slices.Sort(s)
	return slices.Compact(s)
}

// ParseCPUList parses the kernel's list format ("0-3,8,16-31:2" without the stride form, which no source
// prints). Empty text is the empty set.
func ParseCPUList(s string) (CPUSet, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, nil
	}
	// Ranges are expanded only after all are valid: a few bytes can name thousands of CPUs.
	type span struct{ first, last int }
	var spans []span
	n := 0
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, "-")
		a, err := parseCPU(lo)
		if err != nil {
			return nil, fmt.Errorf("CPU list %q: %w", s, err)
		}
		b := a
		if isRange {
			if b, err = parseCPU(hi); err != nil {
				return nil, fmt.Errorf("CPU list %q: %w", s, err)
			}
		}
		if b < a {
			return nil, fmt.Errorf("CPU list %q: range %q runs backwards", s, part)
		}
		if n += b - a + 1; n > 4*maxCPU {
			return nil, fmt.Errorf("CPU list of %d bytes names more than %d CPUs", len(s), 4*maxCPU)
		}
		spans = append(spans, span{a, b})
	}
	out := make(CPUSet, 0, n)
	for _, p := range spans {
		for c := p.first; c <= p.last; c++ {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func parseCPU(s string) (int, error) {
	s = strings.TrimSpace(s)
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not a CPU number", s)
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > maxCPU {
		return 0, fmt.Errorf("CPU number %q is greater than %d", s, maxCPU)
	}
	return n, nil
}

// String returns the set in the kernel's list format.
func (s CPUSet) String() string {
	var b strings.Builder
	for i := 0; i < len(s); {
		j := i
		for j+1 < len(s) && s[j+1] == s[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(s[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(s[j]))
		}
		i = j + 1
	}
	return b.String()
}

// Has reports whether cpu is a member.
func (s CPUSet) Has(cpu int) bool {
	_, ok := slices.BinarySearch(s, cpu)
	return ok
}

// Union returns the members of either set.
func (s CPUSet) Union(o CPUSet) CPUSet { return NewCPUSet(append(slices.Clone(s), o...)...) }

// Minus returns the members of s that are in no other set.
func (s CPUSet) Minus(others ...CPUSet) CPUSet {
	gone := newCPUBits(others...)
	var out CPUSet
	for _, c := range s {
		if !gone.has(c) {
			out = append(out, c)
		}
	}
	return out
}

// cpuBits is a set of CPUs as bits, for repeated lookups in one set.
type cpuBits []uint64

func newCPUBits(sets ...CPUSet) cpuBits {
	most := -1
	for _, s := range sets {
		if len(s) > 0 {
			most = max(most, s[len(s)-1])
		}
	}
	b := make(cpuBits, most/64+1)
	for _, s := range sets {
		for _, c := range s {
			b[c/64] |= 1 << (c % 64)
		}
	}
	return b
}

func (b cpuBits) has(c int) bool { return c/64 < len(b) && b[c/64]>>(c%64)&1 != 0 }

func (b cpuBits) remove(c int) { b[c/64] &^= 1 << (c % 64) }
