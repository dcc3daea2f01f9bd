// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import "math"

// spreading is one run of distribute-cpus-across-numa: n CPUs in equal parts from as few nodes as
// possible, in groups of whole cores under full-pcpus-only. The remainder goes to those nodes that leave
// the whole machine most even.
type spreading struct {
	taking
	n, group int
	nodes    []int // with free CPUs, in kubelet's order
	free     [MaxNodes]int
}

// takeSpread returns packed where kubelet packs instead of spreading; got is nil where it gives up.
func (c *layout) takeSpread(available cpuSet, n int) (got *cpuSet, packed bool) {
	s := spreading{taking: taking{c: c, left: available, need: n}, n: n, group: 1}
	if c.fullCores {
		s.group = c.threads
	}
	if n%s.group != 0 {
		return nil, true
	}
	order, count := s.nodeOrder()
	s.nodes = order[:count]
	for _, i := range s.nodes {
		s.free[i] = c.nodes[i].common(&available)
	}
	groups := (c.all.len()-1)/s.group + 1
	perNode := (groups-1)/c.with.len() + 1
	wanted := (n-1)/s.group + 1
	for k := (wanted-1)/perNode + 1; k <= min(wanted, count); k++ {
		if parts, rest := s.best(k); parts != nil {
			return s.carryOut(parts, rest), false
		}
	}
	return nil, true
}

// best returns the k nodes that share the CPUs most evenly and which of them take the remainder; nil if
// no k nodes can.
func (s *spreading) best(k int) (parts, rest []int) {
	least := math.MaxFloat64
	combine(s.nodes, k, func(combo []int) bool {
		if least == 0 {
			return false
		}
		if balance, r, ok := s.weigh(combo); ok && balance < least {
			least, parts, rest = balance, combo, r
		}
		return true
	})
	return parts, rest
}

// share returns the CPUs that each of k nodes gives, in whole groups.
func (s *spreading) share(k int) int { return s.n / k / s.group * s.group }

// weigh returns the unevenness of the machine after the CPUs were taken from these nodes.
func (s *spreading) weigh(combo []int) (balance float64, rest []int, ok bool) {
	share, groups, total := s.share(len(combo)), 0, 0
	after := s.free
	for _, i := range combo {
		if s.free[i] < share {
			return 0, nil, false
		}
		total += s.free[i]
		groups += s.free[i] / s.group
		after[i] -= share
	}
	if total < s.n || groups*s.group < s.n {
		return 0, nil, false
	}
	odd := s.n - share*len(combo)
	if odd == 0 {
		return s.unevenness(&after), nil, true
	}
	var able []int
	for _, i := range combo {
		if after[i] >= s.group {
			able = append(able, i)
		}
	}
	least := math.MaxFloat64
	for k := len(able); k >= 1; k-- {
		combine(able, k, func(some []int) bool {
			if even, ok := s.hand(after, some, odd); ok && even < least {
				least, rest = even, some
			}
			return true
		})
	}
	return least, rest, least < math.MaxFloat64
}

// hand takes the odd CPUs from some nodes in turn.
func (s *spreading) hand(after [MaxNodes]int, some []int, odd int) (balance float64, ok bool) {
	total := 0
	for _, i := range some {
		total += after[i]
	}
	if total < odd {
		return 0, false
	}
	for odd > 0 {
		before := odd
		for _, i := range some {
			if odd > 0 && after[i] >= s.group {
				after[i] -= s.group
				odd -= s.group
			}
		}
		if odd == before {
			return 0, false // single CPUs of many cores: kubelet would loop forever
		}
	}
	return s.unevenness(&after), true
}

// unevenness returns the standard deviation, rounded as in kubelet.
func (s *spreading) unevenness(after *[MaxNodes]int) float64 {
	round := func(x float64) float64 { return math.Round(x*1000) / 1000 }
	sum := 0.0
	for _, i := range s.nodes {
		sum += float64(after[i])
	}
	mean := round(sum / float64(len(s.nodes)))
	squares := 0.0
	for _, i := range s.nodes {
		d := float64(after[i]) - mean
		squares += d * d
	}
	return round(math.Sqrt(squares / float64(len(s.nodes))))
}

// carryOut takes the CPUs; nil if the nodes do not have them after all.
func (s *spreading) carryOut(parts, rest []int) *cpuSet {
	share := s.share(len(parts))
	odd := s.n - share*len(parts)
	for _, i := range parts {
		if here := s.left.and(s.c.nodes[i]); here.len() >= share && share > 0 {
			s.add(s.c.takePacked(here, share))
		}
	}
	for odd > 0 {
		before := odd
		for _, i := range rest {
			here := s.left.and(s.c.nodes[i])
			if odd > 0 && here.len() >= s.group {
				s.add(s.c.takePacked(here, s.group))
				odd -= s.group
			}
		}
		if odd == before {
			return nil
		}
	}
	if s.need != 0 {
		return nil
	}
	return &s.got
}

// combine calls f with every k of the members in order until it returns false.
//
// kubelet keeps the best combination in a slice that later combinations may share and overwrite: a slice
// of 3 has room for a 4th, one of 5 for three more. Its choice then differs from the best one, and this
// function must reproduce that, so capacity grows here exactly as with append there.
func combine(members []int, k int, f func([]int) bool) {
	var walk func(start, k int, chosen []int) bool
	walk = func(start, k int, chosen []int) bool {
		if k == 0 {
			return f(chosen)
		}
		for i := start; i <= len(members)-k; i++ {
			if !walk(i+1, k-1, extend(chosen, members[i])) {
				return false
			}
		}
		return true
	}
	if k > 0 {
		walk(0, k, nil)
	}
}

// extend is append with capacity that doubles from 1.
func extend(s []int, x int) []int {
	if len(s) == cap(s) {
		bigger := make([]int, len(s), max(1, 2*cap(s)))
		copy(bigger, s)
		s = bigger
	}
	s = s[:len(s)+1]
	s[len(s)-1] = x
	return s
}
