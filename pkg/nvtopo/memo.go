// SPDX-License-Identifier: Apache-2.0

package nvtopo

import "sync"

// maxRemembered bounds a memo, which is cleared when full. A cluster's nodes of one class are in at most
// a few hundred states at a time.
const maxRemembered = 1 << 13

// memo caches answers that are expensive to compute. Its zero value is empty, and a hit does not
// allocate.
type memo[K comparable, V any] struct {
	mu sync.RWMutex
	m  map[K]V
}

func (m *memo[K, V]) get(k K) (V, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	v, ok := m.m[k]
	return v, ok
}

func (m *memo[K, V]) put(k K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.m == nil || len(m.m) >= maxRemembered {
		m.m = map[K]V{}
	}
	m.m[k] = v
}

func (m *memo[K, V]) len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.m)
}

// question is the key of one pick from a graph above 16 GPUs.
type question struct {
	free, avail Mask
	k, variant  int
}

// remembered caches answers about a graph that are in no table: every extension point of a scheduling
// cycle needs the same answers, and so do the nodes of a class in the same state. All but orders is for
// graphs above 16 GPUs.
type remembered struct {
	orders   memo[Mask, []int]
	picks    memo[question, Mask]
	steps    memo[Mask, int]
	residual memo[Mask, int64]
}

// search is branchAndBound with cached answers.
func (c *classTables) search(free, avail Mask, k, variant int) Mask {
	q := question{free, avail, k, variant}
	s, ok := c.known.picks.get(q)
	if !ok {
		s = c.branchAndBound(free, avail, k, c.filter(variant), nil)
		c.known.picks.put(q, s)
	}
	return s
}

// largeStep is searchStep with cached answers.
func (c *classTables) largeStep(s Mask) int {
	step, ok := c.known.steps.get(s)
	if !ok {
		step = c.searchStep(s)
		c.known.steps.put(s, step)
	}
	return step
}

// largeResidual is residualBound with cached answers.
func (c *classTables) largeResidual(free Mask) int64 {
	r, ok := c.known.residual.get(free)
	if !ok {
		r = c.residualBound(free)
		c.known.residual.put(free, r)
	}
	return r
}

// ringOf returns ringOrder at the set's own bottleneck, cached. The caller must not change it.
func (c *classTables) ringOf(s Mask) []int {
	order, ok := c.known.orders.get(s)
	if !ok {
		var bottleneck int64
		if s.Len() > 1 {
			bottleneck = c.steps[c.ringStep(s)]
		}
		order = c.ringOrder(s, bottleneck)
		c.known.orders.put(s, order)
	}
	return order
}

// bytes estimates the memory: a map of n entries takes about one and a half times their size, and a ring
// is some 16 numbers.
func (r *remembered) bytes() int {
	return 3 * (160*r.orders.len() + 40*r.picks.len() + 16*r.steps.len() + 16*r.residual.len()) / 2
}
