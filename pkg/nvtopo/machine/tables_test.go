// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

// oracleGPUs is the most GPUs for which all free sets are tried.
const oracleGPUs = 8

// TestTableBruteForce: tables equal a brute force. It picks every number of GPUs out of every free set of
// every machine, under constraints that exclude sets somewhere in the catalogue.
func TestTableBruteForce(t *testing.T) {
	constraints := map[string]nvtopo.Constraint{
		"no constraint":    {},
		"restricted":       {Policy: nvtopo.PolicyRestricted},
		"single NUMA node": {Policy: nvtopo.PolicySingleNUMANode},
		"any NVLink":       {MinLink: nvtopo.Class{Kind: nvtopo.KindNVLink, Lanes: 1}},
		"at least PHB":     {MinLink: nvtopo.Class{Kind: nvtopo.KindPCIe, PCIe: nvtopo.PCIePHB}},
		"50 GB/s":          {MinBandwidth: 50_000_000},
	}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			_, g := graphOf(t, name)
			if g.Len() > oracleGPUs {
				t.Skip("too many GPUs for brute force over all free sets")
			}
			tables := nvtopo.NewTables(g, nvtopo.DefaultWeights())
			brute := oracle.New(g)
			all := nvtopo.FullMask(g.Len())
			for what, con := range constraints {
				t.Run(what, func(t *testing.T) {
					for free := nvtopo.Mask(0); free <= all; free++ {
						for k := 1; k <= g.Len()+1; k++ {
							want, wantOK := brute.Best(free, all, k, con)
							got, ok := tables.Pick(free, all, k, con)
							if got != want || ok != wantOK {
								t.Fatalf("%d of %v: tables say %v, %t, brute force %v, %t",
									k, free.Positions(), got.Positions(), ok, want.Positions(), wantOK)
							}
						}
					}
				})
			}
		})
	}
}

// TestTableAllowed: tables respect the allowed GPUs. It restricts the choice to a part of the free GPUs,
// as when a NUMA node has no CPUs left: the residual still includes the others.
func TestTableAllowed(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			_, g := graphOf(t, name)
			if g.Len() > oracleGPUs {
				t.Skip("too many GPUs for brute force over all free sets")
			}
			tables := nvtopo.NewTables(g, nvtopo.DefaultWeights())
			brute := oracle.New(g)
			all := nvtopo.FullMask(g.Len())
			// A stride coprime to the number of masks visits different pairs each round.
			for round := range 4 {
				for free := nvtopo.Mask(0); free <= all; free++ {
					allowed := (free*37 + nvtopo.Mask(round)*101 + 59) & all
					for k := 1; k <= g.Len()+1; k++ {
						want, wantOK := brute.Best(free, allowed, k, nvtopo.Constraint{})
						got, ok := tables.Pick(free, allowed, k, nvtopo.Constraint{})
						if got != want || ok != wantOK {
							t.Fatalf("%d of %v, allowed %v: tables say %v, %t, brute force %v, %t",
								k, free.Positions(), allowed.Positions(), got.Positions(), ok, want.Positions(), wantOK)
						}
					}
				}
			}
		})
	}
}
