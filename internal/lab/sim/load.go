// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Tables are the tables of machines that replays on the same machines share: those of 16 GPUs take as long
// to build as several replays. They are safe for concurrent use. The zero value is usable.
type Tables struct {
	mu sync.Mutex
	of map[nvtopo.Weights]*nvtopo.Registry // guarded by mu
}

// registry returns the shared registry of the weights; of nil Tables a new one.
func (t *Tables) registry(w nvtopo.Weights) *nvtopo.Registry {
	if t == nil {
		return nvtopo.NewRegistry(w)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.of[w]
	if r == nil {
		r = nvtopo.NewRegistry(w)
		if t.of == nil {
			t.of = map[nvtopo.Weights]*nvtopo.Registry{}
		}
		t.of[w] = r
	}
	return r
}

// load makes the nodes, all GPUs free. Nodes of one graph class with the same GPUs, of which the
// same are degraded, share one kind.
func (s *state) load(nodes []Node, registry *nvtopo.Registry) {
	byGraph := map[*nvtopo.Graph]*kind{}
	type class struct {
		id       nvtopo.ClassID
		degraded nvtopo.Mask
		gpus     string // their properties, by position
	}
	byClass := map[class]*kind{}
	for i := range nodes {
		g := nodes[i].Graph
		k := byGraph[g]
		if k == nil {
			t := registry.Tables(g)
			c := class{t.Class(), g.Degraded(), products(g)}
			if k = byClass[c]; k == nil {
				k = newKind(t, c.degraded)
				k.number = uint64(len(byClass))
				byClass[c] = k
			}
			byGraph[g] = k
		}
		healthy := g.Healthy()
		s.nodes = append(s.nodes, node{kind: k, healthy: healthy, speed: k.tables.Ring(healthy)})
		s.gpus += int64(healthy.Len())
	}
}

// products are models and memory of a graph's GPUs.
func products(g *nvtopo.Graph) string {
	var b strings.Builder
	for i := range g.GPUs {
		fmt.Fprintf(&b, "%q %d ", g.GPUs[i].Model, g.GPUs[i].Memory)
	}
	return b.String()
}

// constrain determines the sizes of the trace and the constraint of each: the configured policy where
// some machine has as many GPUs on one NUMA node.
func (s *state) constrain(c *Config) {
	for i := range c.Jobs {
		s.sizes.gpus = append(s.sizes.gpus, c.Jobs[i].GPUs)
	}
	slices.Sort(s.sizes.gpus)
	s.sizes.gpus = slices.Compact(s.sizes.gpus)
	for _, n := range s.sizes.gpus {
		con := nvtopo.Constraint{Policy: c.PodPolicy}
		if !s.anyHas(n, con) {
			con = nvtopo.Constraint{}
		}
		s.sizes.constraints = append(s.sizes.constraints, con)
	}
	s.sizes.pods = make([]int64, len(s.sizes.gpus))
}

func (s *state) anyHas(n int, con nvtopo.Constraint) bool {
	tried := map[nodeKey]bool{}
	for i := range s.nodes {
		key := s.nodes[i].key()
		if tried[key] {
			continue
		}
		tried[key] = true
		if s.nodes[i].kind.room(key.healthy, n, con) > 0 {
			return true
		}
	}
	return false
}

// nodeKey is the key by which empty nodes are equal.
type nodeKey struct {
	kind    *kind
	healthy nvtopo.Mask
}

func (n *node) key() nodeKey { return nodeKey{n.kind, n.healthy} }

// fits returns a function that reports whether a job could run if the cluster were empty.
func (s *state) fits() func(*Job) bool {
	rooms := make([]int, len(s.sizes.gpus))
	for i, n := range s.sizes.gpus {
		known := map[nodeKey]int{}
		for at := range s.nodes {
			key := s.nodes[at].key()
			room, ok := known[key]
			if !ok {
				room = key.kind.room(key.healthy, n, s.sizes.constraints[i])
				known[key] = room
			}
			rooms[i] += room
		}
	}
	return func(j *Job) bool { return rooms[s.sizes.at(j.GPUs)] >= j.Pods }
}

// begin empties the cluster for the jobs that are replayed.
func (s *state) begin(jobs []arrival) {
	for i := range jobs {
		n := int64(jobs[i].Pods)
		s.sizes.pods[s.sizes.at(jobs[i].GPUs)] += n
		s.sizes.total += n
	}
	for free := range int64(nvtopo.MaxGPUs + 1) {
		s.fragments = append(s.fragments, s.sizes.unusable(free))
	}
	s.best = make([]ringCounts, len(s.sizes.gpus))
	for i := range s.nodes {
		n := &s.nodes[i]
		n.level = n.kind.level(n.healthy, &s.sizes)
		s.add(n.level, 1)
	}
}
