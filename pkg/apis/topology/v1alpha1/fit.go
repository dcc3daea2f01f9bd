// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "strings"

// Fit leaves out of a graph what only refines a choice, where the schema does not take that
// much. A graph within the limits stays as it is. The error says what cannot be published at
// all.
func (s *NodeGPUTopologySpec) Fit() error {
	s.fitKinds()
	without := s.siblings() > MaxSiblings // readers then take each CPU for a core
	for i := range s.NUMANodes {
		n := &s.NUMANodes[i]
		if without {
			n.Siblings = nil
		}
		if len(n.Distances) > MaxDistances {
			n.Distances = nil
		}
	}
	s.NICs = s.NICs[:min(len(s.NICs), maxNICs)]
	if len(s.NICs)*len(s.GPUs) > MaxNICDistances {
		for i := range s.NICs {
			s.NICs[i].Distances = nil
		}
	}
	return checkSizes(s)
}

// fitKinds merges kinds of links where there are too many: first they lose the latency, for
// which readers then take that of the class, and then the PCIe level.
func (s *NodeGPUTopologySpec) fitKinds() {
	for _, lose := range []func(k *LinkKind){
		func(k *LinkKind) { k.LatencyNanoseconds = 0 },
		func(k *LinkKind) { k.PCIe = "" },
	} {
		if len(s.LinkKinds) <= MaxLinkKinds {
			return
		}
		var merged linkKinds
		names := map[string]string{noLink: noLink}
		for _, k := range s.LinkKinds {
			lose(&k)
			names[k.Name] = merged.nameOf(k)
		}
		s.LinkKinds = merged.list
		for i, row := range s.LinkRows {
			words := strings.Fields(row)
			for j := range words {
				words[j] = names[words[j]]
			}
			s.LinkRows[i] = strings.Join(words, " ")
		}
	}
}

// siblings is how many entries the lists of hyper-threads have in all.
func (s *NodeGPUTopologySpec) siblings() int {
	sum := 0
	for i := range s.NUMANodes {
		sum += len(s.NUMANodes[i].Siblings)
	}
	return sum
}
