// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Fit brings the graph of a machine greater than most within the limits of the schema:
// links and siblings are said in short, and what is still too much and only refines a
// choice is left out. A graph within them stays as it is.
func (s *NodeGPUTopologySpec) Fit() {
	if len(s.Links) > MaxLinks {
		s.compactLinks()
	}
	if s.siblings() > MaxSiblings {
		s.compactSiblings()
	}
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
}

// siblings is how many entries the lists of hyper-threads have in all.
func (s *NodeGPUTopologySpec) siblings() int {
	sum := 0
	for i := range s.NUMANodes {
		sum += len(s.NUMANodes[i].Siblings)
	}
	return sum
}
