// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"weak"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Reader reads the objects of many nodes. What machines have alike, their NUMA nodes
// with the CPUs of each, it reads once and shares among them for as long as somebody
// holds it. The zero value is usable, also by several goroutines.
//
// +kubebuilder:object:generate=false
type Reader struct {
	mu      sync.Mutex
	layouts map[[sha256.Size]byte]layout // guarded by mu
}

// layout is the NUMA nodes of a machine as a graph without GPUs.
type layout struct {
	numa   weak.Pointer[nvtopo.Graph]
	listed int // the sum of the CPU lists that it was read from
}

// Read returns one graph for each resource of an object, as Graphs does, and the NUMA
// nodes as a graph without GPUs, also where there are none. The caller must hold numa for as long as it is to be shared.
func (s *Reader) Read(t *NodeGPUTopology) (graphs map[string]*nvtopo.Graph, numa *nvtopo.Graph, err error) {
	if graphs, numa, err = s.read(t); err != nil {
		return nil, nil, fmt.Errorf("%s %q: %w", Kind, t.Name, err)
	}
	return graphs, numa, nil
}

func (s *Reader) read(t *NodeGPUTopology) (map[string]*nvtopo.Graph, *nvtopo.Graph, error) {
	if err := checkSizes(&t.Spec); err != nil {
		return nil, nil, err
	}
	r := reader{spec: &t.Spec}
	numa, err := s.numaGraph(&r)
	if err != nil {
		return nil, nil, err
	}
	graphs, err := r.graphs(t.Status.GPUHealth)
	return graphs, numa, err
}

// numaGraph reads the NUMA nodes, or finds them.
func (s *Reader) numaGraph(r *reader) (*nvtopo.Graph, error) {
	key := layoutKey(r.spec.NUMANodes)
	s.mu.Lock()
	known, ok := s.layouts[key]
	s.mu.Unlock()
	if g := known.numa.Value(); ok && g != nil {
		r.nodes, r.cpus.total = g.NUMANodes, known.listed
		r.cpus.seen = make(map[string]nvtopo.CPUSet, len(r.nodes))
		for i := range r.nodes {
			r.cpus.seen[r.spec.NUMANodes[i].CPUs] = r.nodes[i].CPUs
		}
		return g, nil
	}
	if err := r.readNUMANodes(); err != nil {
		return nil, err
	}
	g, err := nvtopo.NewGraph(nil, r.nodes, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("spec.numaNodes: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.layouts == nil {
		s.layouts = map[[sha256.Size]byte]layout{}
	}
	s.layouts[key] = layout{numa: weak.Make(g), listed: r.cpus.total}
	runtime.AddCleanup(g, s.forget, key)
	return g, nil
}

// forget drops a layout that nobody holds any more.
func (s *Reader) forget(key [sha256.Size]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.layouts[key].numa.Value() == nil {
		delete(s.layouts, key)
	}
}

// layoutKey is equal for lists of which every field is. It is a hash that nobody can
// find a second list for: a node must not get at the NUMA nodes of others.
func layoutKey(nodes []NUMANode) (key [sha256.Size]byte) {
	text := make([]byte, 0, 1<<10)
	number := func(n int64) { text = binary.AppendVarint(text, n) }
	word := func(s string) {
		number(int64(len(s)))
		text = append(text, s...)
	}
	for i := range nodes {
		n := &nodes[i]
		number(int64(n.ID))
		word(n.CPUs)
		number(int64(n.ThreadsPerCore))
		number(int64(len(n.Siblings)))
		for _, s := range n.Siblings {
			word(s)
		}
		if n.Memory == nil {
			word("")
		} else {
			memory := *n.Memory // String writes into its quantity, and others may be reading this one
			word(memory.String())
		}
		number(int64(len(n.Distances)))
		for _, d := range n.Distances {
			number(int64(d))
		}
	}
	return sha256.Sum256(text)
}
