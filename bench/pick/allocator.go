// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/NVIDIA/go-gpuallocator/gpuallocator"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// The values of go-gpuallocator's link types; the type itself is internal to it.
const (
	p2pCrossCPU  = 1 // then same CPU, host bridge, several switches, one switch
	p2pOneNVLink = 7
	p2pMaxLinks  = 18 // the most NVLinks of a pair that it knows
)

// errPadded reports a nil device in the best-effort policy's result, which
// callers dereference. It occurs where its partitions of the free GPUs leave a
// rest, and the rest scores best.
var errPadded = errors.New("the chosen set is the padded one")

// allocator is NVIDIA's best-effort policy itself, on synthetic devices.
type allocator struct {
	devices []*gpuallocator.Device
	policy  gpuallocator.Policy
}

// newAllocator turns a graph into devices with the links that the library itself
// would find: the PCIe level of each pair, and its direct NVLinks. It does not
// count links to a switch (GetNVLink, "Handle NVSwitch semantics").
func newAllocator(g *nvtopo.Graph) *allocator {
	a := &allocator{policy: gpuallocator.NewBestEffortPolicy(), devices: make([]*gpuallocator.Device, g.Len())}
	for i := range a.devices {
		a.devices[i] = &gpuallocator.Device{Index: i, Links: map[int][]gpuallocator.P2PLink{}}
		a.devices[i].UUID = g.GPUs[i].UUID
	}
	for i, d := range a.devices {
		for j, peer := range a.devices {
			if i == j {
				continue
			}
			l := g.Link(i, j)
			if l.PCIe != nvtopo.PCIeUnknown {
				d.Links[j] = append(d.Links[j], p2pLink(peer, p2pCrossCPU+uint(nvtopo.PCIeSYS-l.PCIe)))
			}
			if l.Class.Kind == nvtopo.KindNVLink && !l.Switched {
				d.Links[j] = append(d.Links[j], p2pLink(peer, p2pOneNVLink+uint(min(l.Class.Lanes, p2pMaxLinks))-1))
			}
		}
	}
	return a
}

func p2pLink(peer *gpuallocator.Device, value uint) gpuallocator.P2PLink {
	l := gpuallocator.P2PLink{GPU: peer}
	assign(&l.Type, value)
	return l
}

// assign sets a variable whose type cannot be named here: it is inferred.
func assign[T ~uint](variable *T, value uint) { *variable = T(value) }

func (a *allocator) pick(free nvtopo.Mask, k int) (set nvtopo.Mask, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	available := make([]*gpuallocator.Device, 0, free.Len())
	for i := range free.All() {
		available = append(available, a.devices[i])
	}
	chosen := a.policy.Allocate(available, nil, k)
	for _, d := range chosen {
		if d == nil {
			return 0, errPadded
		}
		set |= nvtopo.MaskOf(d.Index)
	}
	if set.Len() != k {
		return 0, fmt.Errorf("%d devices chosen, not %d", set.Len(), k)
	}
	return set, nil
}

// divisions returns the number of divisions of n GPUs into sets of k that the
// policy visits: C(n, r) · (n-r)! / (k!^m · m!) with m = n div k and r = n mod
// k.
func divisions(n, k int) float64 {
	if k <= 1 || k > n {
		return float64(n)
	}
	m, r := n/k, n%k
	log := logFactorial(n) - logFactorial(r) - float64(m)*logFactorial(k) - logFactorial(m)
	return math.Round(math.Exp(log))
}

// allocatorSteps estimates the number of sets that the policy examines: the
// divisions, or where k does not divide n the companions of the first GPU among
// all others and the padding, most of which it then drops: 77 million for 15 of
// 16 GPUs.
func allocatorSteps(n, k int) float64 {
	if k <= 1 || k > n {
		return float64(n)
	}
	padded := (n + k - 1) / k * k
	companions := math.Exp(logFactorial(padded-1) - logFactorial(k-1) - logFactorial(padded-k))
	return max(divisions(n, k), math.Round(companions))
}

func logFactorial(n int) float64 {
	v, _ := math.Lgamma(float64(n + 1))
	return v
}
