// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "fmt"

// Fit brings the graph of a machine greater than most within the limits of the schema:
// links and siblings are said in short, and what is still too much and only refines a
// choice is left out. A graph within them stays as it is. The error says what cannot be
// published at all.
func (s *NodeGPUTopologySpec) Fit() error {
	s.fitLinks()
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
	if len(s.Links) > MaxLinks {
		return fmt.Errorf("spec.links: %d of more than %d kinds, at most %d are published at length", len(s.Links), MaxLinkKinds, MaxLinks)
	}
	return checkSizes(s)
}

// fitLinks says links in short where they are too many. Where they are of too many kinds for
// that, they lose first the latency, for which readers then take that of the class, and then
// the PCIe level.
func (s *NodeGPUTopologySpec) fitLinks() {
	for _, lose := range []func(l *Link){
		func(*Link) {},
		func(l *Link) { l.LatencyNanoseconds = 0 },
		func(l *Link) { l.PCIe = "" },
	} {
		if len(s.Links) <= MaxLinks {
			return
		}
		for i := range s.Links {
			lose(&s.Links[i])
		}
		s.compactLinks()
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
