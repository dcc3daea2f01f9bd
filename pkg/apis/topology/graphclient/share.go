// SPDX-License-Identifier: Apache-2.0

package graphclient

import (
	"slices"
	"sync"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// keptMachines is how many kinds of machine are remembered: real clusters have 1 to 12.
const keptMachines = 16

// machines remembers the machines of which an object came last, so that what equal
// machines have alike is in memory once and not with each node: two thirds of an object.
// It is bounded by what as many objects take. The zero value is empty.
type machines struct {
	mu     sync.Mutex
	recent []v1alpha1.NodeGPUTopologySpec // the last one first, of each its lists; guarded by mu
}

// transform prepares an object for the informer's store: without managed fields, which
// nobody reads, and with lists that it shares with equal machines. From then on nobody
// may change it.
func (m *machines) transform(obj any) (any, error) {
	if t, ok := obj.(*v1alpha1.NodeGPUTopology); ok {
		t.ManagedFields = nil
		format(&t.Spec)
		m.share(&t.Spec)
	}
	return obj, nil
}

// format has the quantities of what is shared keep their text. The first call of String writes it into the
// quantity, which several goroutines read from then on, and equal quantities differ by it.
func format(spec *v1alpha1.NodeGPUTopologySpec) {
	for i := range spec.NUMANodes {
		_ = spec.NUMANodes[i].Memory.String() // for what it keeps
	}
	for i := range spec.LinkKinds {
		_ = spec.LinkKinds[i].Bandwidth.String() // likewise
	}
}

func (m *machines) share(spec *v1alpha1.NodeGPUTopologySpec) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.recent, func(known v1alpha1.NodeGPUTopologySpec) bool { return sameMachine(&known, spec) })
	var known v1alpha1.NodeGPUTopologySpec
	if i >= 0 {
		known = m.recent[i]
		spec.LinkKinds, spec.LinkRows, spec.NUMANodes, spec.NICs = known.LinkKinds, known.LinkRows, known.NUMANodes, known.NICs
	} else {
		known = v1alpha1.NodeGPUTopologySpec{LinkKinds: spec.LinkKinds, LinkRows: spec.LinkRows, NUMANodes: spec.NUMANodes, NICs: spec.NICs}
		i = min(len(m.recent), keptMachines-1)
	}
	m.recent = slices.Insert(slices.Delete(m.recent, i, min(i+1, len(m.recent))), 0, known)
}

// sameMachine reports whether two specs are of machines that differ in their devices only.
func sameMachine(a, b *v1alpha1.NodeGPUTopologySpec) bool {
	return slices.Equal(a.LinkKinds, b.LinkKinds) && slices.Equal(a.LinkRows, b.LinkRows) &&
		slices.EqualFunc(a.NUMANodes, b.NUMANodes, sameNUMANode) && slices.EqualFunc(a.NICs, b.NICs, sameNIC)
}

func sameNUMANode(a, b v1alpha1.NUMANode) bool {
	return a.ID == b.ID && a.CPUs == b.CPUs && a.ThreadsPerCore == b.ThreadsPerCore && slices.Equal(a.Siblings, b.Siblings) &&
		slices.Equal(a.Distances, b.Distances) && (a.Memory == nil) == (b.Memory == nil) && (a.Memory == nil || *a.Memory == *b.Memory)
}

func sameNIC(a, b v1alpha1.NIC) bool {
	return a.Name == b.Name && a.NUMANode == b.NUMANode && slices.Equal(a.Distances, b.Distances)
}
